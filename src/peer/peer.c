/*
 * peer.c - the functions that a program calls: see section 4 of nowait.h, and peer.h for what lies below.
 */
#include "peer/peer.h"

#include "base/text.h"
#include "compute/isa.h"
#include "setup/plan.h"
#include "setup/plan_codec.h"

#include <math.h>
#include <stdio.h>

static size_t floats_of(const nw_peer *p) { return p->params.learned.floats; }
static size_t bytes_of(const nw_peer *p) { return floats_of(p) * sizeof(float); }

/* ---- making ------------------------------------------------------------------------------------------------------- */

/* Words between spaces, as a shell would give them. `text` is cut, and the list points into it. */
static nw_status split(char *text, char ***words, int *count)
{
    *count = 0;
    NW_NEW(*words, strlen(text) / 2 + 2, "a list of options");
    for (char *rest = text, *word; (word = strtok_r(rest, " \t\n", &rest));) (*words)[(*count)++] = word;
    return NW_OK;
}

static nw_status read_options(nw_peer *p, const char *text)
{
    NW_AUTOFREE char *copy = NULL;
    NW_AUTOFREE char **words = NULL;
    int count, positional;
    NW_TRY(nw_text_copy(&copy, text ? text : ""));
    NW_TRY(split(copy, &words, &count));
    NW_TRY(nw_options_parse(NW_COMMAND_PEER, count, words, &p->settings, &positional));
    NW_FAIL_IF(positional > 0, NW_E_ARGUMENT, "'%s' is not understood here; options begin with two dashes", words[0]);
    return nw_settings_check(p->settings);
}

/* Those whose tasks the worker of a program can do. */
static bool is_for_programs(const char *exchange)
{
    static const char *const all[] = {"none", "allreduce", "server", "gossip"};
    bool known = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) known |= strcmp(exchange, all[i]) == 0;
    return known;
}

static nw_status plan(nw_peer *p)
{
    const nw_train_options *o = nw_train_options_of(p->settings);
    NW_FAIL_IF(!is_for_programs(o->world.exchange), NW_E_UNSUPPORTED,
               "--exchange %s is for 'nowait train' alone; programs have none, allreduce, server and gossip",
               o->world.exchange);
    bool served = strcmp(o->world.exchange, "server") == 0;
    NW_TRY(nw_plan_check_exchange(o));
    NW_TRY(nw_plan_codecs(&o->codec, o->world.exchange, &o->update, (uint64_t)o->all.seed, &p->codecs));
    NW_TRY(nw_plan_optimizer(&o->update, &p->rule));
    NW_FAIL_IF(served && o->all.max_steps == 0, NW_E_ARGUMENT,
               "a server divides a number of updates among workers; say how many, with --max-steps");
    NW_FAIL_IF(o->codec.warmup_epochs > 0 && o->training.max_batches == 0, NW_E_ARGUMENT,
               "--ratio-warm-up counts epochs; say how many gradients are one, with --max-batches");
    p->codecs.codec.warm_up.batches = o->training.max_batches;
    for (int i = 0; i < p->codecs.rule_count; i++)
        p->codecs.rules[i].codec.warm_up.batches = o->training.max_batches;
    p->rate = o->update.lr;
    p->go = (nw_go){.until = o->all.max_steps > 0 ? o->all.max_steps : NW_PEER_ENDLESS,
                    .batches = INT64_MAX,
                    .drain = true};
    return NW_OK;
}

static void bind(nw_peer *p)
{
    nw_params_bind(&p->params, &p->arena);
    p->seen = nw_arena_alloc(&p->arena, bytes_of(p));
}

static nw_status make(nw_peer *p, const nw_parameter_info *tensors, int count, const char *options)
{
    NW_TRY(read_options(p, options));
    NW_TRY(plan(p));
    NW_TRY(nw_peer_list_tensors(&p->params.learned, tensors, count));
    NW_TRY(nw_assign_make(&p->assignment, &p->codecs, &p->params.learned));
    p->arena = nw_arena_measure();
    bind(p);
    size_t bytes = p->arena.used;
    NW_TRY(nw_arena_create(&p->arena, bytes));
    bind(p);
    NW_TRY(nw_peer_make_optimizer(p));
    NW_TRY(nw_pool_create(&p->pool, nw_train_options_of(p->settings)->all.threads));
    p->exec.pool = p->pool;
    NW_TRY(nw_isa_select(NW_PRECISION_F32, &p->exec.kernels, NULL));
    return nw_peer_call(p, nw_peer_join, NULL);
}

nw_status nw_peer_create(nw_peer **out, const nw_parameter_info *tensors, int count, const char *options, bool threaded)
{
    char reason[1024];
    *out = NULL;
    nw_peer *p = calloc(1, sizeof *p);
    NW_FAIL_IF(!p, NW_E_MEMORY, "no memory for a peer");
    p->threaded = threaded;
    nw_status status = nw_peer_thread_start(p);
    if (status == NW_OK) status = make(p, tensors, count, options);
    if (status == NW_OK) {
        *out = p;
        return NW_OK;
    }
    snprintf(reason, sizeof reason, "%s", nw_error_message());
    p->failure = status;
    nw_peer_free(p);
    return NW_FAIL(status, "%s", reason);
}

void nw_peer_free(nw_peer *p)
{
    if (!p) return;
    int code = p->failure != NW_OK ? nw_status_exit_code(p->failure) : p->begun;
    nw_peer_call(p, nw_peer_leave, &code);
    nw_peer_thread_end(p);
    nw_optimizer_free(p->optimizer);
    if (p->optimizer_arena.base) nw_arena_destroy(&p->optimizer_arena);
    if (p->arena.base) nw_arena_destroy(&p->arena);
    nw_pool_free(p->pool);
    nw_assign_free(&p->assignment);
    nw_graph_free(p->gossip.graph);
    free(p->averaged.with);
    nw_plan_codecs_free(&p->codecs);
    nw_params_free(&p->params);
    nw_settings_free(&p->settings);
    free(p->before);
    free(p->ranks);
    free(p);
}

int nw_peer_rank(const nw_peer *p) { return p->index; }
int nw_peer_size(const nw_peer *p) { return p->size; }

/* Means of gradients are made where all go in step and stay equal. Momentum that a memory keeps is of gradients, not of
 * steps; and where momentum travels instead of gradients, the optimizer must know from when on. */
int nw_peer_ways(const nw_peer *p)
{
    const nw_machine *m = p->rank.machine;
    const char *memory = p->codecs.memory.name ? p->codecs.memory.name : "";
    bool served = m->equal && !m->lockstep, travels = strcmp(memory, "momentum") == 0;
    bool means = m->equal && m->lockstep && !travels;
    bool merges = !served && !travels && strcmp(memory, "dgc") != 0;
    return NW_PEER_UPDATE | (means ? NW_PEER_REDUCE : 0) | (merges ? NW_PEER_MERGE : 0);
}

const char *nw_peer_note(const nw_peer *p, int index)
{
    return index >= 0 && index < nw_settings_notes(p->settings) ? nw_settings_note(p->settings, index) : NULL;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

/* A failure that the driver has told the others ends everything. */
static nw_status call(nw_peer *p, nw_peer_job job, void *argument)
{
    nw_status status = nw_peer_call(p, job, argument);
    if (status == NW_OK) return NW_OK;
    pthread_mutex_lock(&p->lock);
    if (p->failure == NW_OK) {
        p->failure = status;
        snprintf(p->message, sizeof p->message, "%s", nw_error_message());
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

typedef struct meaning {
    float *vector;
    size_t count;
    bool first_alone; /* what rank 0 has */
} meaning;

static nw_status take_mean(nw_peer *p, void *argument)
{
    const meaning *m = argument;
    NW_AUTOFREE bool *gives = NULL;
    NW_NEW(gives, p->size, "a list of %d ranks", p->size);
    for (int i = 0; i < p->size; i++) gives[i] = i == 0 || !m->first_alone;
    return nw_driver_mean(p->driver, &m->vector, m->count, gives);
}

static nw_status begin_run(nw_peer *p, void *values)
{
    meaning first = {.vector = p->params.values, .count = floats_of(p), .first_alone = true};
    memcpy(p->params.values, values, bytes_of(p));
    NW_TRY(take_mean(p, &first));
    memcpy(values, p->params.values, bytes_of(p));
    NW_TRY(nw_peer_make_machine(p));
    p->ends = p->posted = p->computing = p->empty = false;
    p->gradients = 0;
    nw_peer_log_begin(p);
    nw_status status = nw_driver_begin(p->driver, &p->rank, &p->go);
    p->running = status == NW_OK;
    return status;
}

/* All are quiescent: what replicas have, where they differ. */
static nw_status end_run(nw_peer *p, void *ignored)
{
    meaning all = {.vector = p->params.values, .count = p->rank.machine->equal ? 0 : floats_of(p)};
    (void)ignored;
    NW_TRY(nw_peer_log_flush(p));
    if (all.count > 0) return take_mean(p, &all);
    NW_AUTOFREE int64_t *counts = NULL;
    NW_NEW(counts, p->size, "the counts of %d ranks", p->size);
    NW_TRY(nw_driver_allgather(p->driver, &p->rank.machine->updates, sizeof *counts, counts));
    for (int i = 1; i < p->size; i++)
        NW_FAIL_IF(counts[i] != counts[0], NW_E_MISMATCH,
                   "rank %d ends the run after %lld steps, and rank 0 after %lld; let all programs make as many", i,
                   (long long)counts[i], (long long)counts[0]);
    return NW_OK;
}

/* ---- a run -------------------------------------------------------------------------------------------------------- */

nw_status nw_peer_begin(nw_peer *p, float *values)
{
    NW_TRY(nw_peer_check(p));
    NW_FAIL_IF(p->begun, NW_E_ARGUMENT, "a run is under way; end it with nw_peer_finish");
    p->way = 0;
    p->begun = true;
    NW_TRY(call(p, begin_run, values));
    return nw_peer_wait(p);
}

bool nw_peer_is_over(const nw_peer *p)
{
    nw_peer *shared = (nw_peer *)p; /* the lock is nothing that a program sees */
    pthread_mutex_lock(&shared->lock);
    bool over = !p->running;
    pthread_mutex_unlock(&shared->lock);
    return over;
}

/* Whether such steps can be made, and here. */
static nw_status check_step(nw_peer *p, nw_peer_way way)
{
    static const char *const names[] = {"", "nw_peer_reduce", "nw_peer_update", "", "nw_peer_merge"};
    const nw_machine *m = p->rank.machine;
    int ways = nw_peer_ways(p);
    NW_TRY(nw_peer_check(p));
    NW_FAIL_IF(!p->begun, NW_E_ARGUMENT, "%s is for a run; begin one with nw_peer_begin", names[way]);
    NW_FAIL_IF(p->way != 0 && p->way != way, NW_E_ARGUMENT,
               "the steps of this run were made with %s, and %s is something else; keep to one of them", names[p->way],
               names[way]);
    NW_FAIL_IF(!(ways & (int)way), NW_E_ARGUMENT, "%s is not possible with --exchange %s --method %s; call %s%s",
               names[way], m->ops->name, nw_train_options_of(p->settings)->codec.method, names[NW_PEER_UPDATE],
               ways & NW_PEER_MERGE    ? " or nw_peer_merge"
               : ways & NW_PEER_REDUCE ? " or nw_peer_reduce"
                                       : "");
    p->way = way;
    return NW_OK;
}

/* Hands over the gradient; the answer goes to `vector`. */
static nw_status step(nw_peer *p, float *vector)
{
    p->gradients++;
    p->there = false;
    p->vector = p->way == NW_PEER_REDUCE ? vector : NULL;
    NW_TRY(nw_peer_post(p, false));
    if (p->way == NW_PEER_REDUCE) return NW_OK;
    memcpy(vector, nw_peer_is_over(p) ? p->params.values : p->seen, bytes_of(p));
    return NW_OK;
}

nw_status nw_peer_reduce(nw_peer *p, float *gradient, bool *there)
{
    bool delayed = nw_train_options_of(p->settings)->world.delay > 0;
    if (there) *there = false;
    NW_FAIL_IF(delayed && !there, NW_E_ARGUMENT,
               "with --delay there is no mean in the first step; ask nw_peer_reduce whether one is there");
    NW_TRY(check_step(p, NW_PEER_REDUCE));
    if (nw_peer_is_over(p)) return NW_OK;
    memcpy(p->params.gradients, gradient, bytes_of(p));
    NW_TRY(step(p, gradient));
    if (there) *there = p->there;
    return NW_OK;
}

nw_status nw_peer_update(nw_peer *p, const float *gradient, float *values)
{
    NW_TRY(check_step(p, NW_PEER_UPDATE));
    if (nw_peer_is_over(p)) {
        memcpy(values, p->params.values, bytes_of(p));
        return NW_OK;
    }
    memcpy(p->params.gradients, gradient, bytes_of(p));
    return step(p, values);
}

nw_status nw_peer_merge(nw_peer *p, float *values)
{
    NW_TRY(check_step(p, NW_PEER_MERGE));
    if (nw_peer_is_over(p)) {
        memcpy(values, p->params.values, bytes_of(p));
        return NW_OK;
    }
    for (size_t i = 0; i < floats_of(p); i++) p->params.gradients[i] = p->seen[i] - values[i];
    return step(p, values);
}

nw_status nw_peer_finish(nw_peer *p, float *vector, bool *there)
{
    if (there) *there = false;
    NW_TRY(nw_peer_check(p));
    NW_FAIL_IF(!p->begun, NW_E_ARGUMENT, "there is no run that could be finished");
    const nw_machine *m = p->rank.machine;
    bool over = nw_peer_is_over(p);
    NW_FAIL_IF(!over && m->equal && !m->lockstep, NW_E_ARGUMENT,
               "--exchange %s has more work for this rank; go on until nw_peer_is_over says that there is none",
               m->ops->name);
    p->there = false;
    p->vector = p->way == NW_PEER_REDUCE ? vector : NULL;
    if (!over) NW_TRY(nw_peer_post(p, true));
    NW_TRY(call(p, end_run, NULL));
    p->begun = false;
    if (there) *there = p->there;
    if (vector && p->way != NW_PEER_REDUCE) memcpy(vector, p->params.values, bytes_of(p));
    return NW_OK;
}

/* ---- and beside it ------------------------------------------------------------------------------------------------ */

nw_status nw_peer_mean(nw_peer *p, float *vector, size_t count)
{
    meaning all = {.vector = vector, .count = count};
    NW_TRY(nw_peer_check(p));
    NW_FAIL_IF(p->begun, NW_E_ARGUMENT, "means of vectors are made between runs; call nw_peer_finish before");
    return call(p, take_mean, &all);
}

nw_status nw_peer_set_learning_rate(nw_peer *p, double rate)
{
    NW_FAIL_IF(!isfinite(rate) || rate < 0, NW_E_ARGUMENT, "a learning rate is finite and not negative, not %g", rate);
    pthread_mutex_lock(&p->lock);
    p->rate = rate;
    pthread_mutex_unlock(&p->lock);
    return NW_OK;
}

nw_status nw_peer_turn(nw_peer *p)
{
    NW_TRY(nw_peer_check(p));
    if (!p->started && !nw_peer_is_over(p)) nw_peer_take_turn(p);
    return nw_peer_check(p);
}

static nw_status look(nw_peer *p, void *statistics)
{
    *(nw_peer_statistics *)statistics =
        (nw_peer_statistics){.gradients = p->gradients,
                             .averagings = p->averaged.exchanges,
                             .updates = p->rank.machine ? p->rank.machine->updates : 0,
                             .messages_sent = p->messages,
                             .bytes_sent = p->bytes,
                             .delay = p->counted > 0 ? (double)p->delays / (double)p->counted : 0};
    return NW_OK;
}

nw_status nw_peer_look(nw_peer *p, nw_peer_statistics *statistics)
{
    NW_TRY(nw_peer_check(p));
    return nw_peer_call(p, look, statistics);
}
