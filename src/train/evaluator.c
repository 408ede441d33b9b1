/* evaluator.c - see evaluator.h. */
#include "train/evaluator.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct nw_evaluator {
    nw_evaluator_options options;
    nw_net *net;
    size_t floats, buffers;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    nw_case *first, **last; /* handed over and not taken back; the caller's thread alone links and unlinks them */
    bool ends;
    nw_status status; /* of an evaluation that failed */
    char message[512];
};

static bool is_asked_to_stop(const nw_evaluator *j) { return j->options.stop && *j->options.stop; }

/* ---- evaluating -------------------------------------------------------------------------------------------------- */

/* *complete is false if it was asked to stop. */
static nw_status evaluate(nw_evaluator *j, nw_case *c, bool *complete)
{
    const nw_evaluator_options *o = &j->options;
    nw_params *p = &j->net->model.params;
    nw_loader *loaders[] = {o->test, o->validation, o->train_eval};
    nw_tally *tallies[] = {&c->results.test, &c->results.validation, &c->results.train};
    memcpy(p->values, c->values, j->floats * sizeof *p->values);
    if (j->buffers > 0) memcpy(p->buffers, c->buffers, j->buffers * sizeof *p->buffers);
    if (o->recalibrate && j->buffers > 0)
        NW_TRY(nw_measure_statistics(j->net, o->recalibrate, c->record.epoch, o->recalibrate_batches));
    if (j->buffers > 0) memcpy(c->evaluated_buffers, p->buffers, j->buffers * sizeof *p->buffers);
    *complete = true;
    for (int i = 0; i < 3 && *complete; i++)
        if (loaders[i]) NW_TRY(nw_evaluate(j->net, loaders[i], o->both_views, o->stop, tallies[i], complete));
    return NW_OK;
}

/* The first that is not done. */
static nw_case *next_case(const nw_evaluator *j)
{
    nw_case *c = j->first;
    while (c && c->done) c = c->next;
    return c;
}

/* All that wait, one after the other, until the evaluator is asked to stop. Called with the lock, which others get
 * meanwhile. */
static void evaluate_all(nw_evaluator *j)
{
    nw_case *c;
    while (!j->ends && j->status == NW_OK && !is_asked_to_stop(j) && (c = next_case(j))) {
        bool complete = true;
        pthread_mutex_unlock(&j->lock);
        nw_status status = c->evaluated ? evaluate(j, c, &complete) : NW_OK;
        pthread_mutex_lock(&j->lock);
        c->done = status == NW_OK && complete;
        j->status = status;
        if (status != NW_OK) snprintf(j->message, sizeof j->message, "%s", nw_error_message());
        pthread_cond_broadcast(&j->changed);
    }
    pthread_cond_broadcast(&j->changed);
}

static void *work(void *context)
{
    nw_evaluator *j = context;
    pthread_mutex_lock(&j->lock);
    while (!j->ends) {
        evaluate_all(j);
        if (!j->ends) pthread_cond_wait(&j->changed, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* ---- handing over and taking back -------------------------------------------------------------------------------- */

void nw_case_free(nw_case *c)
{
    if (!c) return;
    free(c->values);
    free(c->buffers);
    free(c);
}
static void autofree_case(nw_case **c) { nw_case_free(*c); }

nw_status nw_evaluator_open(nw_evaluator *j, bool evaluate_it, nw_case **opened)
{
    NW_CLEANUP(autofree_case) nw_case *c = calloc(1, sizeof *c);
    NW_FAIL_IF(!c, NW_E_MEMORY, "no memory for the record of an epoch");
    nw_record_clear(NW_RECORD_EPOCH, &c->record);
    c->evaluated = evaluate_it;
    if (evaluate_it) {
        NW_NEW(c->values, j->floats + 1, "a copy of %zu parameters", j->floats);
        NW_NEW(c->buffers, 2 * j->buffers + 1, "a copy of %zu parameters", j->floats);
        c->evaluated_buffers = c->buffers + j->buffers;
    }
    *opened = c;
    c = NULL;
    return NW_OK;
}

static nw_status tell_failure(const nw_evaluator *j)
{
    return NW_FAIL(j->status, "evaluating a copy of the weights: %s", j->message);
}

nw_status nw_evaluator_submit(nw_evaluator *j, nw_case *c)
{
    pthread_mutex_lock(&j->lock);
    c->next = NULL;
    *j->last = c;
    j->last = &c->next;
    if (j->running)
        pthread_cond_broadcast(&j->changed);
    else
        evaluate_all(j);
    nw_status status = j->status;
    pthread_mutex_unlock(&j->lock);
    return status == NW_OK ? NW_OK : tell_failure(j);
}

nw_status nw_evaluator_take(nw_evaluator *j, int64_t wait_ns, nw_case **done)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    int64_t ns = end.tv_nsec + wait_ns;
    end.tv_sec += ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&j->lock);
    bool late = wait_ns <= 0;
    while (!late && j->running && j->first && !j->first->done && j->status == NW_OK && !is_asked_to_stop(j))
        late = pthread_cond_timedwait(&j->changed, &j->lock, &end) != 0;
    nw_status status = j->status;
    nw_case *c = status == NW_OK && j->first && j->first->done ? j->first : NULL;
    if (c) j->first = c->next;
    if (!j->first) j->last = &j->first;
    pthread_mutex_unlock(&j->lock);
    *done = c;
    return status == NW_OK ? NW_OK : tell_failure(j);
}

const nw_case *nw_evaluator_first(const nw_evaluator *j) { return j->first; }

/* ---- life -------------------------------------------------------------------------------------------------------- */

void nw_evaluator_free(nw_evaluator *j)
{
    if (!j) return;
    if (j->running) {
        pthread_mutex_lock(&j->lock);
        j->ends = true;
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
        pthread_join(j->thread, NULL);
    }
    for (nw_case *c = j->first, *next; c; c = next) {
        next = c->next;
        nw_case_free(c);
    }
    nw_net_free(j->net);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j);
}

static void autofree(nw_evaluator **evaluator) { nw_evaluator_free(*evaluator); }

nw_status nw_evaluator_create(nw_evaluator **out, const nw_evaluator_options *o)
{
    *out = NULL;
    NW_CLEANUP(autofree) nw_evaluator *j = calloc(1, sizeof *j);
    NW_FAIL_IF(!j, NW_E_MEMORY, "no memory for evaluations");
    j->options = *o;
    j->floats = o->like->model.params.learned.floats;
    j->buffers = o->like->model.params.running.floats;
    j->last = &j->first;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    nw_net_parts parts = {0};
    NW_TRY(o->background ? nw_net_create_from(&j->net, &o->like->options, &parts)
                         : nw_net_create_sibling(&j->net, o->like, &parts));
    j->running = o->background && nw_thread_start(&j->thread, "evaluator", 0, work, j) == 0;
    NW_FAIL_IF(o->background && !j->running, NW_E_MEMORY, "cannot start a thread for evaluations in the background");
    *out = j;
    j = NULL;
    return NW_OK;
}
