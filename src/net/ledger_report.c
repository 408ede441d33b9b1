/*
 * ledger_report.c - a ledger for scripts (ledger.json) and for people (a table at the end of a run).
 *
 * Both read the ledger through ledger.h alone. The table shows decimal units, as networks are sold; the file has exact
 * numbers. Links are those of the senders. A link or segment without messages is left out.
 */
#include "net/ledger.h"

#include "base/file.h"
#include "base/text.h"

#include <stdlib.h>

typedef struct entry {
    const char *name; /* of a segment; NULL: a link */
    int at, to;       /* a link's ends; or a segment's number, and 0 */
    nw_account account;
    uint64_t bytes;
} entry;

typedef struct entries {
    entry *list;
    size_t count;
} entries;

typedef struct parts {
    entries links, segments;
} parts;

static void free_parts(parts *p)
{
    free(p->links.list);
    free(p->segments.list);
}

static nw_status add_entry(entries *all, const char *name, int at, int to, nw_account account)
{
    if (account.messages == 0) return NW_OK;
    NW_FAIL_IF(!nw_grow(&all->list, all->count, sizeof *all->list), NW_E_MEMORY,
               "no memory to list the %zu entries of a ledger", all->count + 1);
    all->list[all->count++] = (entry){name, at, to, account, nw_account_bytes(&account)};
    return NW_OK;
}

static nw_status collect(const nw_ledger *ledger, parts *p)
{
    int world = nw_ledger_world(ledger), first = nw_ledger_first_rank(ledger);
    for (int from = first; from < first + nw_ledger_ranks(ledger); from++)
        for (int to = 0; to < world; to++)
            NW_TRY(add_entry(&p->links, NULL, from, to, nw_ledger_link(ledger, NW_SENT, from, to)));
    for (int i = 0; i <= nw_ledger_segments(ledger); i++)
        NW_TRY(add_entry(&p->segments, nw_ledger_segment_name(ledger, i), i, 0, nw_ledger_segment(ledger, i)));
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

static void json_segments(nw_json *json, const entries *segments)
{
    nw_json_put_array(json, "segments");
    for (size_t i = 0; i < segments->count; i++) {
        nw_json_object(json);
        nw_json_put_string(json, "name", segments->list[i].name);
        json_account(json, &segments->list[i].account);
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
}

static void json_codecs(nw_json *json, nw_ledger_run run)
{
    nw_json_put_array(json, "codecs");
    for (int i = 0; i < run.codec_count; i++) {
        const nw_ledger_codec *c = &run.codecs[i];
        int64_t values = c->bytes - c->index_bytes - c->scale_bytes;
        nw_json_object(json);
        nw_json_put_string(json, "codec", c->codec);
        nw_json_put_int(json, "payloads", c->payloads);
        nw_json_put_int(json, "float_bytes", c->float_bytes);
        nw_json_put_int(json, "bytes", c->bytes);
        nw_json_put_int(json, "values", values);
        nw_json_put_int(json, "indices", c->index_bytes);
        nw_json_put_int(json, "scales", c->scale_bytes);
        if (c->entries > 0) {
            nw_json_put_int(json, "entries", c->entries);
            nw_json_put_double(json, "indices_bound", c->index_bound_bytes);
            nw_json_put_int(json, "int32_lists", c->int32_list_bytes);
            nw_json_put_int(json, "int64_lists", c->int64_list_bytes);
        }
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
}

nw_status nw_ledger_write_json(const nw_ledger *ledger, nw_ledger_run run, FILE *out)
{
    NW_CLEANUP(free_parts) parts p = {0};
    NW_TRY(collect(ledger, &p));
    nw_json json = nw_json_begin(out, true);
    nw_json_object(&json);
    json_totals(&json, ledger, run);
    json_links(&json, &p.links);
    json_segments(&json, &p.segments);
    json_codecs(&json, run);
    nw_json_object_end(&json);
    nw_json_end(&json);
    return NW_OK;
}

typedef struct saving {
    const nw_ledger *ledger;
    nw_ledger_run run;
} saving;

static nw_status fill_json(FILE *out, void *context)
{
    const saving *what = context;
    return nw_ledger_write_json(what->ledger, what->run, out);
}

nw_status nw_ledger_save_json(const nw_ledger *ledger, nw_ledger_run run, const char *path)
{
    return nw_file_replace_by(path, fill_json, &(saving){ledger, run});
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

static void print_largest(const char *title, entries *all, FILE *out)
{
    if (all->count == 0) return;
    qsort(all->list, all->count, sizeof *all->list, by_bytes);
    fprintf(out, "%s\n", title);
    for (size_t i = 0; i < all->count && i < SHOWN; i++) {
        const entry *e = &all->list[i];
        char link[32], text[AMOUNT_SIZE];
        snprintf(link, sizeof link, "%d to %d", e->at, e->to);
        fprintf(out, "  %-30s %12s  in %llu messages\n", e->name ? e->name : link, amount(text, (double)e->bytes),
                (unsigned long long)e->account.messages);
    }
}

nw_status nw_ledger_print(const nw_ledger *ledger, nw_ledger_run run, FILE *out)
{
    nw_account sent = nw_ledger_total(ledger, NW_SENT);
    if (nw_account_bytes(&sent) == 0) return NW_OK;
    NW_CLEANUP(free_parts) parts p = {0};
    NW_TRY(collect(ledger, &p));
    print_totals(&sent, run, out);
    print_largest("busiest links", &p.links, out);
    print_largest("largest segments", &p.segments, out);
    return NW_OK;
}
