/*
 * ledger_report.c - a ledger for scripts (ledger.json) and for people (a table at the end of a run).
 *
 * Both read the ledger through ledger.h alone. The table shows decimal units, as networks are sold; the file has exact
 * numbers. Links are those of the senders. A link or segment without messages is left out.
 */
#include "net/ledger.h"

#include "base/file.h"

#include <stdlib.h>

typedef struct entry {
    int at, to; /* a link's ends; or a segment's number, and 0 */
    nw_account account;
    uint64_t bytes;
} entry;

typedef struct entries {
    entry *list; /* to be freed */
    size_t count;
} entries;

static void add_entry(entries *all, int at, int to, const nw_account *account)
{
    if (account->messages == 0) return;
    if (all->list != NULL) all->list[all->count] = (entry){at, to, *account, nw_account_bytes(account)};
    all->count++;
}

static void list_links(const nw_ledger *ledger, entries *all)
{
    int world = nw_ledger_world(ledger), first = nw_ledger_first_rank(ledger);
    for (int from = first; from < first + nw_ledger_ranks(ledger); from++) {
        for (int to = 0; to < world; to++) {
            nw_account account = nw_ledger_link(ledger, NW_SENT, from, to);
            add_entry(all, from, to, &account);
        }
    }
}

static void list_segments(const nw_ledger *ledger, entries *all)
{
    for (int i = 0; i <= nw_ledger_segments(ledger); i++) {
        nw_account account = nw_ledger_segment(ledger, i);
        add_entry(all, i, 0, &account);
    }
}

/* Counts first, then takes memory for as many. */
static nw_status collect(const nw_ledger *ledger, void (*list)(const nw_ledger *, entries *), entries *all)
{
    *all = (entries){0};
    list(ledger, all);
    all->list = malloc((all->count + 1) * sizeof *all->list);
    NW_FAIL_IF(all->list == NULL, NW_E_MEMORY, "no memory to list the %zu entries of a ledger", all->count);
    all->count = 0;
    list(ledger, all);
    return NW_OK;
}

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_place(a, b);
}

/* ---- ledger.json ---- */

static void json_count(nw_json *json, const char *key, uint64_t value) { nw_json_put_int(json, key, (int64_t)value); }

static void json_account(nw_json *json, const nw_account *account)
{
    json_count(json, "messages", account->messages);
    json_count(json, "bytes", nw_account_bytes(account));
    for (int i = 0; i < NW_OWNERS; i++) json_count(json, nw_owner_name((nw_owner)i), account->bytes[i]);
}

static void json_ratio(nw_json *json, const char *key, uint64_t bytes, int64_t by)
{
    nw_json_key(json, key);
    if (by > 0) nw_json_double(json, (double)bytes / (double)by);
    if (by <= 0) nw_json_string(json, NULL);
}

static void json_totals(nw_json *json, const nw_ledger *ledger, nw_ledger_run run)
{
    static const char *const names[NW_DIRECTIONS] = {"sent", "received"};
    json_count(json, "world_size", (uint64_t)nw_ledger_world(ledger));
    json_count(json, "steps", (uint64_t)run.steps);
    json_count(json, "images", (uint64_t)run.images);
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        nw_account total = nw_ledger_total(ledger, (nw_traffic)d);
        nw_json_put_object(json, names[d]);
        json_account(json, &total);
        json_count(json, "transport_bytes", nw_ledger_transported(ledger, (nw_traffic)d));
        nw_json_object_end(json);
    }
    nw_account sent = nw_ledger_total(ledger, NW_SENT);
    json_ratio(json, "bytes_per_step", nw_account_bytes(&sent), run.steps);
    json_ratio(json, "bytes_per_image", nw_account_bytes(&sent), run.images);
}

static void json_links(nw_json *json, entries *links)
{
    size_t listed = links->count;
    if (listed > NW_LEDGER_JSON_LINKS) {
        listed = NW_LEDGER_JSON_LINKS;
        qsort(links->list, links->count, sizeof *links->list, by_bytes);
        qsort(links->list, listed, sizeof *links->list, by_place);
    }
    nw_json_put_array(json, "links");
    for (size_t i = 0; i < listed; i++) {
        nw_json_object(json);
        json_count(json, "from", (uint64_t)links->list[i].at);
        json_count(json, "to", (uint64_t)links->list[i].to);
        json_account(json, &links->list[i].account);
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
    json_count(json, "links_left_out", links->count - listed);
}

static void json_segments(nw_json *json, const nw_ledger *ledger, const entries *segments)
{
    nw_json_put_array(json, "segments");
    for (size_t i = 0; i < segments->count; i++) {
        nw_json_object(json);
        nw_json_put_string(json, "name", nw_ledger_segment_name(ledger, segments->list[i].at));
        json_account(json, &segments->list[i].account);
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
}

nw_status nw_ledger_write_json(const nw_ledger *ledger, nw_ledger_run run, FILE *out)
{
    entries links, segments = {0};
    nw_status status = collect(ledger, list_links, &links);
    if (status == NW_OK) status = collect(ledger, list_segments, &segments);
    if (status == NW_OK) {
        nw_json json = nw_json_begin(out, true);
        nw_json_object(&json);
        json_totals(&json, ledger, run);
        json_links(&json, &links);
        json_segments(&json, ledger, &segments);
        nw_json_object_end(&json);
        nw_json_end(&json);
    }
    free(links.list);
    free(segments.list);
    NW_TRY(status);
    return NW_OK;
}

typedef struct saving {
    const nw_ledger *ledger;
    nw_ledger_run run;
} saving;

static nw_status fill(FILE *out, void *context)
{
    const saving *what = context;
    return nw_ledger_write_json(what->ledger, what->run, out);
}

nw_status nw_ledger_save_json(const nw_ledger *ledger, nw_ledger_run run, const char *path)
{
    NW_TRY(nw_file_replace_by(path, fill, &(saving){ledger, run}));
    return NW_OK;
}

/* ---- the table ---- */

enum { SHOWN = 5, AMOUNT_SIZE = 32 };

static const char *amount(char text[AMOUNT_SIZE], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.95 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, AMOUNT_SIZE, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

static void print_totals(const nw_account *sent, nw_ledger_run run, FILE *out)
{
    char text[AMOUNT_SIZE];
    uint64_t bytes = nw_account_bytes(sent);
    fprintf(out, "%-32s %12s  in %llu messages\n", "sent", amount(text, (double)bytes),
            (unsigned long long)sent->messages);
    for (int i = 0; i < NW_OWNERS; i++) {
        if (sent->bytes[i] == 0) continue;
        fprintf(out, "  %-30s %12s  %5.1f%%\n", nw_owner_name((nw_owner)i), amount(text, (double)sent->bytes[i]),
                100 * (double)sent->bytes[i] / (double)bytes);
    }
    if (run.steps > 0) fprintf(out, "  %-30s %12s\n", "a step", amount(text, (double)bytes / (double)run.steps));
    if (run.images > 0) fprintf(out, "  %-30s %12s\n", "an image", amount(text, (double)bytes / (double)run.images));
}

/* Names a link or segment. */
typedef void (*naming)(const nw_ledger *ledger, const entry *what, char *name, size_t size);

static void name_link(const nw_ledger *ledger, const entry *what, char *name, size_t size)
{
    (void)ledger;
    snprintf(name, size, "%d to %d", what->at, what->to);
}

static void name_segment(const nw_ledger *ledger, const entry *what, char *name, size_t size)
{
    snprintf(name, size, "%s", nw_ledger_segment_name(ledger, what->at));
}

static void print_largest(const nw_ledger *ledger, const char *title, entries *all, naming name_of, FILE *out)
{
    qsort(all->list, all->count, sizeof *all->list, by_bytes);
    if (all->count > 0) fprintf(out, "%s\n", title);
    for (size_t i = 0; i < all->count && i < SHOWN; i++) {
        char name[128], text[AMOUNT_SIZE];
        name_of(ledger, &all->list[i], name, sizeof name);
        fprintf(out, "  %-30s %12s  in %llu messages\n", name, amount(text, (double)all->list[i].bytes),
                (unsigned long long)all->list[i].account.messages);
    }
}

nw_status nw_ledger_print(const nw_ledger *ledger, nw_ledger_run run, FILE *out)
{
    nw_account sent = nw_ledger_total(ledger, NW_SENT);
    if (nw_account_bytes(&sent) == 0) return NW_OK;
    entries links, segments = {0};
    nw_status status = collect(ledger, list_links, &links);
    if (status == NW_OK) status = collect(ledger, list_segments, &segments);
    if (status == NW_OK) {
        print_totals(&sent, run, out);
        print_largest(ledger, "busiest links", &links, name_link, out);
        print_largest(ledger, "largest segments", &segments, name_segment, out);
    }
    free(links.list);
    free(segments.list);
    NW_TRY(status);
    return NW_OK;
}
