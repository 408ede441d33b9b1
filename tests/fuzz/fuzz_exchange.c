/*
 * fuzz_exchange.c - worlds of exchanges (support/world.h) in which messages get damaged on their way.
 *
 * The first bytes say which exchange, of how many members, under which rules. The others say what happens, one after
 * the other: moves in some order, or a message is changed in header or payload, sent twice, overtakes another, comes
 * from another member, or is made up. What nw_message_check refuses is not handed over, as drivers do. A member answers
 * each message with NW_OK or refuses it (NW_E_MESSAGE), and is gone then; of a silent member it may say so (NW_E_PEER), and
 * of floats that a codec cannot encode (NW_E_NUMERIC).
 * It writes nowhere else, and nothing goes on for ever. A world without damage becomes quiescent.
 */
#include "support/world.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNTIL = 6, MOVES_MOST = 3000 };

typedef struct input {
    const uint8_t *at, *end;
} input;

static uint32_t byte(input *in) { return in->at < in->end ? *in->at++ : 0; }
static uint32_t word(input *in) { return byte(in) | byte(in) << 8; }

static void look(const world *w, const nw_snapshot *s) { (void)w, (void)s; }

static nw_codec *make_codec(uint32_t which)
{
    static const char *const names[] = {"none", "topk", "int8", "modulo", "randomk"};
    nw_codec *made;
    nw_codec_options codec = nw_codec_options_default(names[which % (sizeof names / sizeof names[0])]);
    codec.ratio = 0.1;
    codec.shared = false;
    world_ok(nw_codec_create(&made, &codec));
    return made;
}

static void choose_gossip(world_options *o, uint32_t how, uint32_t codec)
{
    nw_exchange_options *e = &o->exchange;
    nw_graph *graph; /* until the input ends */
    world_ok(nw_graph_make(&graph, "complete", o->members, 1));
    e->name = "gossip";
    o->with = make_codec(codec); /* as well */
    e->gossip = (nw_gossip_options){.graph = graph,
                                    .seed = how,
                                    .pairing = (nw_pairing)(how % 3),
                                    .rate = 2,
                                    .deterministic_coms = how / 3 % 2,
                                    .acid = how / 6 % 2,
                                    .eta = 0.3,
                                    .alpha = 0.6,
                                    .measure_every = how / 12 % 3};
    o->looked = look;
    o->rings = 60;
    o->bare = false; /* passes read copies */
}

static world_options read_options(input *in)
{
    static const char *const names[] = {"allreduce", "server", "server", "none"}, *const codecs[] = {"none", "fp16",
                                                                                                     "bf16"};
    static const int few[] = {40, 0}, some[] = {20, 33, 50, 0};
    static const uint16_t ranks[] = {1, 2, 4, 5};
    uint32_t a = byte(in), b = byte(in), c = byte(in);
    world_options o = {.damaged = true, .members = 1 + (int)(a / 4 % 4), .codec = codecs[a / 16 % 3]};
    nw_exchange_options *e = &o.exchange;
    e->name = names[a % 4];
    bool pairs = a % 4 == 3 && a >= 64; /* gossip */
    if (pairs) o.codec = "none";
    if (a % 4 == 3 && !pairs && c % 4 > 0) e->name = "local";
    if (strcmp(e->name, "none") == 0 && !pairs) o.members = 1;
    e->sync_every = 2 + (int)(b / 4 % 2);
    e->layout.fragments = strcmp(e->name, "local") == 0 ? 1 + (int)(b / 8 % 2) : 0;
    e->pairs = b / 16 % 2;
    e->layout.bucket_bytes = 128;
    e->delay = (int)(b % 2);
    e->accumulation = 1 + (int)(b / 2 % 2);
    e->sync = b / 4 % 2;
    e->server_computes = o.members == 1 || b / 8 % 2;
    e->servers = o.members > 2 ? 1 + (int)(b / 16 % 2) : 1;
    e->in_flight = e->sync ? 1 : 1 + (int)(b / 32 % 3);
    e->max_staleness = e->sync || c % 4 == 0 ? -1 : (int64_t)(c / 4 % 2);
    e->staleness = e->servers > 1 ? NW_STALE_WEIGHT : (nw_staleness)(c % 4 - (c % 4 > 0));
    e->correction = e->sync ? NW_CORRECT_NONE : (nw_correction)(c / 8 % 3);
    e->dc_lambda = 0.5;
    e->deadline_ns = c / 32 % 2 ? 100000 : 0;
    o.bare = c / 64 % 2 && e->accumulation == 1;
    o.interrupts = c / 128;
    o.segments = c % 2 && e->layout.fragments < 2 ? few : some;
    o.every = b / 128 ? 2 : 0;
    o.ranks = ranks;
    o.ranks_in_world = 7;
    o.finals = o.seed = byte(in);
    if (pairs) choose_gossip(&o, b / 2, c / 4);
    return o;
}

/* A copy of the oldest or the second message of some link; NULL: there is none. */
static nw_message *copy_of(world *w, uint32_t which, bool second, int *from, int *to)
{
    for (int i = 0; i < w->o.members * w->o.members; i++) {
        int k = (int)((which + (uint32_t)i) % (uint32_t)(w->o.members * w->o.members));
        world_link *link = &w->links[ *from = k / w->o.members][ *to = k % w->o.members];
        if (link->last - link->first < 1 + second) continue;
        nw_message *like = link->at[(link->first + second) % WORLD_LINK], *m;
        world_ok(nw_message_take(w->driver->pool, like->header->bytes, &m));
        memcpy(m->header, like->header, nw_message_size(like));
        return m;
    }
    return NULL;
}

static void replace(world *w, int from, int to, bool second, nw_message *m)
{
    world_link *link = &w->links[from][to];
    nw_message **at = &link->at[(link->first + second) % WORLD_LINK];
    nw_message_drop(*at);
    *at = m;
}

static nw_status answered(nw_status status)
{
    /* parameters of which a message made infinities cannot be encoded any more */
    if (status != NW_OK && status != NW_E_MESSAGE && status != NW_E_PEER && status != NW_E_NUMERIC)
        world_fail(__FILE__, __LINE__, "status %d: %s", status, nw_error_message());
    return status;
}

/* Out of turn, as if it had come from that rank. */
static void hand(world *w, nw_message *m, int rank, int to)
{
    m->header->from = (uint16_t)rank;
    if (!w->at[to].dead && nw_message_check(m->header, nw_message_size(m), rank, w->driver->size) == NW_OK)
        answered(world_hand(w, to, m));
    nw_message_drop(m);
}

/* Bits of header or payload are turned; what a driver would not hand over is lost. */
static void turn(input *in, world *w, bool header)
{
    int from, to;
    uint32_t which = byte(in);
    nw_message *m = copy_of(w, which, which & 128, &from, &to);
    if (!m) return;
    uint8_t *bytes = header ? (uint8_t *)m->header : m->payload;
    size_t size = nw_message_size(m), room = header ? NW_HEADER_BYTES : m->header->bytes;
    for (uint32_t n = 1 + byte(in) % 3; n > 0 && room > 0; n--) bytes[word(in) % room] ^= (uint8_t)(1 + byte(in));
    if (nw_message_check(m->header, size, w->ranks[from], w->driver->size) == NW_OK) {
        replace(w, from, to, which & 128, m);
        return;
    }
    m->header->bytes = (uint32_t)(size - NW_HEADER_BYTES);
    nw_message_drop(m);
    w->at[to].dead = true;
}

/* Fields that a machine reads get values of their own range, or of none. */
static void set_fields(input *in, nw_header *h)
{
    uint32_t what = byte(in);
    if (what & 1) h->kind = (uint8_t)(1 + byte(in) % 20);
    if (what & 2) h->step = (uint64_t)(h->step + byte(in) - 2);
    if (what & 4) h->version = (uint64_t)(h->version + byte(in) - 2);
    if (what & 8) h->part = (uint16_t)(byte(in) % 5);
    if (what & 16) h->bucket = byte(in) % 5;
    if (what & 32) h->channel = (uint8_t)(1 + byte(in) % 8);
    if (what & 64) h->until = byte(in);
    if (what & 128) h->codec = (uint8_t)(byte(in) % 5);
}

static void forge(input *in, world *w)
{
    nw_message *m;
    int rank = (int)(byte(in) % 7), to = (int)byte(in) % w->o.members;
    uint32_t bytes = byte(in) % 2 ? word(in) % 256 : 0;
    world_ok(nw_message_take(w->driver->pool, bytes, &m));
    memset(m->payload, (int)byte(in), bytes);
    m->header->kind = 1;
    m->header->channel = NW_CHANNEL_EXCHANGE;
    m->header->count = bytes / 4;
    set_fields(in, m->header);
    hand(w, m, rank, to);
}

/* One thing that should not happen. */
static void damage(input *in, world *w, uint32_t kind)
{
    int from, to;
    nw_message *m = NULL;
    uint32_t which = kind > 1 && kind < 6 ? byte(in) : 0;
    if (kind > 1 && kind < 6 && !(m = copy_of(w, which, kind == 3, &from, &to))) return;
    switch (kind) {
    case 0:
    case 1:
        turn(in, w, kind == 0);
        break;
    case 2: /* comes twice */
        hand(w, m, w->ranks[from], to);
        break;
    case 3: { /* overtakes */
        world_link *link = &w->links[from][to];
        nw_message **first = &link->at[link->first % WORLD_LINK], *earlier = *first;
        replace(w, from, to, true, nw_message_hold(earlier));
        replace(w, from, to, false, m);
        break;
    }
    case 4: /* comes from, or goes to, another */
        hand(w, m, w->ranks[byte(in) % (uint32_t)w->o.members], (int)byte(in) % w->o.members);
        break;
    case 5: /* says something else */
        set_fields(in, m->header);
        hand(w, m, w->ranks[from], to);
        break;
    default:
        forge(in, w);
    }
}

static bool lives(const world *w)
{
    bool all = true;
    for (int i = 0; i < w->o.members; i++) all = all && !w->at[i].dead;
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    input in = {data, data + size};
    world_options o = read_options(&in);
    int moves = 0, damages = 0;
    nw_status status = NW_OK;
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, UNTIL, 0, true));
    while (in.at < in.end && moves < MOVES_MOST) {
        uint32_t what = byte(&in);
        if (what < 128)
            for (uint32_t i = 0; i <= what % 32 && world_step(&w, &status); i++, moves++) answered(status);
        else if (what < 132 && !w.at[(int)what % o.members].dead)
            answered(world_stop(&w, (int)what % o.members));
        else
            damage(&in, &w, what % 7), damages++;
    }
    while (moves++ < MOVES_MOST && world_step(&w, &status)) answered(status);
    bool away = false; /* members of gossip that were dropped although they lived, and would join the next run */
    for (int i = 0; i < o.members; i++) away |= w.dropped[i] && o.exchange.gossip.graph;
    if (damages == 0 && !away) {
        world_require(moves < MOVES_MOST && lives(&w));
        w.o.every = 0; /* a run that was stopped has fewer */
        world_check_quiescent(&w, w.updates);
    }
    world_free(&w);
    nw_graph_free(o.exchange.gossip.graph);
    nw_codec_free((nw_codec *)(uintptr_t)o.with);
    return 0;
}
