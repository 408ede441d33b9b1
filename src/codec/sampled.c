/* sampled.c - see sampled.h. */
#include "codec/sampled.h"

#include "codec/draws.h"

#include <math.h>
#include <string.h>

nw_status nw_sampled_valid(const nw_sampling *s)
{
    NW_FAIL_IF(!(s->ratio > 0 && s->ratio <= 1), NW_E_ARGUMENT,
               "the share of sampled elements is %g; give one above 0 and up to 1", s->ratio);
    NW_FAIL_IF(
        !(s->upper > 1) || !(s->lower > 0 && s->lower < 1) || s->iterations < 0, NW_E_ARGUMENT,
        "a sampled threshold is raised by a factor above 1 and lowered by one between 0 and 1, 0 or more times, not "
        "by %g and %g, %d times",
        s->upper, s->lower, s->iterations);
    return NW_OK;
}

/* As in nw_codec_count: 30 times 0.1 must be 3, not 4. */
static size_t rounded_up(double x) { return (size_t)ceil(x * (1 - 1e-12)); }

nw_sampled_plan nw_sampled_plan_of(const nw_sampling *s, size_t n, double ratio)
{
    size_t share = rounded_up((double)n * s->ratio), few = rounded_up(2 / ratio), least = share > few ? share : few;
    nw_sampled_plan p = {1, n, rounded_up((double)n * ratio)};
    if (s->ratio >= 1 || n <= few) return p;
    p.stride = 32 * rounded_up((double)n / (double)least / 32) + 1;
    while ((p.samples = n / p.stride) < least) p.stride -= 8; /* ends at stride 1: all elements */
    p.rank = rounded_up((double)p.samples * ratio);
    return p;
}

/* Returns how many samples were taken: one more than planned if the random start is small. */
static size_t take_samples(nw_encoding *e, int item, nw_sampled_plan plan, uint32_t *list)
{
    size_t n = nw_select_floats(e->block, item), count = 0;
    nw_rng draws = nw_draws_stream(e->codec, &e->key, e->block->number[item], false);
    nw_sampler s = nw_sampler_make(e, item);
    if (!e->codec->options.sampling.strided)
        for (; count < plan.samples; count++) list[count] = nw_sampler_at(&s, nw_rng_below(&draws, (uint32_t)n));
    else
        for (size_t i = nw_rng_below(&draws, (uint32_t)plan.stride); i < n; i += plan.stride)
            list[count++] = nw_sampler_next(&s, i);
    return count;
}

void nw_sampled_aim(nw_encoding *e, int item)
{
    size_t n = nw_select_floats(e->block, item);
    nw_sampled_plan plan = nw_sampled_plan_of(&e->codec->options.sampling, n, e->ratio);
    uint32_t *list = nw_select_list(e, e->block->item_tile[item]);
    if (plan.samples == n) {
        nw_select_aim(e, item);
        return;
    }
    size_t count = take_samples(e, item, plan, list);
    nw_select_set_threshold(e, item, nw_select_kth(list, count, plan.rank));
}

static uint32_t scaled_threshold(uint32_t magnitude, double factor)
{
    float t;
    memcpy(&t, &magnitude, sizeof t);
    return nw_magnitude((float)((double)t * factor));
}

void nw_sampled_settle(nw_encoding *e, int item, nw_pool *pool)
{
    const nw_sampling *s = &e->codec->options.sampling;
    size_t n = nw_select_floats(e->block, item), k = nw_codec_count(e->codec, n, e->ratio);
    size_t marked = nw_select_marked(e, item);
    if (nw_sampled_plan_of(s, n, e->ratio).samples == n) {
        nw_select_cut(e, item, k, pool);
        return;
    }
    for (int i = 0; i < s->iterations; i++, marked = nw_select_marked(e, item)) {
        uint32_t threshold = nw_select_threshold(e, item);
        bool many = (double)marked > s->upper * (double)k, few = (double)marked < s->lower * (double)k;
        if ((!many && !few) || (many && s->resample) || (few && threshold == 1)) break;
        nw_select_set_threshold(e, item, scaled_threshold(threshold, many ? s->upper : s->lower));
        nw_select_mark(e, item, pool);
    }
    if (marked > k) nw_select_cut(e, item, k, pool);
}
