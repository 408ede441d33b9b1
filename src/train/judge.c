/* judge.c - see judge.h. */
#include "train/judge.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    nw_case *first, **last;
} line;

struct nw_judge {
    nw_judge_options options;
    nw_net *net;
    size_t floats, buffers;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    line waiting, done;
    nw_case *spare;
    int under_way; /* handed over and not taken back */
    bool ends;
    nw_status status; /* of an evaluation that failed */
    char message[512];
};

static void line_add(line *l, nw_case *c)
{
    c->next = NULL;
    if (!l->first) l->last = &l->first;
    *l->last = c;
    l->last = &c->next;
}

static nw_case *line_take(line *l)
{
    nw_case *c = l->first;
    if (c) l->first = c->next;
    return c;
}

/* ---- evaluating ------------------------------------------------------------------------------------------------------ */

static nw_status evaluate(nw_judge *j, nw_case *c)
{
    const nw_judge_options *o = &j->options;
    nw_params *p = &j->net->model.params;
    memcpy(p->values, c->values, j->floats * sizeof *p->values);
    if (j->buffers > 0) memcpy(p->buffers, c->buffers, j->buffers * sizeof *p->buffers);
    if (o->recalibrate && j->buffers > 0)
        NW_TRY(nw_measure_statistics(j->net, o->recalibrate, c->record.epoch, o->recalibrate_batches));
    NW_TRY(nw_evaluate(j->net, o->test, o->both_views, NULL, &c->results.test, NULL));
    if (o->validation) NW_TRY(nw_evaluate(j->net, o->validation, o->both_views, NULL, &c->results.validation, NULL));
    if (o->train_eval) NW_TRY(nw_evaluate(j->net, o->train_eval, o->both_views, NULL, &c->results.train, NULL));
    return NW_OK;
}

static void note_failure(nw_judge *j, nw_status status)
{
    if (status == NW_OK || j->status != NW_OK) return;
    j->status = status;
    snprintf(j->message, sizeof j->message, "%s", nw_error_message());
}

static void *work(void *context)
{
    nw_judge *j = context;
    pthread_mutex_lock(&j->lock);
    for (;;) {
        while (!j->ends && !j->waiting.first) pthread_cond_wait(&j->changed, &j->lock);
        if (j->ends) break;
        nw_case *c = line_take(&j->waiting);
        pthread_mutex_unlock(&j->lock);
        nw_status status = c->evaluated ? evaluate(j, c) : NW_OK;
        pthread_mutex_lock(&j->lock);
        note_failure(j, status);
        line_add(&j->done, c);
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* ---- handing over and taking back -------------------------------------------------------------------------------------- */

/* A case that is not used; one with room for a copy, if there is one and it is needed. */
static nw_case *take_spare(nw_judge *j, bool with_room)
{
    pthread_mutex_lock(&j->lock);
    nw_case **at = &j->spare;
    while (*at && (*at)->next && ((*at)->values != NULL) != with_room) at = &(*at)->next;
    nw_case *c = *at;
    if (c) *at = c->next;
    pthread_mutex_unlock(&j->lock);
    return c;
}

nw_status nw_judge_open(nw_judge *j, bool evaluate_it, nw_case **opened)
{
    nw_case *c = take_spare(j, evaluate_it);
    if (!c) c = calloc(1, sizeof *c);
    NW_FAIL_IF(!c, NW_E_MEMORY, "no memory for the record of an epoch");
    if (evaluate_it && !c->values) c->values = calloc(j->floats + 1, sizeof *c->values);
    if (evaluate_it && !c->buffers) c->buffers = calloc(j->buffers + 1, sizeof *c->buffers);
    if (evaluate_it && (!c->values || !c->buffers)) {
        nw_judge_close(j, c);
        return NW_FAIL(NW_E_MEMORY, "no memory for a copy of %zu parameters", j->floats);
    }
    nw_record_clear(NW_RECORD_EPOCH, &c->record);
    c->results = (nw_results){0};
    c->evaluated = evaluate_it;
    c->complete = false;
    c->next = NULL;
    *opened = c;
    return NW_OK;
}

nw_status nw_judge_submit(nw_judge *j, nw_case *c)
{
    j->under_way++;
    if (!j->running) {
        nw_status status = c->evaluated ? evaluate(j, c) : NW_OK;
        line_add(&j->done, c);
        return status;
    }
    pthread_mutex_lock(&j->lock);
    line_add(&j->waiting, c);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return NW_OK;
}

nw_status nw_judge_take(nw_judge *j, bool wait, nw_case **done)
{
    pthread_mutex_lock(&j->lock);
    while (wait && j->running && j->under_way > 0 && !j->done.first && j->status == NW_OK)
        pthread_cond_wait(&j->changed, &j->lock);
    nw_status status = j->status;
    *done = status == NW_OK ? line_take(&j->done) : NULL;
    if (*done) j->under_way--;
    pthread_mutex_unlock(&j->lock);
    NW_FAIL_IF(status != NW_OK, status, "evaluating a copy of the weights: %s", j->message);
    return NW_OK;
}

void nw_judge_close(nw_judge *j, nw_case *c)
{
    pthread_mutex_lock(&j->lock);
    c->next = j->spare;
    j->spare = c;
    pthread_mutex_unlock(&j->lock);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

static void free_list(nw_case *c)
{
    for (nw_case *next; c; c = next) {
        next = c->next;
        free(c->values);
        free(c->buffers);
        free(c);
    }
}

void nw_judge_free(nw_judge *j)
{
    if (!j) return;
    if (j->running) {
        pthread_mutex_lock(&j->lock);
        j->ends = true;
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
        pthread_join(j->thread, NULL);
    }
    free_list(j->waiting.first);
    free_list(j->done.first);
    free_list(j->spare);
    nw_net_free(j->net);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j);
}

/* Signals are for the thread that trains. */
static int start_thread(nw_judge *j)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&j->thread, NULL, work, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

nw_status nw_judge_create(nw_judge **out, const nw_judge_options *o)
{
    *out = NULL;
    nw_judge *j = calloc(1, sizeof *j);
    NW_FAIL_IF(!j, NW_E_MEMORY, "no memory for evaluations");
    j->options = *o;
    j->floats = o->like->model.params.learned.floats;
    j->buffers = o->like->model.params.running.floats;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    nw_net_parts parts = {0};
    nw_status status = o->background ? nw_net_create_from(&j->net, &o->like->options, &parts)
                                     : nw_net_create_sibling(&j->net, o->like, &parts);
    if (status == NW_OK && o->background) {
        j->running = start_thread(j) == 0;
        if (!j->running) status = NW_FAIL(NW_E_MEMORY, "no thread for evaluations in the background");
    }
    if (status != NW_OK) {
        nw_judge_free(j);
        return status;
    }
    *out = j;
    return NW_OK;
}
