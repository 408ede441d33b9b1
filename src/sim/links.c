/*
 * links.c - messages through the queues of a virtual network; links.h has the equations.
 *
 * A resource that pairs share keeps the intervals of time for which it is reserved, disjoint and in order. So the order
 * of calls matters little: a sender that has ten messages queued at its own NIC reserves the tenth receiver's NIC for a
 * later time, and other senders to that receiver use the time before. Intervals that ended before `now` are removed. A
 * resource has room for INTERVALS of them; when it is full, the smallest gap between two is closed, and so lost.
 */
#include "sim/links.h"

#include <stdlib.h>
#include <string.h>

enum { INTERVALS = 128, ROUTE_MOST = 6, STATE_VERSION = 1, STATE_HEADER = 4 };

typedef struct interval {
    int64_t begin, end;
} interval;

typedef struct resource {
    double bandwidth; /* 0: no limit, and nothing is kept */
    int count;
    interval taken[INTERVALS];
} resource;

typedef struct pair {
    int64_t free;    /* when its last message is through */
    int64_t arrival; /* of that message */
} pair;

struct nw_links {
    const nw_cluster *cluster;
    const nw_faults *faults;
    pair *pairs; /* [from * world + to] */
    int resource_count;
    resource *resources; /* NICs out and in, trunks up and down, then the links */
};

/* ---- making ---- */

static resource *nic(const nw_links *l, int node, int direction) { return &l->resources[2 * node + direction]; }
static resource *trunk(const nw_links *l, int index, int direction)
{
    return &l->resources[2 * (l->cluster->node_count + index) + direction];
}
static resource *shared_link(const nw_links *l, int index)
{
    return &l->resources[2 * (l->cluster->node_count + l->cluster->switch_count) + index];
}

nw_status nw_links_create(nw_links **links, const nw_cluster *c, const nw_faults *faults)
{
    size_t world = (size_t)c->world;
    *links = NULL;
    nw_links *l = calloc(1, sizeof *l);
    NW_FAIL_IF(!l, NW_E_MEMORY, "no memory left for the links of a virtual cluster");
    l->cluster = c;
    l->faults = faults;
    l->resource_count = 2 * (c->node_count + c->switch_count) + c->link_count;
    l->pairs = calloc(world * world, sizeof *l->pairs);
    l->resources = calloc((size_t)l->resource_count, sizeof *l->resources);
    if (!l->pairs || !l->resources) {
        nw_links_free(l);
        return NW_FAIL(NW_E_MEMORY, "no memory left for the links of %d ranks", c->world);
    }
    for (int i = 0; i < c->node_count; i++) {
        nic(l, i, 0)->bandwidth = c->nodes[i].egress;
        nic(l, i, 1)->bandwidth = c->nodes[i].ingress;
    }
    for (int i = 0; i < c->switch_count; i++) {
        trunk(l, i, 0)->bandwidth = c->switches[i].up;
        trunk(l, i, 1)->bandwidth = c->switches[i].down;
    }
    for (int i = 0; i < c->link_count; i++)
        if (c->links[i].shared) shared_link(l, i)->bandwidth = c->links[i].bandwidth;
    *links = l;
    return NW_OK;
}

void nw_links_free(nw_links *links)
{
    if (!links) return;
    free(links->pairs);
    free(links->resources);
    free(links);
}

/* ---- intervals ---- */

/* The intervals from `from` on move to `to`. */
static void shift(resource *r, int from, int to)
{
    memmove(r->taken + to, r->taken + from, (size_t)(r->count - from) * sizeof r->taken[0]);
    r->count += to - from;
}

static void forget(resource *r, int64_t now)
{
    int past = 0;
    while (past < r->count && r->taken[past].end <= now) past++;
    if (past > 0) shift(r, past, 0);
}

static void remove_gap(resource *r, int before) /* joins the intervals before - 1 and before */
{
    r->taken[before - 1].end = r->taken[before].end;
    shift(r, before + 1, before);
}

static int64_t gap_before(const resource *r, int i) { return r->taken[i].begin - r->taken[i - 1].end; }

/* The first time >= t from which on the resource is free for `length`. */
static int64_t first_gap(const resource *r, int64_t t, int64_t length)
{
    for (int i = 0; i < r->count; i++) {
        if (r->taken[i].end <= t) continue;
        if (nw_time_add(t, length) <= r->taken[i].begin) return t;
        t = r->taken[i].end;
    }
    return t;
}

/* Takes [t, t + length), which first_gap found free. */
static void take_interval(resource *r, int64_t t, int64_t length)
{
    int64_t end = nw_time_add(t, length);
    if (length == 0) return;
    if (r->count == INTERVALS) {
        int smallest = 1;
        for (int i = 2; i < r->count; i++)
            if (gap_before(r, i) < gap_before(r, smallest)) smallest = i;
        bool inside = r->taken[smallest - 1].end <= t && end <= r->taken[smallest].begin;
        remove_gap(r, smallest);
        if (inside) return; /* the gap that was closed is the one to be taken */
    }
    int at = 0;
    while (at < r->count && r->taken[at].begin < t) at++;
    bool joins_before = at > 0 && r->taken[at - 1].end == t, joins_after = at < r->count && r->taken[at].begin == end;
    if (joins_before && joins_after) {
        remove_gap(r, at);
    } else if (joins_before) {
        r->taken[at - 1].end = end;
    } else if (joins_after) {
        r->taken[at].begin = t;
    } else {
        shift(r, at, at + 1);
        r->taken[at] = (interval){t, end};
    }
}

/* ---- sending ---- */

typedef struct route {
    int count;
    resource *at[ROUTE_MOST];
    int64_t length[ROUTE_MOST]; /* what the message takes of each */
    int64_t pair_length;        /* the overhead, and its bytes at the smallest bandwidth of all */
    const nw_cluster_link *link;
} route;

static void add_resource(route *w, resource *r, double bytes, int64_t overhead)
{
    if (!(r->bandwidth > 0)) return;
    int64_t length = nw_time_of_bytes(bytes, r->bandwidth);
    if (length > w->pair_length) w->pair_length = length;
    w->at[w->count] = r;
    w->length[w->count++] = nw_time_add(length, overhead);
}

static route find_route(const nw_links *l, int from, int to, size_t size)
{
    const nw_cluster *c = l->cluster;
    const nw_cluster_link *link = nw_cluster_link_between(c, from, to);
    const int a = c->ranks[from].node, b = c->ranks[to].node;
    const double bytes = (double)size;
    route w = {.link = link, .pair_length = link->copied ? 0 : nw_time_of_bytes(bytes, link->bandwidth)};
    if (link->shared) add_resource(&w, shared_link(l, (int)(link - c->links)), bytes, 0);
    if (a != b) {
        const int up = c->nodes[a].within, down = c->nodes[b].within;
        add_resource(&w, nic(l, a, 0), bytes, link->overhead_ns);
        if (up != down && up >= 0) add_resource(&w, trunk(l, up, 0), bytes, 0);
        if (up != down && down >= 0) add_resource(&w, trunk(l, down, 1), bytes, 0);
        add_resource(&w, nic(l, b, 1), bytes, 0);
    }
    w.pair_length = nw_time_add(w.pair_length, link->overhead_ns);
    return w;
}

int64_t nw_links_send(nw_links *l, int from, int to, size_t bytes, int64_t now, uint64_t sequence)
{
    if (from == to) return now;
    pair *p = &l->pairs[(size_t)from * (size_t)l->cluster->world + (size_t)to];
    const route w = find_route(l, from, to, bytes);
    int64_t start = nw_faults_link_up(l->faults, from, to, now > p->free ? now : p->free);
    int64_t end = start == NW_NEVER ? NW_NEVER : nw_faults_link_finish(l->faults, from, to, start, w.pair_length);
    p->free = end;
    if (end == NW_NEVER) return p->arrival = NW_NEVER; /* what never comes holds nobody up */
    for (int i = 0; i < w.count; i++) {
        forget(w.at[i], now);
        start = first_gap(w.at[i], start, w.length[i]);
        take_interval(w.at[i], start, w.length[i]);
        int64_t through = nw_time_add(start, w.length[i]);
        if (through > end) end = through;
    }
    double jitter = nw_noise_factor(w.link->jitter, l->cluster->seed, NW_NOISE_OF_LINKS, sequence,
                                    (uint32_t)from << 16 | (uint32_t)to);
    int64_t arrival = nw_time_add(end, nw_time_scale(w.link->latency_ns, jitter));
    if (arrival < p->arrival) arrival = p->arrival;
    return p->arrival = arrival;
}

/* ---- the state ----
 *   version, world, resources, pairs that were used
 *   for each of these pairs: its index, free, arrival
 *   for each resource: its intervals' number, then begin and end of each                                            */

static bool is_used(const pair *p) { return p->free != 0 || p->arrival != 0; }

size_t nw_links_state_count(const nw_links *l)
{
    size_t count = STATE_HEADER, pairs = (size_t)l->cluster->world * (size_t)l->cluster->world;
    for (size_t i = 0; i < pairs; i++) count += is_used(&l->pairs[i]) ? 3 : 0;
    for (int i = 0; i < l->resource_count; i++) count += 1 + 2 * (size_t)l->resources[i].count;
    return count;
}

void nw_links_save(const nw_links *l, int64_t *state)
{
    size_t pairs = (size_t)l->cluster->world * (size_t)l->cluster->world;
    int64_t used = 0, *at = state + STATE_HEADER;
    for (size_t i = 0; i < pairs; i++) {
        if (!is_used(&l->pairs[i])) continue;
        used++;
        *at++ = (int64_t)i;
        *at++ = l->pairs[i].free;
        *at++ = l->pairs[i].arrival;
    }
    for (int i = 0; i < l->resource_count; i++) {
        const resource *r = &l->resources[i];
        *at++ = r->count;
        memcpy(at, r->taken, (size_t)r->count * sizeof r->taken[0]);
        at += 2 * r->count;
    }
    state[0] = STATE_VERSION;
    state[1] = l->cluster->world;
    state[2] = l->resource_count;
    state[3] = used;
}

static nw_status no_state(const char *what)
{
    return NW_FAIL(NW_E_FILE,
                   "the saved links of a virtual cluster make no sense: %s; resume with the cluster file that "
                   "the run began with, or use another checkpoint",
                   what);
}

static nw_status load_resource(resource *r, const int64_t *state, size_t count, size_t *used)
{
    if (count < 1 || state[0] < 0 || state[0] > INTERVALS || (size_t)state[0] > (count - 1) / 2)
        return no_state("a queue is cut short");
    r->count = (int)state[0];
    memcpy(r->taken, state + 1, (size_t)r->count * sizeof r->taken[0]);
    for (int k = 0; k < r->count; k++)
        if (r->taken[k].end <= r->taken[k].begin || r->taken[k].begin <= (k ? r->taken[k - 1].end : -1))
            return no_state("times of a queue are not in order");
    *used = 1 + 2 * (size_t)r->count;
    return NW_OK;
}

nw_status nw_links_load(nw_links *l, const int64_t *state, size_t count)
{
    size_t pairs = (size_t)l->cluster->world * (size_t)l->cluster->world, at = STATE_HEADER;
    if (count < STATE_HEADER || state[0] != STATE_VERSION) return no_state("they are of another version");
    if (state[1] != l->cluster->world || state[2] != l->resource_count) return no_state("they are of another cluster");
    if (state[3] < 0 || (size_t)state[3] > pairs || (size_t)state[3] > (count - at) / 3)
        return no_state("they are cut short");
    memset(l->pairs, 0, pairs * sizeof *l->pairs);
    for (int64_t i = 0; i < state[3]; i++, at += 3) {
        if (state[at] < 0 || (uint64_t)state[at] >= pairs || state[at + 1] < 0 || state[at + 2] < 0)
            return no_state("a pair of ranks is out of range");
        l->pairs[state[at]] = (pair){state[at + 1], state[at + 2]};
    }
    for (int i = 0; i < l->resource_count; i++) {
        size_t used = 0;
        NW_TRY(load_resource(&l->resources[i], state + at, count - at, &used));
        at += used;
    }
    return at == count ? NW_OK : no_state("something follows them");
}
