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
 *
 * Packed, numbers little-endian:
 *
 *   u32 magic "NWL1", u32 world, u32 segments, u64 digest of the segments' names
 *   2 x (u64 transport, account)                                    sent, received
 *   2 x (u32 n, n x (u32 from, u32 to, account))                    strictly ascending (from, to)
 *   u32 n, n x (u32 segment, account)                               strictly ascending
 *   account: u64 messages, 5 x u64 bytes of the owners
 *
 * Unpacking goes over the bytes twice: the first time only checks, so that bad bytes change nothing.
 */
#include "net/ledger.h"

#include "base/pack.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC      0x314c574eu
#define MOST_COUNT ((uint64_t)1 << 56) /* so that no sum of the packed counts of all ranks overflows */

enum { ACCOUNT_BYTES = 8 * (1 + NW_OWNERS), LINK_BYTES = 8 + ACCOUNT_BYTES, SEGMENT_BYTES = 4 + ACCOUNT_BYTES };

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
    nw_sha256 hash = nw_sha256_begin();
    char made[32], hex[65];
    for (int i = 0; i < ledger->segment_count; i++) {
        snprintf(made, sizeof made, "segment %d", i);
        const char *name = names != NULL && names[i] != NULL ? names[i] : made;
        ledger->names[i] = strdup(name);
        NW_FAIL_IF(ledger->names[i] == NULL, NW_E_MEMORY, "no memory for the names of the ledger's segments");
        nw_sha256_add(&hash, name, strlen(name) + 1);
    }
    nw_sha256_end(&hash, hex);
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

nw_status nw_ledger_create(nw_ledger **ledger, const nw_ledger_options *options)
{
    *ledger = NULL;
    const nw_ledger_options *o = options;
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
    nw_ledger *made = calloc(1, sizeof *made);
    NW_FAIL_IF(made == NULL, NW_E_MEMORY, "no memory for a ledger");
    made->world = o->world;
    made->first_rank = o->first_rank;
    made->ranks = o->ranks;
    made->segment_count = o->segments;
    nw_status status = take_memory(made);
    if (status == NW_OK) status = copy_names(made, o->segment_names);
    if (status != NW_OK) {
        nw_ledger_free(made);
        NW_TRY(status);
    }
    *ledger = made;
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
    account_add(&ledger->segments[header->bucket < most ? header->bucket : most], &account);
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

/* ---- packing ---- */

static void pack_account(nw_packer *packer, const nw_account *account)
{
    nw_pack(packer, account->messages, 8);
    for (int i = 0; i < NW_OWNERS; i++) nw_pack(packer, account->bytes[i], 8);
}

/* The place of a count that is known only after what it counts is packed. */
static void pack_count(nw_packer *packer, size_t at, uint32_t count)
{
    if (packer->failed) return;
    for (int i = 0; i < 4; i++) packer->data[at + (size_t)i] = (uint8_t)(count >> (8 * i));
}

static void pack_links(nw_packer *packer, const nw_ledger *ledger, nw_traffic direction)
{
    int first = ledger->first_rank, end = first + ledger->ranks;
    bool sent = direction == NW_SENT;
    size_t at = packer->size;
    uint32_t count = 0;
    nw_pack(packer, 0, 4);
    for (int from = sent ? first : 0; from < (sent ? end : ledger->world); from++) {
        for (int to = sent ? 0 : first; to < (sent ? ledger->world : end); to++) {
            const nw_account *link = find_link(ledger, direction, from, to);
            if (link->messages == 0) continue;
            nw_pack(packer, (uint64_t)from, 4);
            nw_pack(packer, (uint64_t)to, 4);
            pack_account(packer, link);
            count++;
        }
    }
    pack_count(packer, at, count);
}

nw_status nw_ledger_pack(const nw_ledger *ledger, uint8_t **bytes, size_t *size)
{
    nw_packer packer = {0};
    nw_pack(&packer, MAGIC, 4);
    nw_pack(&packer, (uint64_t)ledger->world, 4);
    nw_pack(&packer, (uint64_t)ledger->segment_count, 4);
    nw_pack(&packer, ledger->digest, 8);
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        nw_pack(&packer, ledger->transport[d], 8);
        pack_account(&packer, &ledger->total[d]);
    }
    for (int d = 0; d < NW_DIRECTIONS; d++) pack_links(&packer, ledger, (nw_traffic)d);
    size_t at = packer.size;
    uint32_t count = 0;
    nw_pack(&packer, 0, 4);
    for (int i = 0; i <= ledger->segment_count; i++) {
        if (ledger->segments[i].messages == 0) continue;
        nw_pack(&packer, (uint64_t)i, 4);
        pack_account(&packer, &ledger->segments[i]);
        count++;
    }
    pack_count(&packer, at, count);
    *bytes = packer.failed ? NULL : packer.data;
    *size = packer.failed ? 0 : packer.size;
    if (packer.failed) free(packer.data);
    NW_FAIL_IF(packer.failed, NW_E_MEMORY, "no memory to pack a ledger");
    return NW_OK;
}

/* ---- unpacking ---- */

typedef struct unpacking {
    nw_ledger *ledger;
    nw_unpacker in;
    const char *source;
    bool strict; /* everything must have a place */
    bool apply;  /* false: only check */
    uint32_t world, segments;
    bool same; /* world and segments are the ledger's */
} unpacking;

static nw_status unpack_account(unpacking *u, nw_account *account)
{
    size_t at = u->in.at;
    account->messages = nw_unpack(&u->in, 8);
    uint64_t largest = account->messages;
    for (int i = 0; i < NW_OWNERS; i++) {
        account->bytes[i] = nw_unpack(&u->in, 8);
        if (account->bytes[i] > largest) largest = account->bytes[i];
    }
    NW_FAIL_IF(largest >= MOST_COUNT, NW_E_MESSAGE,
               "the ledger of %s counts %llu at byte %zu, more than there can be; it is damaged, discard it", u->source,
               (unsigned long long)largest, at);
    return NW_OK;
}

static nw_status unpack_count(unpacking *u, size_t each, uint32_t *count)
{
    size_t at = u->in.at;
    *count = (uint32_t)nw_unpack(&u->in, 4);
    NW_FAIL_IF(*count > nw_unpack_left(&u->in) / each, NW_E_MESSAGE,
               "the ledger of %s promises %u entries at byte %zu and ends before them; it is damaged, discard it",
               u->source, *count, at);
    return NW_OK;
}

static nw_status unpack_head(unpacking *u)
{
    bool known = nw_unpack(&u->in, 4) == MAGIC;
    NW_FAIL_IF(!known, NW_E_MESSAGE, "what %s gave is no ledger; use the same version of nowait everywhere", u->source);
    u->world = (uint32_t)nw_unpack(&u->in, 4);
    u->segments = (uint32_t)nw_unpack(&u->in, 4);
    uint64_t digest = nw_unpack(&u->in, 8);
    const nw_ledger *ledger = u->ledger;
    bool same_world = u->world == (uint32_t)ledger->world;
    u->same = same_world && u->segments == (uint32_t)ledger->segment_count && digest == ledger->digest;
    NW_FAIL_IF(
        u->strict && !u->same, NW_E_MESSAGE,
        "the ledger of %s is of %u ranks and %u segments, this one of %d and %d%s; give all ranks the same options",
        u->source, u->world, u->segments, ledger->world, ledger->segment_count,
        same_world && u->segments == (uint32_t)ledger->segment_count ? " with other names" : "");
    NW_FAIL_IF(u->world > NW_LEDGER_MOST_RANKS || u->segments > NW_LEDGER_MOST_SEGMENTS, NW_E_MESSAGE,
               "the ledger of %s claims %u ranks and %u segments, more than there can be; it is damaged, discard it",
               u->source, u->world, u->segments);
    return NW_OK;
}

static nw_status unpack_totals(unpacking *u)
{
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        uint64_t transport = nw_unpack(&u->in, 8);
        nw_account account;
        NW_FAIL_IF(transport >= MOST_COUNT, NW_E_MESSAGE,
                   "the ledger of %s says that %llu bytes were %s, more than there can be; it is damaged, discard it",
                   u->source, (unsigned long long)transport, direction_names[d]);
        NW_TRY(unpack_account(u, &account));
        if (!u->apply) continue;
        u->ledger->transport[d] += transport;
        account_add(&u->ledger->total[d], &account);
    }
    return NW_OK;
}

static nw_status unpack_links(unpacking *u, nw_traffic direction)
{
    uint32_t count;
    int64_t last = -1;
    NW_TRY(unpack_count(u, LINK_BYTES, &count));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = (uint32_t)nw_unpack(&u->in, 4), to = (uint32_t)nw_unpack(&u->in, 4);
        nw_account account;
        NW_TRY(unpack_account(u, &account));
        int64_t place = (int64_t)from * u->world + to;
        NW_FAIL_IF(from >= u->world || to >= u->world || place <= last, NW_E_MESSAGE,
                   "the ledger of %s has the link from rank %u to rank %u where it cannot be, in a world of %u; it is "
                   "damaged, discard it",
                   u->source, from, to, u->world);
        last = place;
        nw_account *link = u->same ? find_link(u->ledger, direction, (int)from, (int)to) : NULL;
        NW_FAIL_IF(u->strict && link == NULL, NW_E_MESSAGE,
                   "the ledger of %s has the link from rank %u to rank %u, which this one does not keep; merge into a "
                   "ledger of the whole world",
                   u->source, from, to);
        if (u->apply && link != NULL) account_add(link, &account);
    }
    return NW_OK;
}

static nw_status unpack_segments(unpacking *u)
{
    uint32_t count;
    int64_t last = -1;
    NW_TRY(unpack_count(u, SEGMENT_BYTES, &count));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t segment = (uint32_t)nw_unpack(&u->in, 4);
        nw_account account;
        NW_TRY(unpack_account(u, &account));
        NW_FAIL_IF(segment > u->segments || segment <= last, NW_E_MESSAGE,
                   "the ledger of %s has segment %u of %u where it cannot be; it is damaged, discard it", u->source,
                   segment, u->segments);
        last = segment;
        if (u->apply && u->same) account_add(&u->ledger->segments[segment], &account);
    }
    return NW_OK;
}

static nw_status unpack_all(unpacking *u)
{
    NW_TRY(unpack_head(u));
    NW_TRY(unpack_totals(u));
    for (int d = 0; d < NW_DIRECTIONS; d++) NW_TRY(unpack_links(u, (nw_traffic)d));
    NW_TRY(unpack_segments(u));
    NW_FAIL_IF(u->in.failed || nw_unpack_left(&u->in) != 0, NW_E_MESSAGE,
               "the ledger of %s has %zu bytes, which is %s; it is damaged, discard it", u->source, u->in.size,
               u->in.failed ? "too few" : "too many");
    return NW_OK;
}

static nw_status unpack_twice(nw_ledger *ledger, const uint8_t *bytes, size_t size, const char *source, bool strict)
{
    for (int apply = 0; apply < 2; apply++) {
        unpacking u = {.ledger = ledger,
                       .in = {.data = bytes, .size = size},
                       .source = source,
                       .strict = strict,
                       .apply = apply != 0};
        NW_TRY(unpack_all(&u));
    }
    return NW_OK;
}

nw_status nw_ledger_unpack_merge(nw_ledger *ledger, const uint8_t *bytes, size_t size, const char *source)
{
    NW_TRY(unpack_twice(ledger, bytes, size, source, true));
    return NW_OK;
}

nw_status nw_ledger_unpack_resume(nw_ledger *ledger, const uint8_t *bytes, size_t size, const char *source)
{
    NW_TRY(unpack_twice(ledger, bytes, size, source, false));
    return NW_OK;
}
