/*
 * optimizer.c - choosing an update rule, cutting the vectors into pieces, and making steps.
 *
 * The equations are in the rules' files (sgd.c, lars.c, adam.c, apam.c, dgc_sgd.c) and in compute/isa/update.h, which
 * does the work. See rule.h for pieces and tasks.
 */
#include "optim/rule.h"

#include "base/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const nw_rule *const rules[] = {&nw_rule_sgd,  &nw_rule_lars,       &nw_rule_adam,
                                       &nw_rule_apam, &nw_rule_apam_paper, &nw_rule_dgc_sgd};
enum { RULES = sizeof rules / sizeof rules[0] };

/* ---- names and options ------------------------------------------------------------------------------------------- */

nw_optimizer_options nw_optimizer_options_default(const char *name)
{
    nw_optimizer_options o = {.name = name ? name : "sgd",
                              .momentum = 0.9,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 5e-4,
                              .lars_trust = 0.02,
                              .lars_eps = 1e-8,
                              .lars_clip = true};
    for (int i = 0; i < RULES; i++)
        if (nw_name_same(o.name, rules[i]->name)) o.amsgrad = rules[i]->amsgrad;
    return o;
}

nw_status nw_decay_filter_find(const char *name, nw_decay_filter *filter)
{
    static const char *const names[NW_DECAY_FILTERS] = {"all", "no-norm-bias", "no-1d", "no-norm"};
    int index;
    NW_TRY(nw_name_find("weight-decay filter", name, names, sizeof names[0], NW_DECAY_FILTERS, "", &index));
    *filter = (nw_decay_filter)index;
    return NW_OK;
}

static nw_status find_rule(const char *name, const nw_rule **rule)
{
    const char *names[RULES];
    int index;
    for (int i = 0; i < RULES; i++) names[i] = rules[i]->name;
    NW_TRY(nw_name_find("optimizer", name, names, sizeof names[0], RULES, "", &index));
    *rule = rules[index];
    return NW_OK;
}

static nw_status check(const nw_optimizer_options *o, const nw_rule *rule)
{
    NW_FAIL_IF(!(o->weight_decay >= 0 && isfinite(o->weight_decay)), NW_E_ARGUMENT,
               "the weight decay is %g; it must not be negative", o->weight_decay);
    NW_FAIL_IF((int)o->decay_filter < 0 || o->decay_filter >= NW_DECAY_FILTERS, NW_E_ARGUMENT,
               "the weight-decay filter %d does not exist", (int)o->decay_filter);
    NW_FAIL_IF(!(o->clip_norm >= 0 && isfinite(o->clip_norm)), NW_E_ARGUMENT,
               "the norm to clip gradients to is %g; give one above 0, or 0 for none", o->clip_norm);
    NW_FAIL_IF(!(o->clip_value >= 0 && isfinite(o->clip_value)), NW_E_ARGUMENT,
               "the value to clip gradients to is %g; give one above 0, or 0 for none", o->clip_value);
    NW_FAIL_IF(o->clip_norm > 0 && o->clip_value > 0, NW_E_ARGUMENT,
               "gradients can be clipped by norm (%g) or by value (%g), not both; drop one", o->clip_norm,
               o->clip_value);
    NW_FAIL_IF(o->box && rule != &nw_rule_apam_paper, NW_E_ARGUMENT,
               "'%s' does not keep weights in a box; use apam-paper or drop the box", rule->name);
    return rule->check(o);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static bool decays(const nw_segment *s, nw_decay_filter filter)
{
    bool norm = s->role == NW_ROLE_NORM_SCALE || s->role == NW_ROLE_NORM_SHIFT;
    switch (filter) {
    case NW_DECAY_ALL:
        return true;
    case NW_DECAY_NO_NORM_BIAS:
        return !norm && s->role != NW_ROLE_BIAS;
    case NW_DECAY_NO_1D:
        return s->dims != 1;
    case NW_DECAY_NO_NORM:
        return !norm;
    case NW_DECAY_FILTERS:
        break;
    }
    return true;
}

static float decay_of(const nw_optimizer *o, const nw_segment *s)
{
    return decays(s, o->options.decay_filter) ? (float)o->options.weight_decay : 0.0f;
}

/* The end of the run of segments from `first` that may share pieces. */
static int run_end(const nw_optimizer *o, const nw_segments *list, int first)
{
    int end = first + 1;
    while (!o->rule->by_segment && end < list->count && decay_of(o, &list->at[end]) == decay_of(o, &list->at[first]))
        end++;
    return end;
}

/* Cuts all runs, or only counts the pieces if there is no memory for them yet. */
static int cut(nw_optimizer *o, const nw_segments *list)
{
    int count = 0;
    for (int first = 0, end; first < list->count; first = end) {
        end = run_end(o, list, first);
        size_t at = list->at[first].offset, last = list->at[end - 1].offset + list->at[end - 1].count;
        for (size_t size; at < last; at += size, count++) {
            size = last - at < NW_PIECE ? last - at : NW_PIECE;
            if (o->pieces)
                o->pieces[count] = (nw_piece){
                    .offset = at, .count = size, .segment = first, .decay = decay_of(o, &list->at[first]), .trust = 1};
        }
    }
    return count;
}

/* Neighbours up to the size of one full piece make a task. */
static void group(nw_optimizer *o)
{
    size_t size = 0;
    for (int i = 0; i < o->piece_count; i++) {
        if (i == 0 || size + o->pieces[i].count > NW_PIECE) {
            o->tasks[o->task_count++] = i;
            size = 0;
        }
        size += o->pieces[i].count;
    }
    o->tasks[o->task_count] = o->piece_count;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void autofree(nw_optimizer **o) { nw_optimizer_free(*o); }

nw_status nw_optimizer_make(nw_optimizer **optimizer, const nw_optimizer_options *options, const nw_params *params)
{
    *optimizer = NULL;
    NW_CLEANUP(autofree) nw_optimizer *o = calloc(1, sizeof *o);
    NW_FAIL_IF(!o, NW_E_MEMORY, "no memory for an optimizer");
    NW_FAIL_IF(!options->name, NW_E_ARGUMENT, "no optimizer is named; 'sgd' is the usual one");
    NW_TRY(find_rule(options->name, &o->rule));
    NW_TRY(check(options, o->rule));
    o->options = *options;
    o->options.name = o->rule->name;
    o->floats = params->learned.floats;
    o->state_count = o->rule->states(options);
    o->piece_count = cut(o, &params->learned);
    NW_NEW(o->pieces, o->piece_count + 1, "a table of %d pieces", o->piece_count);
    NW_NEW(o->tasks, o->piece_count + 1, "a table of %d pieces", o->piece_count);
    cut(o, &params->learned);
    group(o);
    *optimizer = o;
    o = NULL;
    return NW_OK;
}

void nw_optimizer_free(nw_optimizer *o)
{
    if (!o) return;
    free(o->pieces);
    free(o->tasks);
    free(o);
}

void nw_optimizer_bind(nw_optimizer *o, nw_arena *arena)
{
    for (int i = 0; i < o->state_count; i++) o->state[i] = nw_arena_alloc(arena, o->floats * sizeof(float));
    for (int i = 0; i < 2; i++) o->sums[i] = nw_arena_alloc(arena, (size_t)o->piece_count * sizeof(double));
}

int nw_optimizer_states(const nw_optimizer *o) { return o->state_count; }
nw_optimizer_state nw_optimizer_state_at(const nw_optimizer *o, int index)
{
    return (nw_optimizer_state){o->rule->state_names[index], o->state[index], o->floats};
}
uint64_t *nw_optimizer_steps(nw_optimizer *o) { return &o->steps; }

/* ---- steps ------------------------------------------------------------------------------------------------------- */

typedef struct update_job {
    const nw_optimizer *o;
    const nw_kernels *kernels;
    nw_params *params;
    nw_update_rule rule;
    float gradient_scale;
} update_job;

static void update_visit(void *context, int index, size_t offset, size_t count)
{
    const update_job *job = context;
    const nw_piece *piece = &job->o->pieces[index];
    nw_update_range range = {.w = job->params->values + offset,
                             .g = job->params->gradients + offset,
                             .count = count,
                             .gradient_scale = job->gradient_scale,
                             .weight_decay = piece->bare ? 0.0f : piece->decay,
                             .trust = piece->trust};
    for (int i = 0; i < job->o->state_count; i++) range.state[i] = job->o->state[i] + offset;
    job->kernels->update(&job->rule, &range);
}

static nw_status check_size(const nw_optimizer *o, const nw_params *params)
{
    NW_FAIL_IF(params->learned.floats != o->floats, NW_E_ARGUMENT,
               "the optimizer was made for %zu parameters, not for %zu; make one for this network", o->floats,
               params->learned.floats);
    return NW_OK;
}

/* lars treats segments as wholes. */
static nw_status check_whole(const nw_params *params, nw_stretch stretch)
{
    bool first = false, last = false;
    for (int i = 0; i < params->learned.count; i++) {
        const nw_segment *s = &params->learned.at[i];
        first |= s->offset == stretch.first;
        last |= s->offset + s->count == stretch.last;
    }
    NW_FAIL_IF(!first || !last, NW_E_ARGUMENT,
               "lars updates whole parameters, but the range [%zu, %zu) cuts one; cut between parameters",
               stretch.first, stretch.last);
    return NW_OK;
}

nw_status nw_optimizer_step_range(nw_optimizer *o, nw_exec *exec, nw_params *params, double lr, double gradient_scale,
                                  uint64_t step, size_t first, size_t count)
{
    NW_TRY(check_size(o, params));
    NW_FAIL_IF(first > o->floats || count > o->floats - first, NW_E_ARGUMENT,
               "the range of %zu parameters from %zu does not lie in the %zu that there are", count, first, o->floats);
    NW_FAIL_IF(step == 0, NW_E_ARGUMENT, "updates are counted from 1");
    NW_FAIL_IF(!isfinite(lr) || lr < 0, NW_E_NUMERIC,
               "the learning rate of update %llu is %g; check the schedule, it must be finite and not negative",
               (unsigned long long)step, lr);
    NW_FAIL_IF(!isfinite(gradient_scale), NW_E_NUMERIC, "the gradient of update %llu is scaled by %g",
               (unsigned long long)step, gradient_scale);
    if (count == 0) return NW_OK;
    const nw_stretch stretch = {first, first + count};
    const nw_rule *rule = o->rule;
    if (rule->by_segment) NW_TRY(check_whole(params, stretch));
    if (rule->before) NW_TRY(rule->before(o, exec, params, lr, gradient_scale, stretch));
    update_job job = {.o = o,
                      .kernels = exec->kernels,
                      .params = params,
                      .rule = rule->scalars(&o->options, step, lr),
                      .gradient_scale = (float)gradient_scale};
    job.rule.clip = o->options.clip_value > 0 ? (float)o->options.clip_value : INFINITY;
    nw_pieces_visit(o, exec, stretch, update_visit, &job);
    return NW_OK;
}

nw_status nw_optimizer_step(nw_optimizer *o, nw_exec *exec, nw_params *params, double lr, double gradient_scale)
{
    NW_TRY(check_size(o, params));
    if (o->options.clip_norm > 0) {
        double norm = nw_optimizer_gradient_norm(o, exec, params) * fabs(gradient_scale);
        if (!isfinite(norm))
            return nw_fail_not_finite(params, params->gradients, "gradient", (nw_stretch){0, o->floats});
        gradient_scale *= nw_clip_factor(norm, o->options.clip_norm);
    }
    NW_TRY(nw_optimizer_step_range(o, exec, params, lr, gradient_scale, o->steps + 1, 0, o->floats));
    o->steps++;
    return NW_OK;
}
