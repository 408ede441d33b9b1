/*
 * ledger.c - counts bytes by owner, compares the sums with the transport's, and carries counts across processes.
 *
 *   total[d]          everything of direction d
 *   links[d][r][p]    of rank first_rank + r with peer p: sent to it, or received from it
 *   segments[s]       sent; the last one is for ids that have no place
 *   step              sent since nw_ledger_take_step
 *
 * Invariants: the owners' shares of a message add up to its size; total[d] is the sum of links[d], of collectives, and
 * of counts that a resumed run could not place.
 */
#include "net/ledger.h"

#include "base/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COUNT ((int64_t)1 << 56) /* so that no sum over ranks overflows */

enum { TOTAL_ROW, SENT_ROW, RECEIVED_ROW, SEGMENT_ROW };

struct nw_ledger {
    int world, first_rank, ranks, segment_count;
    uint64_t digest;
    char **names;
    nw_account total[NW_DIRECTIONS], step;
    uint64_t transport[NW_DIRECTIONS];
    nw_account *links[NW_DIRECTIONS];
    nw_account *segments;
};

static const char *const direction_names[NW_DIRECTIONS] = {"sent", "received"};

static void require(bool condition, const char *rule, int value)
{
    if (condition) return;
    fprintf(stderr, "nowait: bug: ledger misused: %s: %d\n", rule, value);
    abort();
}

/* ---- accounts ---- */

uint64_t nw_account_bytes(const nw_account *account)
{
    uint64_t sum = 0;
    for (int i = 0; i < NW_OWNERS; i++) sum += account->bytes[i];
    return sum;
}

const char *nw_owner_name(nw_owner owner)
{
    static const char *const names[NW_OWNERS] = {"values", "indices", "scales", "headers", "control"};
    return names[owner];
}

static void account_add(nw_account *to, const nw_account *what)
{
    to->messages += what->messages;
    for (int i = 0; i < NW_OWNERS; i++) to->bytes[i] += what->bytes[i];
}

/* A header that claims more indices and scales than it has bytes is refused elsewhere (nw_message_check); here its
 * shares are cut, so that they add up in any case. */
static nw_account account_of(const nw_header *header)
{
    nw_account account = {.messages = 1};
    if (header->channel == NW_CHANNEL_DRIVER) {
        account.bytes[NW_OWNER_CONTROL] = NW_HEADER_BYTES + (uint64_t)header->bytes;
        return account;
    }
    uint32_t left = header->bytes;
    uint32_t indices = header->index_bytes < left ? header->index_bytes : left;
    left -= indices;
    uint32_t scales = header->scale_bytes < left ? header->scale_bytes : left;
    account.bytes[NW_OWNER_VALUES] = left - scales;
    account.bytes[NW_OWNER_INDICES] = indices;
    account.bytes[NW_OWNER_SCALES] = scales;
    account.bytes[NW_OWNER_HEADERS] = NW_HEADER_BYTES;
    return account;
}

/* ---- making ---- */

static nw_status copy_names(nw_ledger *ledger, const char *const *names)
{
    nw_digest hash = nw_sha256_begin();
    char made[32], hex[65];
    for (int i = 0; i < ledger->segment_count; i++) {
        snprintf(made, sizeof made, "segment %d", i);
        const char *name = names != NULL && names[i] != NULL ? names[i] : made;
        ledger->names[i] = strdup(name);
        NW_FAIL_IF(ledger->names[i] == NULL, NW_E_MEMORY, "no memory for the names of the ledger's segments");
        nw_digest_add(&hash, name, strlen(name) + 1);
    }
    nw_digest_end(&hash, hex);
    hex[16] = '\0';
    ledger->digest = strtoull(hex, NULL, 16);
    return NW_OK;
}

static nw_status take_memory(nw_ledger *ledger)
{
    size_t links = (size_t)ledger->ranks * (size_t)ledger->world;
    ledger->names = calloc((size_t)ledger->segment_count + 1, sizeof *ledger->names);
    ledger->segments = calloc((size_t)ledger->segment_count + 1, sizeof *ledger->segments);
    bool have = ledger->names != NULL && ledger->segments != NULL;
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        ledger->links[d] = calloc(links, sizeof *ledger->links[d]);
        have = have && ledger->links[d] != NULL;
    }
    NW_FAIL_IF(!have, NW_E_MEMORY, "no memory for a ledger of %zu links and %d segments", links, ledger->segment_count);
    return NW_OK;
}

static void autofree(nw_ledger **ledger) { nw_ledger_free(*ledger); }

nw_status nw_ledger_create(nw_ledger **ledger, const nw_ledger_options *o)
{
    *ledger = NULL;
    bool sane = o->world >= 1 && o->world <= NW_LEDGER_MOST_RANKS && o->first_rank >= 0 && o->ranks >= 1 &&
                o->ranks <= o->world && o->first_rank <= o->world - o->ranks;
    NW_FAIL_IF(
        !sane, NW_E_ARGUMENT,
        "a ledger of %d ranks from rank %d on does not fit into a world of %d; use ranks of the world, which has "
        "at most %d",
        o->ranks, o->first_rank, o->world, NW_LEDGER_MOST_RANKS);
    NW_FAIL_IF((int64_t)o->ranks * o->world > NW_LEDGER_MOST_LINKS, NW_E_ARGUMENT,
               "a ledger of %d ranks in a world of %d would have more than %d links; use fewer ranks a process",
               o->ranks, o->world, NW_LEDGER_MOST_LINKS);
    NW_FAIL_IF(o->segments < 0 || o->segments > NW_LEDGER_MOST_SEGMENTS, NW_E_ARGUMENT,
               "a ledger of %d segments is not possible; use 0 to %d", o->segments, NW_LEDGER_MOST_SEGMENTS);
    NW_CLEANUP(autofree) nw_ledger *made = calloc(1, sizeof *made);
    NW_FAIL_IF(made == NULL, NW_E_MEMORY, "no memory for a ledger");
    made->world = o->world;
    made->first_rank = o->first_rank;
    made->ranks = o->ranks;
    made->segment_count = o->segments;
    NW_TRY(take_memory(made));
    NW_TRY(copy_names(made, o->segment_names));
    *ledger = made;
    made = NULL;
    return NW_OK;
}

void nw_ledger_free(nw_ledger *ledger)
{
    if (ledger == NULL) return;
    for (int i = 0; ledger->names != NULL && i < ledger->segment_count; i++) free(ledger->names[i]);
    for (int d = 0; d < NW_DIRECTIONS; d++) free(ledger->links[d]);
    free(ledger->names);
    free(ledger->segments);
    free(ledger);
}

/* ---- counting ---- */

/* NULL where the rank that counts this link in this direction is not here. */
static nw_account *find_link(const nw_ledger *ledger, nw_traffic direction, int from, int to)
{
    int own = direction == NW_SENT ? from : to, peer = direction == NW_SENT ? to : from;
    if (own < ledger->first_rank || own - ledger->first_rank >= ledger->ranks) return NULL;
    if (peer < 0 || peer >= ledger->world) return NULL;
    return &ledger->links[direction][(size_t)(own - ledger->first_rank) * (size_t)ledger->world + (size_t)peer];
}

void nw_ledger_sent(nw_ledger *ledger, int from, int to, const nw_header *header)
{
    nw_account *link = find_link(ledger, NW_SENT, from, to), account = account_of(header);
    require(link != NULL, "a message is sent that does not begin at a rank here or end in the world, from rank", from);
    account_add(link, &account);
    account_add(&ledger->total[NW_SENT], &account);
    account_add(&ledger->step, &account);
    if (header->channel == NW_CHANNEL_DRIVER) return;
    uint32_t most = (uint32_t)ledger->segment_count;
    bool placed = header->channel >= NW_CHANNEL_EXCHANGE && header->bucket < most;
    account_add(&ledger->segments[placed ? header->bucket : most], &account);
}

void nw_ledger_received(nw_ledger *ledger, int from, int to, const nw_header *header)
{
    nw_account *link = find_link(ledger, NW_RECEIVED, from, to), account = account_of(header);
    require(link != NULL, "a message arrives that does not end at a rank here or begin in the world, at rank", to);
    account_add(link, &account);
    account_add(&ledger->total[NW_RECEIVED], &account);
}

void nw_ledger_transport(nw_ledger *ledger, nw_traffic direction, uint64_t bytes)
{
    ledger->transport[direction] += bytes;
}

void nw_ledger_forget_links(nw_ledger *ledger, int rank)
{
    for (int peer = 0; peer < ledger->world; peer++) {
        nw_account *ends[] = {find_link(ledger, NW_SENT, rank, peer), find_link(ledger, NW_RECEIVED, rank, peer),
                              find_link(ledger, NW_SENT, peer, rank), find_link(ledger, NW_RECEIVED, peer, rank)};
        for (int i = 0; i < 4; i++)
            if (ends[i]) *ends[i] = (nw_account){0};
    }
}

nw_account nw_ledger_take_step(nw_ledger *ledger)
{
    nw_account step = ledger->step;
    ledger->step = (nw_account){0};
    return step;
}

/* ---- reading ---- */

int nw_ledger_world(const nw_ledger *ledger) { return ledger->world; }
int nw_ledger_first_rank(const nw_ledger *ledger) { return ledger->first_rank; }
int nw_ledger_ranks(const nw_ledger *ledger) { return ledger->ranks; }
int nw_ledger_segments(const nw_ledger *ledger) { return ledger->segment_count; }

const char *nw_ledger_segment_name(const nw_ledger *ledger, int segment)
{
    require(segment >= 0 && segment <= ledger->segment_count, "there is no segment", segment);
    return segment < ledger->segment_count ? ledger->names[segment] : "other";
}

nw_account nw_ledger_total(const nw_ledger *ledger, nw_traffic direction) { return ledger->total[direction]; }

nw_account nw_ledger_link(const nw_ledger *ledger, nw_traffic direction, int from, int to)
{
    const nw_account *link = find_link(ledger, direction, from, to);
    return link != NULL ? *link : (nw_account){0};
}

nw_account nw_ledger_segment(const nw_ledger *ledger, int segment)
{
    require(segment >= 0 && segment <= ledger->segment_count, "there is no segment", segment);
    return ledger->segments[segment];
}

uint64_t nw_ledger_transported(const nw_ledger *ledger, nw_traffic direction) { return ledger->transport[direction]; }

nw_status nw_ledger_check(const nw_ledger *ledger)
{
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        uint64_t owned = nw_account_bytes(&ledger->total[d]), moved = ledger->transport[d];
        uint64_t difference = owned > moved ? owned - moved : moved - owned;
        NW_FAIL_IF(difference != 0, NW_E_INTERNAL,
                   "the ledger has owners for %llu bytes %s, but the transport moved %llu: %llu %s; this is a bug, "
                   "report it with ledger.json",
                   (unsigned long long)owned, direction_names[d], (unsigned long long)moved,
                   (unsigned long long)difference, owned < moved ? "have no owner" : "were never moved");
    }
    return NW_OK;
}

nw_status nw_ledger_check_links(const nw_ledger *ledger, const bool *lost)
{
    NW_FAIL_IF(ledger->ranks != ledger->world, NW_E_ARGUMENT,
               "a ledger of %d of %d ranks cannot compare the ends of links; merge the others first", ledger->ranks,
               ledger->world);
    for (int from = 0; from < ledger->world; from++) {
        for (int to = 0; to < ledger->world; to++) {
            if (lost && (lost[from] || lost[to])) continue;
            const nw_account *sent = find_link(ledger, NW_SENT, from, to);
            const nw_account *received = find_link(ledger, NW_RECEIVED, from, to);
            NW_FAIL_IF(memcmp(sent, received, sizeof *sent) != 0, NW_E_PEER,
                       "rank %d sent %llu messages of %llu bytes to rank %d, which received %llu of %llu; check the "
                       "network, and that no rank ended early",
                       from, (unsigned long long)sent->messages, (unsigned long long)nw_account_bytes(sent), to,
                       (unsigned long long)received->messages, (unsigned long long)nw_account_bytes(received));
        }
    }
    return NW_OK;
}

/* ---- as a table ---- */

static int64_t *put_row(int64_t *row, int64_t kind, int64_t i, int64_t j, const nw_account *account)
{
    row[0] = kind;
    row[1] = i;
    row[2] = j;
    row[3] = (int64_t)account->messages;
    for (int owner = 0; owner < NW_OWNERS; owner++) row[4 + owner] = (int64_t)account->bytes[owner];
    return row + NW_LEDGER_COLUMNS;
}

nw_status nw_ledger_save(const nw_ledger *ledger, int64_t **rows, size_t *count)
{
    size_t links = (size_t)ledger->ranks * (size_t)ledger->world;
    *count = 1 + NW_DIRECTIONS;
    for (int d = 0; d < NW_DIRECTIONS; d++)
        for (size_t i = 0; i < links; i++) *count += ledger->links[d][i].messages > 0;
    for (int i = 0; i <= ledger->segment_count; i++) *count += ledger->segments[i].messages > 0;
    *rows = calloc(*count, NW_LEDGER_COLUMNS * sizeof **rows);
    NW_FAIL_IF(*rows == NULL, NW_E_MEMORY, "no memory to save a ledger of %zu rows", *count);
    (*rows)[0] = ledger->world;
    (*rows)[1] = ledger->segment_count;
    (*rows)[2] = (int64_t)ledger->digest;
    for (int d = 0; d < NW_DIRECTIONS; d++) (*rows)[3 + d] = (int64_t)ledger->transport[d];
    int64_t *row = *rows + NW_LEDGER_COLUMNS;
    for (int d = 0; d < NW_DIRECTIONS; d++) row = put_row(row, TOTAL_ROW, d, 0, &ledger->total[d]);
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        for (size_t i = 0; i < links; i++) {
            int64_t own = ledger->first_rank + (int64_t)i / ledger->world, peer = (int64_t)i % ledger->world;
            if (ledger->links[d][i].messages == 0) continue;
            row = d == NW_SENT ? put_row(row, SENT_ROW, own, peer, &ledger->links[d][i])
                               : put_row(row, RECEIVED_ROW, peer, own, &ledger->links[d][i]);
        }
    }
    for (int i = 0; i <= ledger->segment_count; i++)
        if (ledger->segments[i].messages > 0) row = put_row(row, SEGMENT_ROW, i, 0, &ledger->segments[i]);
    return NW_OK;
}

/* The account that a row is added to; NULL: it has none here. */
static nw_account *find_row(nw_ledger *ledger, const int64_t *row)
{
    int64_t kind = row[0], i = row[1], j = row[2];
    bool ranks = i >= 0 && i < ledger->world && j >= 0 && j < ledger->world;
    if (kind == TOTAL_ROW) return i == NW_SENT || i == NW_RECEIVED ? &ledger->total[i] : NULL;
    if (kind == SENT_ROW && ranks) return find_link(ledger, NW_SENT, (int)i, (int)j);
    if (kind == RECEIVED_ROW && ranks) return find_link(ledger, NW_RECEIVED, (int)i, (int)j);
    if (kind == SEGMENT_ROW && i >= 0 && i <= ledger->segment_count) return &ledger->segments[i];
    return NULL;
}

static nw_status check_counts(const int64_t *counts, int n, size_t row, const char *source)
{
    for (int i = 0; i < n; i++)
        NW_FAIL_IF(counts[i] < 0 || counts[i] >= MOST_COUNT, NW_E_MESSAGE,
                   "the ledger of %s has the impossible count %lld in row %zu; it is damaged, discard it", source,
                   (long long)counts[i], row);
    return NW_OK;
}

nw_status nw_ledger_add(nw_ledger *ledger, const int64_t *rows, size_t count, bool resumes, const char *source)
{
    NW_FAIL_IF(count == 0, NW_E_MESSAGE, "the ledger of %s is empty; it is damaged, discard it", source);
    bool alike = rows[0] == ledger->world && rows[1] == ledger->segment_count;
    bool same = alike && (uint64_t)rows[2] == ledger->digest;
    NW_FAIL_IF(!same && !resumes, NW_E_MESSAGE,
               "the ledger of %s is of %lld ranks and %lld segments, this one of %d and %d%s; give all ranks the same "
               "options",
               source, (long long)rows[0], (long long)rows[1], ledger->world, ledger->segment_count,
               alike ? " with other names" : "");
    NW_TRY(check_counts(rows + 3, NW_DIRECTIONS, 0, source));
    for (int d = 0; d < NW_DIRECTIONS; d++) ledger->transport[d] += (uint64_t)rows[3 + d];
    for (size_t r = 1; r < count; r++) {
        const int64_t *row = rows + r * NW_LEDGER_COLUMNS;
        nw_account *account = find_row(ledger, row), what = {.messages = (uint64_t)row[3]};
        NW_TRY(check_counts(row + 3, 1 + NW_OWNERS, r, source));
        if (!same && row[0] != TOTAL_ROW) continue;
        NW_FAIL_IF(account == NULL, NW_E_MESSAGE,
                   "the ledger of %s has in row %zu an entry that does not exist here (kind %lld, %lld, %lld); it is "
                   "damaged, discard it",
                   source, r, (long long)row[0], (long long)row[1], (long long)row[2]);
        for (int owner = 0; owner < NW_OWNERS; owner++) what.bytes[owner] = (uint64_t)row[4 + owner];
        account_add(account, &what);
    }
    return NW_OK;
}
