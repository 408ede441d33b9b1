/* gossip_ranks.c - see gossip_ranks.h. */
#include "support/gossip_ranks.h"
#include "support/state_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---------------------------------------------------------------------------------------------------- */

gossip_settings gossip_use;
gossip_done_counts gossip_done;
static nw_graph *graph;

void gossip_free_graph(void)
{
    nw_graph_free(graph);
    graph = NULL;
}

/* ---- what happened ----------------------------------------------------------------------------------------------- */

typedef struct happening {
    enum { PASS, PASS_ON, UPDATE, MIXED, SENT, APPROACHED, LENT, COPIED } what; /* PASS_ON: goes on with a gradient */
    int member, with;
    int64_t clock;
    size_t first, count;
    float weight, alpha;
    int64_t change;
    float *apart; /* APPROACHED: what the member had more than the other */
} happening;

enum { MOST = 1 << 18 };
static happening list[MOST];
static int happenings;
static bool in_pass[WORLD_MOST];

static void add(happening h)
{
    world_require(happenings < MOST);
    list[happenings++] = h;
}

/* By lower member, higher member, first element: the half of a pair whose other half has not come yet. */
static struct {
    int member; /* and 1; 0: none */
    float apart[WORLD_FLOATS];
} open_halves[WORLD_MOST][WORLD_MOST][WORLD_MOST];
static size_t firsts[WORLD_MOST]; /* and 1 */

/* What one adds, the other takes away. Buckets are known by where they begin. */
static void check_half(const nw_gossip_note *n, const float *apart)
{
    int low = n->member < n->with ? n->member : n->with, high = n->member < n->with ? n->with : n->member, slot = 0;
    while (slot < WORLD_MOST && firsts[slot] != n->first + 1 && firsts[slot] != 0) slot++;
    world_require(slot < WORLD_MOST);
    firsts[slot] = n->first + 1;
    int *open = &open_halves[low][high][slot].member;
    float *other = open_halves[low][high][slot].apart;
    if (*open != n->with + 1) { /* the other's may be in another process */
        *open = n->member + 1;
        memcpy(other, apart, n->count * sizeof *apart);
        return;
    }
    for (size_t i = 0; i < n->count; i++) world_require(apart[i] == -other[i]);
    *open = 0;
    gossip_done.agreed++;
}

/* A member that has joined again has left its pairs for good. */
static void close_halves(int member)
{
    for (int i = 0; i < WORLD_MOST; i++)
        for (int slot = 0; slot < WORLD_MOST; slot++)
            open_halves[i][member][slot].member = open_halves[member][i][slot].member = 0;
}

static float *find_apart(const nw_gossip_note *n)
{
    float *apart = calloc(n->count, sizeof *apart);
    world_require(apart && n->mine && n->theirs);
    for (size_t i = 0; i < n->count; i++) apart[i] = n->mine[i] - n->theirs[i];
    check_half(n, apart);
    return apart;
}

static void hear(void *context, const nw_gossip_note *n)
{
    static const int what[] = {[NW_GOSSIP_MIXED] = MIXED,
                               [NW_GOSSIP_SENT] = SENT,
                               [NW_GOSSIP_APPROACHED] = APPROACHED,
                               [NW_GOSSIP_LENT] = LENT,
                               [NW_GOSSIP_COPIED] = COPIED};
    (void)context;
    float *apart = n->what == NW_GOSSIP_APPROACHED ? find_apart(n) : NULL;
    add((happening){what[n->what], n->member, n->with, 0, n->first, n->count, n->weight, n->alpha, n->change, apart});
    gossip_done.copied += n->what == NW_GOSSIP_COPIED;
    if (n->what == NW_GOSSIP_COPIED) close_halves(n->member);
    gossip_done.approached += n->what == NW_GOSSIP_APPROACHED;
    gossip_done.amid += n->what == NW_GOSSIP_APPROACHED && in_pass[n->member];
}

static void hear_task(int member, const nw_task *t)
{
    add((happening){.what = t->kind == NW_TASK_UPDATE ? UPDATE
                            : t->adds                 ? PASS_ON
                                                      : PASS,
                    .member = member,
                    .clock = t->clock});
    in_pass[member] = t->kind == NW_TASK_PASS;
}

void gossip_listen(void)
{
    for (int i = 0; i < happenings; i++) free(list[i].apart);
    for (int low = 0; low < WORLD_MOST; low++)
        for (int high = 0; high < WORLD_MOST; high++)
            for (int slot = 0; slot < WORLD_MOST; slot++) open_halves[low][high][slot].member = 0;
    memset(firsts, 0, sizeof firsts);
    happenings = 0;
    gossip_done = (gossip_done_counts){0};
}

void gossip_begun(const world *w, int member) { hear_task(member, &w->at[member].rank.task); }

nw_gossip_options gossip_how(int members)
{
    nw_gossip_options how = gossip_use.how;
    double chi1, chi2;
    if (!graph || nw_graph_members(graph) != members || strcmp(nw_graph_name(graph), gossip_use.graph) != 0) {
        gossip_free_graph();
        world_ok(nw_graph_make(&graph, gossip_use.graph, members, how.seed));
    }
    how.graph = graph;
    how.tap = (nw_gossip_tap){hear, NULL};
    if (!how.acid || how.eta > 0) return how;
    world_ok(nw_graph_constants(graph, how.rate, &chi1, &chi2));
    how.eta = 1 / (2 * sqrt(chi1 * chi2));
    how.alpha = 0.5 * sqrt(chi1 / chi2);
    how.follows = true;
    return how;
}

int64_t gossip_updates(int member)
{
    int64_t updates = 0;
    for (int i = 0; i < happenings; i++) updates += list[i].what == UPDATE && list[i].member == member;
    return updates;
}

int64_t gossip_clock_error(int accumulation)
{
    int64_t updates = 0, most = 0;
    for (int i = 0; i < happenings; i++) {
        if (list[i].what != UPDATE) continue;
        int64_t error = llabs(list[i].clock - (++updates * accumulation - 1));
        if (error > most) most = error;
    }
    return most;
}

/* ---- the twin ---- */

static gossip_twin made;
static float seen[WORLD_MOST][WORLD_FLOATS], gradients[WORLD_MOST][WORLD_FLOATS];
static float lent[2][WORLD_MOST][WORLD_MOST][WORLD_FLOATS];

/* What members sent to each other, the last few times: what is for a member's former life may come after the next. By the
 * first float of a bucket. */
enum { SENDS = 4 };
typedef struct sending {
    int64_t change;
    int number; /* from 1 on; 0: none */
} sending;
static sending sendings[SENDS][WORLD_MOST][WORLD_MOST][WORLD_FLOATS];
static float sent[SENDS][WORLD_MOST][WORLD_MOST][WORLD_FLOATS];

/* Halves of pairs that wait for the other half: the numbers of both sendings. */
static int halves[WORLD_MOST][WORLD_MOST][WORLD_FLOATS][2];
static float alphas[WORLD_MOST][WORLD_MOST][WORLD_FLOATS];
static int numbers[WORLD_MOST][WORLD_MOST][WORLD_FLOATS];
static int broken[WORLD_MOST][WORLD_MOST], lives[WORLD_MOST];

/* The last that was sent, as far as a member that had heard of so many changes took it. */
static int find_sending(int from, int to, size_t first, int64_t change)
{
    int best = -1;
    for (int i = 0; i < SENDS; i++) {
        const sending *s = &sendings[i][from][to][first];
        if (s->number > 0 && s->change <= change && (best < 0 || s->number > sendings[best][from][to][first].number))
            best = i;
    }
    world_require(best >= 0);
    return best;
}

static void send(const happening *h)
{
    const float *x = made.values[h->member], *o = made.other[h->member];
    int oldest = 0;
    for (int i = 1; i < SENDS; i++)
        if (sendings[i][h->member][h->with][h->first].number < sendings[oldest][h->member][h->with][h->first].number)
            oldest = i;
    sendings[oldest][h->member][h->with][h->first] = (sending){h->change, ++numbers[h->member][h->with][h->first]};
    for (size_t i = h->first; i < h->first + h->count; i++)
        sent[oldest][h->member][h->with][i] =
            gossip_use.how.acid && h->weight != 0 ? x[i] + h->weight * (o[i] - x[i]) : x[i];
}

static void update(const world *w, const happening *h)
{
    float *x = made.values[h->member], *o = made.other[h->member], before[WORLD_FLOATS];
    memcpy(before, x, sizeof before);
    world_update(x, gradients[h->member], 0, w->floats, 1.0f, h->clock);
    for (size_t i = 0; i < w->floats; i++) {
        float more = x[i] - before[i], other = o[i];
        o[i] += more;
        made.sum[i] += (double)x[i] - (double)before[i];
        made.other_sum[i] += (double)o[i] - (double)other;
    }
}

static void mix(const happening *h)
{
    for (size_t i = h->first; i < h->first + h->count; i++) {
        float *x = &made.values[h->member][i], *o = &made.other[h->member][i], before = *x, other = *o;
        float d = h->weight * (other - before);
        *x = before + d;
        *o = other - d;
        made.sum[i] += (double)*x - (double)before;
        made.other_sum[i] += (double)*o - (double)other;
    }
}

/* One half of a pair; its other half has the same numbers, and the same alpha, so that x~ loses there what it gains here. */
static void match(int a, int b, size_t first, int own, int theirs, float alpha)
{
    int *mine = halves[a][b][first], *other = halves[b][a][first];
    if (other[0] == theirs && other[1] == own) {
        world_require(alphas[b][a][first] == alpha);
        other[0] = other[1] = 0;
        return;
    }
    broken[a][b] += mine[0] > 0;
    mine[0] = own;
    mine[1] = theirs;
    alphas[a][b][first] = alpha;
}

/* encoded: what travels is not what was to be sent, and what both know is checked elsewhere. */
static void approach(const happening *h, bool encoded)
{
    nw_gossip_options how = gossip_how(nw_graph_members(graph));
    int m = h->member, with = h->with, own = find_sending(m, with, h->first, h->change),
        theirs = find_sending(with, m, h->first, h->change);
    float step = how.step > 0 ? (float)how.step : 1, alpha = step * h->alpha, half = 0.5f * step;
    match(m, with, h->first, sendings[own][m][with][h->first].number, sendings[theirs][with][m][h->first].number,
          h->alpha);
    for (size_t i = h->first; i < h->first + h->count; i++) {
        float apart = sent[own][m][with][i] - sent[theirs][with][m][i];
        if (encoded) apart = h->apart[i - h->first];
        world_require(apart == h->apart[i - h->first]);
        made.values[m][i] -= half * apart;
        made.other[m][i] -= alpha * apart;
    }
}

static void copy(const happening *h)
{
    size_t bytes = h->count * sizeof(float);
    lives[h->member] += h->first == 0;
    memcpy(made.values[h->member] + h->first, lent[0][h->with][h->member] + h->first, bytes);
    memcpy(made.other[h->member] + h->first, lent[1][h->with][h->member] + h->first, bytes);
}

int gossip_broken(int a, int b)
{
    int count = broken[a][b] + broken[b][a];
    for (size_t i = 0; i < WORLD_FLOATS; i++) count += (halves[a][b][i][0] > 0) + (halves[b][a][i][0] > 0);
    return count;
}

int gossip_lives(int member) { return lives[member]; }

const gossip_twin *gossip_recompute(const world *w, int members)
{
    int64_t batches[WORLD_MOST] = {0};
    size_t bytes = w->floats * sizeof(float);
    bool acid = gossip_use.how.acid;
    memset(&made, 0, sizeof made);
    memset(sendings, 0, sizeof sendings);
    memset(numbers, 0, sizeof numbers);
    memset(halves, 0, sizeof halves);
    memset(broken, 0, sizeof broken);
    memset(lives, 0, sizeof lives);
    for (size_t i = 0; i < w->floats; i++) made.sum[i] = made.other_sum[i] = members * (double)world_start(i);
    for (int m = 0; m < members; m++)
        for (size_t i = 0; i < w->floats; i++) made.values[m][i] = made.other[m][i] = world_start(i);
    for (const happening *h = list; h < list + happenings; h++) {
        float *x = made.values[h->member], *o = made.other[h->member];
        switch (h->what) {
        case PASS:
            memcpy(seen[h->member], x, bytes); /* for all batches of the gradient */
            __attribute__((fallthrough));
        case PASS_ON:
            world_gradient(w, h->member, batches[h->member]++, seen[h->member], h->what == PASS_ON,
                           gradients[h->member]);
            break;
        case UPDATE:
            update(w, h);
            break;
        case MIXED:
            mix(h);
            break;
        case SENT:
            send(h);
            break;
        case APPROACHED:
            if (acid) mix(h);
            approach(h, w->o.with || gossip_use.codec);
            break;
        case LENT:
            memcpy(&lent[0][h->member][h->with][h->first], x + h->first, h->count * sizeof *x);
            memcpy(&lent[1][h->member][h->with][h->first], o + h->first, h->count * sizeof *o);
            break;
        case COPIED:
            copy(h);
            break;
        }
    }
    return &made;
}

double gossip_sum_error(const gossip_twin *twin, int members, size_t floats)
{
    double worst = 0;
    for (size_t i = 0; i < floats; i++) {
        double sum = 0, other = 0;
        for (int m = 0; m < members; m++) {
            sum += (double)twin->values[m][i];
            other += (double)twin->other[m][i];
        }
        worst = fmax(worst, fabs(sum - twin->sum[i]));
        if (gossip_use.how.acid) worst = fmax(worst, fabs(other - twin->other_sum[i]));
    }
    return worst;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static const int SEGMENTS[] = {64, 5, 100, 33, 2, 250, 17};
enum { FLOATS = 471, PARTS = 8 };
static const world arithmetic = {.floats = FLOATS, .o.seed = 7};

const world *gossip_arithmetic(void) { return &arithmetic; }

static void look_around(gossip_rank *r, const nw_task *task, nw_announce *announce)
{
    if (r->look) r->look(r, task);
    if (announce) announce->between(announce);
}

/* At the values as they were in the beginning, or at a copy where they may have moved. */
static void pass(gossip_rank *r, nw_task *t, nw_announce *announce)
{
    if (t->copy && !t->adds) memcpy(r->copy, r->values, sizeof r->copy);
    for (int i = 0; i < PARTS; i++) look_around(r, t, announce);
    world_gradient(&arithmetic, r->member, r->batches, t->copy ? r->copy : r->values, t->adds, r->gradients);
    t->clock = r->batches++;
    r->said.count += t->completes;
}

static nw_status do_task(void *worker, nw_task *t, nw_announce *announce)
{
    gossip_rank *r = worker;
    hear_task(r->member, t);
    if (t->kind == NW_TASK_PASS) {
        pass(r, t, announce);
        return NW_OK;
    }
    for (size_t i = 0; i < PARTS; i++) {
        size_t first = t->count * i / PARTS, end = t->count * (i + 1) / PARTS;
        float before[WORLD_FLOATS];
        memcpy(before, t->values + first, (end - first) * sizeof(float));
        world_update(t->values, t->gradient, first, end - first, t->scale, t->clock);
        for (size_t k = first; t->also && k < end; k++) t->also[k] += t->values[k] - before[k - first];
        look_around(r, t, announce);
    }
    return NW_OK;
}

static int find_cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker;
    if (most > 0) ns[0] = task->kind == NW_TASK_PASS ? 1000000 : 60000;
    return 1;
}

static void list_state(void *worker, nw_state *s)
{
    gossip_rank *r = worker;
    nw_state_integer(s, "batches", NW_STATE_LIKE, &r->batches);
    nw_state_tensor(s, "said", NW_STATE_LIKE, NW_STATE_U8, 1, (const int64_t[]){sizeof r->said}, &r->said);
    nw_state_vector(s, "values", NW_STATE_LIKE, r->values, 0, FLOATS);
}

void gossip_make(gossip_rank *r, nw_rank *rank, int members, int me, int accumulation)
{
    static const uint16_t everybody[WORLD_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const nw_worker_ops work = {.run = do_task, .cost = find_cost, .state = list_state};
    static nw_codec *codec;
    if (!codec) world_ok(nw_codec_create(&codec, &(nw_codec_options){.name = "none"}));
    memset(r, 0, sizeof *r);
    r->member = r->said.member = me;
    for (int i = 0, index; i < (int)(sizeof SEGMENTS / sizeof SEGMENTS[0]); i++) {
        char name[] = {'s', (char)('0' + i), 0};
        world_ok(nw_segments_add(&r->params.learned, name, NW_ROLE_LINEAR, i, 1, 1, &SEGMENTS[i], &index));
    }
    r->params.values = r->values;
    r->params.gradients = r->gradients;
    for (size_t i = 0; i < FLOATS; i++) r->values[i] = world_start(i);
    nw_exchange_options o = {.name = "gossip",
                             .group = {everybody, members, me},
                             .params = &r->params,
                             .accumulation = accumulation,
                             .gossip = gossip_how(members),
                             .deadline_ns = gossip_use.deadline_ns,
                             .layout = {.codec = gossip_use.codec ? gossip_use.codec : codec, .bucket_bytes = 800},
                             .report = &r->said,
                             .report_bytes = sizeof r->said};
    nw_machine *exchange;
    world_ok(nw_exchange_create(&exchange, &o));
    world_ok(nw_passes_create(&r->machine, exchange, &r->params, accumulation));
    *rank = (nw_rank){.index = me, .machine = r->machine, .worker = r, .work = &work};
}

void gossip_free(gossip_rank *r)
{
    nw_exchange_free(r->machine);
    nw_params_free(&r->params);
}

void gossip_replace(gossip_rank *r, nw_rank *rank, int members, int accumulation)
{
    static state_store store;
    nw_rank before = *rank;
    void (*look)(gossip_rank *, const nw_task *) = r->look;
    store_add(&store, nw_rank_state(rank));
    gossip_free(r);
    gossip_make(r, rank, members, before.index, accumulation);
    world_ok(store_load(&store, nw_rank_state(rank), 0, 1, NULL));
    store_clear(&store);
    rank->step = before.step;
    rank->sequence = before.sequence;
    r->look = look;
}
