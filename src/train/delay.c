/*
 * delay.c - see delay.h.
 *
 * The heavy law is drawn by inversion: with u uniform in [0, 1), x = (1 - u (1 - (n + 1)^-a))^(-1/a) has the Pareto
 * density a x^(-a-1) cut to [1, n + 1), and the delay is its integer part less 1. u has 53 bits, because the far end of
 * a long tail is rarer than one in 2^24.
 */
#include "train/delay.h"

#include <math.h>

#include "base/rng.h"
#include "base/suggest.h"

nw_status nw_delay_law_find(const char *name, nw_delay_law *law)
{
    static const char *const names[] = {"uniform", "fixed", "heavy", "worker"};
    int index;
    NW_TRY(nw_name_find("law of delays", name, names, sizeof names[0], 4, "", &index));
    *law = (nw_delay_law)index;
    return NW_OK;
}

nw_status nw_delay_check(const nw_delay_options *o)
{
    NW_FAIL_IF(o->models < 0 || o->models > NW_DELAY_MODELS_MOST, NW_E_ARGUMENT,
               "a delay among %d models: --max-delay takes 1 to %d", o->models, NW_DELAY_MODELS_MOST);
    NW_FAIL_IF(o->law == NW_DELAY_HEAVY && !(o->tail >= 0.01 && o->tail <= 100), NW_E_ARGUMENT,
               "delays with a tail of exponent %g: --delay-tail takes 0.01 to 100", o->tail);
    NW_FAIL_IF(o->law == NW_DELAY_WORKER && (o->workers < 1 || o->workers > NW_DELAY_MODELS_MOST), NW_E_ARGUMENT,
               "delays of %d workers: --delay-workers takes 1 to %d", o->workers, NW_DELAY_MODELS_MOST);
    return NW_OK;
}

static nw_rng draws(const nw_delay_options *o, int64_t update)
{
    return nw_rng_make(o->seed, NW_PURPOSE_DELAY, (uint64_t)update, (uint32_t)o->law);
}

static int64_t heavy(const nw_delay_options *o, int64_t update, int64_t choices)
{
    nw_rng rng = draws(o, update);
    uint64_t high = nw_rng_u32(&rng), low = nw_rng_u32(&rng);
    double u = (double)((high << 32 | low) >> 11) * 0x1p-53;
    double cut = pow((double)choices + 1, -o->tail);
    return (int64_t)pow(1 - u * (1 - cut), -1 / o->tail) - 1;
}

static int64_t of_worker(const nw_delay_options *o, int64_t update)
{
    int64_t last = o->workers - 1, oldest = o->models - 1;
    return last == 0 ? oldest : ((last - update % o->workers) * oldest + last / 2) / last;
}

int64_t nw_delay_at(const nw_delay_options *o, int64_t update)
{
    int64_t choices = update < o->models ? update + 1 : o->models, delay = 0;
    if (choices <= 1) return 0;
    switch (o->law) {
    case NW_DELAY_UNIFORM: {
        nw_rng rng = draws(o, update);
        delay = nw_rng_below(&rng, (uint32_t)choices);
        break;
    }
    case NW_DELAY_FIXED:
        delay = choices - 1;
        break;
    case NW_DELAY_HEAVY:
        delay = heavy(o, update, choices);
        break;
    case NW_DELAY_WORKER:
        delay = of_worker(o, update);
        break;
    }
    return delay < choices ? delay : choices - 1;
}
