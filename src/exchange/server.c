/*
 * server.c - the parameter server: ranks that own the parameters, and workers that compute gradients for them without
 * waiting for each other.
 *
 * Asynchronous (APAM's Algorithm 1, from the master's view), for k = 1, 2, ...: a gradient g arrives from any worker,
 * computed from parameters of an earlier version, and
 *
 *   x(k + 1) = U(x(k), c g)          c = 1, or less for old gradients (below)
 *
 * where U is the optimizer's update. Then that worker gets x(k + 1) and a credit for one more gradient. With two
 * credits (`in_flight`) it computes the next gradient while the last one is being sent. Synchronous: an update uses the
 * mean of one gradient of each worker, added in the order of ranks.
 *
 * The server gives exactly as many credits as the remaining updates need, so that there are no surplus gradients and no
 * barriers: fast workers get more to do. At the end of a run, when every credit has been used, all workers get the last
 * parameters. So when quiescent all replicas are equal, bit for bit.
 *
 * Messages carry versions. The delay of a gradient is the number of updates made since its parameters.
 *
 *   max_staleness N, wait     no update is made that would make another gradient miss more than N: see credits.h
 *   max_staleness N, drop     a gradient that missed more is discarded, and its credit is given again
 *   max_staleness N, weight   c = (N + 1) / (delay + 1) for a gradient that missed more
 *   correction inverse        c = 1 / (delay + 1)
 *   correction dc             g + lambda g g (x - x_old): delay compensation (Zheng et al. 2017)
 *   memory_bytes B            no more credits are outstanding than gradients fit: see server_clients.c
 *
 * If there are several servers, each owns a range of the parameters; server 0 gives the credits and decides in which
 * order gradients are applied, so that all ranges have the same history (server_updates.c). Snapshots of all parameters
 * are collected at server 0 while training goes on (server_copies.c). A server may be a worker, too: then its own
 * messages go through the same functions, but not through the driver.
 *
 * A worker that has something to do and sends nothing for `deadline_ns` is dropped, and its work goes to others; it may
 * join again (server_clients.c).
 *
 * server_private.h lists messages and state.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of messages ------------------------------------------------------------------------------------------- */

nw_status nw_shards_make(shards *p, int count)
{
    *p = (shards){.at = calloc((size_t)count, sizeof(nw_message *))};
    NW_FAIL_IF(!p->at, NW_E_MEMORY, "no memory for a list of %d messages", count);
    return NW_OK;
}

void nw_shards_drop(shards *p, int count)
{
    for (int i = 0; p->here > 0 && i < count; i++) {
        if (p->at[i]) nw_message_drop(p->at[i]);
        p->at[i] = NULL;
    }
    p->here = 0;
}

void nw_shards_free(shards *p, int count)
{
    if (p->at) nw_shards_drop(p, count);
    free(p->at);
    *p = (shards){0};
}

nw_status nw_shards_add(shards *p, int index, nw_message *m)
{
    const nw_header *h = m->header;
    NW_FAIL_IF(p->at[index] || (p->here > 0 && p->version != (int64_t)h->version), NW_E_MESSAGE,
               "rank %u sent bucket %u of version %" PRIu64 " twice, or in the middle of version %" PRId64, h->from,
               h->bucket, h->version, p->version);
    p->version = (int64_t)h->version;
    p->at[index] = nw_message_hold(m);
    p->here++;
    return NW_OK;
}

/* ---- making and reading messages --------------------------------------------------------------------------------- */

static nw_status take_message(server *s, nw_actions *actions, nw_message *m, int from);

static bool has_values(int kind) { return kind == GRADIENT || kind == MODEL || kind == COPY; }

nw_status nw_server_send(server *s, nw_actions *actions, int to, nw_message *m)
{
    if (to != s->base.group.me) {
        if (s->o.stats && has_values(m->header->kind)) s->o.stats->sent_floats += m->header->count;
        nw_machine_send(&s->base, actions, CHANNEL, to, m);
        return NW_OK;
    }
    m->header->channel = CHANNEL;
    nw_status status = take_message(s, actions, m, to);
    nw_message_drop(m);
    return status;
}

static void fill_header(const server *s, nw_message *m, int kind, int64_t step, int64_t version)
{
    m->header->kind = (uint8_t)kind;
    m->header->codec = NW_CODEC_NONE;
    m->header->from = s->base.group.ranks[s->base.group.me];
    m->header->step = (uint64_t)step;
    m->header->version = (uint64_t)version;
}

nw_status nw_server_make_message(const server *s, nw_actions *actions, int kind, size_t bytes, int64_t step,
                                 int64_t version, nw_message **out)
{
    NW_TRY(nw_message_take(actions->pool, bytes, out));
    fill_header(s, *out, kind, step, version);
    return NW_OK;
}

nw_status nw_server_tell(server *s, nw_actions *actions, int to, int kind, int64_t number, int64_t version)
{
    nw_message *m;
    NW_TRY(nw_server_make_message(s, actions, kind, 0, number, version, &m));
    return nw_server_send(s, actions, to, m);
}

nw_status nw_server_encode_own(server *s, nw_actions *actions, int kind, nw_plain plain, int bucket, int64_t version,
                               nw_message **out)
{
    *out = NULL;
    if (floats_of(s, shard_of(s, (uint32_t)bucket, s->base.group.me)) == 0) return NW_OK;
    nw_moment when = {.step = version, .clock = version * s->o.accumulation, .version = version};
    NW_TRY(nw_channel_encode(&s->down, actions, bucket, when, s->params->values, -1, plain, out));
    (*out)->header->kind = (uint8_t)kind;
    (*out)->header->from = s->base.group.ranks[s->base.group.me];
    return NW_OK;
}

nw_status nw_server_encode_model(server *s, nw_actions *actions, nw_plain plain, int64_t version, shards *to)
{
    nw_status status = NW_OK;
    to->version = version;
    for (int b = 0; b < s->layout.count && status == NW_OK; b++) {
        nw_message *m;
        status = nw_server_encode_own(s, actions, MODEL, plain, b, version, &m);
        if (status != NW_OK || !m) continue;
        to->at[shard_of(s, (uint32_t)b, s->base.group.me)] = m;
        to->here++;
    }
    if (status != NW_OK) nw_shards_drop(to, s->shard_count);
    return status;
}

nw_status nw_server_decode(server *s, nw_actions *actions, const nw_message *m, float *out, nw_where where, bool add)
{
    nw_channel *channel = m->header->kind == GRADIENT ? &s->up : &s->down;
    return nw_channel_decode(channel, actions, m, nw_group_find(&s->base.group, m->header->from), out, where, add);
}

nw_status nw_server_decode_all(server *s, nw_actions *actions, const shards *from, float *vector, bool add)
{
    for (int i = 0; i < s->shard_count; i++)
        if (from->at[i]) NW_TRY(nw_server_decode(s, actions, from->at[i], vector, NW_AT_FIRST, add));
    return NW_OK;
}

/* ---- received messages ------------------------------------------------------------------------------------------- */

/* Whether a kind of message is for workers; all others are for servers. */
static bool is_for_worker(int kind)
{
    return kind == MODEL || kind == CREDIT || kind == OVER || kind == DROPPED || kind == REFUSED;
}

/* Who may send a kind of message: workers, server 0 only, any server, any member. */
typedef enum sender { OF_WORKER, OF_FIRST, OF_SERVER, OF_ANY } sender;
static sender sender_of(int kind)
{
    switch (kind) {
    case GRADIENT:
    case REPORT:
    case JOIN:
        return OF_WORKER;
    case MODEL:
    case OVER:
    case COPY:
    case APPLIED:
        return OF_SERVER;
    case STOP:
        return OF_ANY;
    default:
        return OF_FIRST;
    }
}

/* Checks that the sender's and the receiver's roles fit the kind of message. */
static nw_status check_roles(const server *s, const nw_header *h, int from)
{
    static const char *const names[] = {"worker", "first server", "server", "member"};
    sender who = sender_of(h->kind);
    bool may = who == OF_WORKER   ? from >= s->first_worker
               : who == OF_FIRST  ? from == 0
               : who == OF_SERVER ? from < s->servers
                                  : true;
    bool to_worker = is_for_worker(h->kind);
    NW_FAIL_IF(!(to_worker ? s->receives : s->serves), NW_E_MESSAGE,
               "rank %u sent a message of kind %u to rank %d, which is not a %s", h->from, h->kind,
               s->base.group.ranks[s->base.group.me], to_worker ? "worker" : "server");
    NW_FAIL_IF(!may, NW_E_MESSAGE, "rank %u sent a message of kind %u, but is not a %s", h->from, h->kind, names[who]);
    return NW_OK;
}

static nw_status check_message(const server *s, const nw_header *h, int from)
{
    NW_FAIL_IF(h->channel != CHANNEL || h->kind < GRADIENT || h->kind >= KINDS, NW_E_MESSAGE,
               "rank %u sent a message of kind %u, which a parameter server does not know; give all ranks the same "
               "--exchange",
               h->from, h->kind);
    NW_TRY(check_roles(s, h, from));
    NW_FAIL_IF(h->version > (uint64_t)INT64_MAX / 2 || h->step > (uint64_t)INT64_MAX / 2, NW_E_MESSAGE,
               "rank %u sent a message with impossible numbers: version %" PRIu64 ", step %" PRIu64, h->from,
               h->version, h->step);
    if (!has_values(h->kind)) return NW_OK;
    NW_TRY(nw_channel_check(&s->up, h));
    NW_FAIL_IF((int)h->part != (h->kind == GRADIENT ? s->base.group.me : from), NW_E_MESSAGE,
               "rank %u sent part %u of bucket %u, which does not belong to %s", h->from, h->part, h->bucket,
               h->kind == GRADIENT ? "this server" : "the sender");
    return NW_OK;
}

static nw_status take_message(server *s, nw_actions *actions, nw_message *m, int from)
{
    NW_TRY(check_message(s, m->header, from));
    return is_for_worker(m->header->kind) ? nw_worker_receive(s, actions, m, from)
                                          : nw_updates_receive(s, actions, m, from);
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

static nw_status go_on(server *s, nw_actions *actions)
{
    if (s->serves) NW_TRY(nw_updates_go_on(s, actions));
    return s->works ? nw_worker_go_on(s, actions) : NW_OK;
}

static nw_status go(server *s, nw_actions *actions, const nw_go *go)
{
    s->snapshots = go->snapshots;
    s->snapshot_count = go->snapshot_count;
    if (s->receives) { /* before the server's side, which may give work at once */
        s->worker.active = true;
        for (int i = 0; i < s->servers; i++) s->worker.from[i].over = !s->works && i == s->base.group.me;
    }
    return s->serves ? nw_updates_go(s, actions, go->until) : NW_OK;
}

/* Only server 0 decides where the run ends. */
static nw_status stop(server *s, nw_actions *actions)
{
    if (s->base.group.me == 0) {
        nw_updates_stop(s);
        return NW_OK;
    }
    return s->receives && s->worker.active ? nw_server_tell(s, actions, 0, STOP, 0, 0) : NW_OK;
}

static nw_status task_done(server *s, nw_actions *actions, const nw_task *task)
{
    return task->kind == NW_TASK_GRADIENT ? nw_worker_computed(s, actions) : nw_updates_applied(s, actions);
}

static nw_status take_event(server *s, const nw_event *event, nw_actions *actions)
{
    int from;
    switch (event->kind) {
    case NW_EVENT_GO:
        return go(s, actions, event->go);
    case NW_EVENT_STOP:
        return stop(s, actions);
    case NW_EVENT_FINAL:
        return nw_worker_send(s, actions, event->first);
    case NW_EVENT_DONE:
        return task_done(s, actions, event->task);
    case NW_EVENT_MESSAGE:
        NW_TRY(nw_machine_sender(&s->base, event->message, &from));
        return take_message(s, actions, event->message, from);
    case NW_EVENT_TIMER:
        return nw_clients_timed_out(s, actions);
    default:
        return NW_OK;
    }
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    server *s = (server *)m;
    s->now_ns = event->now_ns;
    NW_TRY(take_event(s, event, actions));
    if (event->kind == NW_EVENT_FINAL) return NW_OK;
    NW_TRY(go_on(s, actions));
    m->updates = s->serves ? s->master.version : s->worker.from[0].version;
    return NW_OK;
}

static bool is_quiescent(const nw_machine *machine)
{
    const server *s = (const server *)machine;
    const master *m = &s->master;
    bool serving = s->serves && (m->active || m->applying || m->queue_count > 0 || m->copying > 0);
    return !serving && !(s->receives && s->worker.active);
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const server *s = (const server *)m;
    if (s->serves && s->master.copying > 0 && (!s->master.active || nw_copies_hold(s)))
        nw_copies_waits(s, wait);
    else if (s->serves)
        nw_clients_waits(s, wait);
    if (wait->count > 0 || !s->receives || !s->worker.active) {
        if (wait->count == 0) snprintf(wait->what, sizeof wait->what, "nothing");
        return;
    }
    for (int i = 0; i < s->servers; i++)
        if (i != s->base.group.me && !s->worker.from[i].over) nw_wait_add(wait, &s->base.group, i);
    snprintf(wait->what, sizeof wait->what, "their parameters (this rank has begun %" PRId64 " gradients)",
             s->worker.begun);
}

/* What is kept between runs: the number of updates, the gradients that a worker has computed, and error memories, which
 * only workers have: synchronous updates take the mean over workers, asynchronous ones each gradient for itself. */
static void state(nw_machine *m, nw_state *out)
{
    server *s = (server *)m;
    int first = out->count;
    nw_state_integer(out, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(out, "thrown_away", NW_STATE_KEPT, &s->master.thrown_away);
    nw_state_integer(out, "gradients", NW_STATE_OWN, &s->worker.begun);
    nw_state_integer(out, "first_worker", NW_STATE_KEPT, &s->saved_first);
    if (out->count > 0) out->at[out->count - 1].optional = true;
    nw_channel_state(&s->up, out);
    for (int i = first; i < out->count; i++) {
        if (out->at[i].rule != NW_STATE_DELIVERED) continue;
        out->at[i].mean = s->sync;
        out->at[i].from = s->first_worker;
        out->at[i].was_from = (int)s->was_first;
    }
}

static nw_status loaded(nw_machine *m)
{
    server *s = (server *)m;
    int64_t version = m->updates;
    NW_FAIL_IF(version < 0 || version > INT64_MAX / 4, NW_E_FILE,
               "the checkpoint's state of the parameter server is impossible: %" PRId64
               " updates; use an earlier checkpoint",
               version);
    NW_FAIL_IF(s->saved_first < 0 || s->saved_first > INT16_MAX, NW_E_FILE,
               "the checkpoint holds workers from rank %" PRId64 " on, which is impossible; use an earlier one",
               s->saved_first);
    s->was_first = s->saved_first;
    s->saved_first = s->first_worker;
    for (int i = 0; s->receives && i < s->servers; i++) s->worker.from[i].version = version;
    s->master.version = s->master.serial = version;
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void server_free(nw_machine *m)
{
    server *s = (server *)m;
    nw_worker_free(s);
    if (s->serves) nw_updates_free(s);
    nw_shadows_free(s);
    nw_clients_free(s);
    nw_channel_free(&s->up);
    nw_channel_free(&s->down);
    nw_layout_free(&s->layout);
    free(s->by_cut);
    free(s->of_server);
    free(s->range);
    free(s);
}

int nw_server_servers(const nw_exchange_options *o) { return o->servers > 0 ? o->servers : 1; }
static int in_flight_of(const nw_exchange_options *o) { return o->in_flight > 0 ? o->in_flight : o->sync ? 1 : 2; }
static bool servers_compute(const nw_exchange_options *o) { return o->server_computes || o->group.count == 1; }

int nw_server_workers(const nw_exchange_options *o)
{
    return servers_compute(o) ? o->group.count : o->group.count - nw_server_servers(o);
}

size_t nw_server_holds(const nw_exchange_options *o, size_t floats)
{
    size_t one = floats / (size_t)nw_server_servers(o) * sizeof(float);
    size_t all = one * (size_t)nw_server_workers(o) * (size_t)in_flight_of(o);
    size_t most = o->memory_bytes > one ? o->memory_bytes : one;
    return o->memory_bytes > 0 && most < all ? most : all;
}

static nw_status check_options(const nw_exchange_options *o)
{
    int servers = nw_server_servers(o);
    NW_FAIL_IF(servers > o->group.count || nw_server_workers(o) < 1, NW_E_ARGUMENT,
               "%d servers in a world of %d ranks leave no worker; use fewer servers, or --server-computes", servers,
               o->group.count);
    NW_FAIL_IF(o->in_flight < 0 || o->in_flight > IN_FLIGHT_MOST, NW_E_ARGUMENT,
               "--in-flight is %d; a worker can have 1 to %d gradients in flight", o->in_flight, IN_FLIGHT_MOST);
    NW_FAIL_IF(o->sync && o->in_flight > 1, NW_E_ARGUMENT,
               "with a synchronous server each worker has one gradient in flight; leave out --in-flight, or use "
               "--communication async");
    NW_FAIL_IF(o->sync && (o->max_staleness >= 0 || o->correction != NW_CORRECT_NONE), NW_E_ARGUMENT,
               "with a synchronous server no gradient is stale; --max-staleness and --server-correction are for "
               "--communication async");
    return NW_OK;
}

/* A server makes no means over all workers. So the momentum of dense items, which allreduce computes from means, is
 * computed by each worker. */
static nw_status choose_memory(server *s, nw_layout_options *o)
{
    const nw_memory_ops *ops;
    if (!s->o.memory.name) return NW_OK;
    NW_TRY(nw_memory_find(s->o.memory.name, &ops));
    NW_FAIL_IF(ops->estimates || ops->common, NW_E_ARGUMENT,
               "memory %s needs means over all ranks, which a server does not compute; choose --memory error",
               ops->name);
    NW_FAIL_IF(s->o.memory.clip_norm > 0, NW_E_ARGUMENT,
               "--memory-clip-norm is for --exchange allreduce; choose --clip-norm");
    o->remembers = ops->reduced != NULL;
    return NW_OK;
}

/* Computes each server's range of the vector, and the buckets, which are cut at the bounds of these ranges. */
static nw_status make_layout(server *s)
{
    size_t floats = s->params->learned.floats;
    nw_layout_options o = s->o.layout;
    NW_NEW(s->range, s->servers + 1, "%d servers", s->servers);
    for (int i = 0; i <= s->servers; i++)
        s->range[i] = i == s->servers ? floats : floats / 16 * (size_t)i / (size_t)s->servers * 16;
    o.segments = &s->params->learned;
    o.cuts = s->servers;
    o.bounds = s->range;
    o.collective = NW_COLLECTIVE_OWNERS; /* servers own ranges */
    NW_TRY(choose_memory(s, &o));
    NW_TRY(nw_layout_make(&s->layout, &o));
    NW_TRY(nw_layout_check_memory(&s->layout, &s->o.memory));
    for (int b = 0; b < s->layout.count; b++)
        NW_FAIL_IF(s->layout.at[b].summed, NW_E_ARGUMENT,
                   "codec %s needs means over all ranks, which a server does not compute; choose --exchange allreduce",
                   s->layout.at[b].block.codec->ops->name);
    s->exact = true;
    for (int b = 0; b < s->layout.count; b++) s->exact &= s->layout.at[b].block.codec->exact;
    s->shadowed = nw_shadows_needed(s);
    s->returns = !s->exact && s->o.memory.name && strcmp(s->o.memory.name, "none") != 0;
    return NW_OK;
}

static nw_status count_shards(server *s)
{
    NW_NEW(s->by_cut, s->servers, "%d servers", s->servers);
    NW_NEW(s->of_server, s->servers, "%d servers", s->servers);
    s->shard_count = s->layout.count * s->servers;
    for (int i = 0; i < s->shard_count; i++) s->of_server[server_of(s, i)] += floats_of(s, i) > 0;
    for (int i = 0; i < s->servers; i++) {
        NW_FAIL_IF(s->of_server[i] == 0, NW_E_ARGUMENT, "%zu parameters are too few for %d servers; use fewer servers",
                   s->params->learned.floats, s->servers);
        s->present += s->of_server[i];
    }
    return NW_OK;
}

/* Computes how many uncompressed gradients fit into the memory that a server may use. */
static void find_room(server *s)
{
    size_t most = 0, slots = (size_t)s->workers * (size_t)s->o.in_flight * (s->servers > 1 ? 2 : 1);
    for (int i = 0; i < s->servers; i++) {
        size_t bytes = (s->range[i + 1] - s->range[i]) * sizeof(float) + (size_t)s->of_server[i] * NW_HEADER_BYTES;
        if (i == 0) bytes += NW_HEADER_BYTES + s->o.report_bytes;
        if (bytes > most) most = bytes;
    }
    size_t fit = s->o.memory_bytes / most;
    s->room = s->o.memory_bytes == 0 || fit >= slots ? INT_MAX : fit > 0 ? (int)fit : 1;
}

static nw_status make_channels(server *s)
{
    nw_channel_options c = {.layout = &s->layout,
                            .memory = s->o.memory,
                            .name = "memory",
                            .number = CHANNEL,
                            .member = s->base.group.me,
                            .rank = s->base.group.ranks[s->base.group.me],
                            .only = -1,
                            .stats = s->o.stats,
                            .pool = s->o.pool};
    NW_TRY(nw_channel_make(&s->up, &c));
    if (s->o.stats) s->o.stats->memory = s->up.memory;
    c.memory = (nw_memory_options){0};
    c.number = CHANNEL + 1;
    c.only = s->serves ? s->base.group.me : -1;
    return nw_channel_make(&s->down, &c);
}

static nw_status make_server(server *s)
{
    NW_TRY(make_layout(s));
    NW_TRY(count_shards(s));
    find_room(s);
    NW_TRY(make_channels(s));
    if (s->serves) NW_TRY(nw_clients_make(s));
    if (s->serves) NW_TRY(nw_shadows_make(s));
    if (s->serves) NW_TRY(nw_updates_make(s));
    return s->receives ? nw_worker_make(s) : NW_OK;
}

nw_status nw_server_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"server", handle, is_quiescent, waits, state, server_free, loaded};
    NW_TRY(check_options(o));
    server *s = calloc(1, sizeof *s);
    NW_FAIL_IF(!s, NW_E_MEMORY, "no memory for an exchange");
    s->o = *o;
    s->o.in_flight = in_flight_of(o);
    s->params = o->params;
    s->servers = nw_server_servers(o);
    s->first_worker = servers_compute(o) ? 0 : s->servers;
    s->workers = nw_server_workers(o);
    s->was_first = s->saved_first = s->first_worker;
    s->serves = o->group.me < s->servers;
    s->works = o->group.me >= s->first_worker;
    s->receives = s->works || s->servers > 1;
    s->sync = o->sync;
    s->base = (nw_machine){.ops = &ops, .group = o->group, .equal = true, .drops = o->deadline_ns > 0};
    NW_TRY_OR(make_server(s), server_free(&s->base));
    if (s->serves) {
        s->base.first = s->range[o->group.me];
        s->base.count = s->range[o->group.me + 1] - s->range[o->group.me];
    }
    *out = &s->base;
    return NW_OK;
}
