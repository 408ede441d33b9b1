/* init.c - the table of initialisation schemes, and drawing from them; see init.h. */
#include "param/init.h"

#include "base/rng.h"
#include "base/suggest.h"

#include <math.h>
#include <string.h>

#define UNIFORM NW_DRAW_UNIFORM
#define HE_OUT  NW_DRAW_HE_OUT
#define HE_IN   NW_DRAW_HE_IN
#define SMALL   NW_DRAW_SMALL
#define ZERO    NW_DRAW_ZERO

/* first convolution, convolutions, their biases, linear layers, their biases */
static const nw_init_scheme schemes[] = {
    {"pytorch", "uniform in 1/sqrt(fan in)", UNIFORM, UNIFORM, UNIFORM, UNIFORM, UNIFORM, false},
    {"he-out", "convolutions normal, sqrt(2 / fan out)", HE_OUT, HE_OUT, UNIFORM, UNIFORM, UNIFORM, false},
    {"kaiming-fan-in", "all weights normal, sqrt(2 / fan in); biases 0", HE_IN, HE_IN, ZERO, HE_IN, ZERO, false},
    {"acid", "he-out, but the first convolution as in pytorch", UNIFORM, HE_OUT, UNIFORM, UNIFORM, UNIFORM, false},
    {"vgg", "he-out, linear layers normal 0.01, biases 0", HE_OUT, HE_OUT, ZERO, SMALL, ZERO, false},
    {"wrn", "he-out, biases 0", HE_OUT, HE_OUT, ZERO, UNIFORM, ZERO, false},
    {"bn0", "he-out, linear layers normal 0.01, gammas that end a residual branch 0", HE_OUT, HE_OUT, UNIFORM, SMALL,
     UNIFORM, true},
};
enum { SCHEMES = sizeof schemes / sizeof schemes[0] };

int nw_init_schemes(void) { return SCHEMES; }
const nw_init_scheme *nw_init_scheme_at(int index) { return &schemes[index]; }

nw_status nw_init_find(const char *name, const nw_init_scheme **scheme)
{
    int index;
    NW_TRY(nw_name_find("init scheme", name, schemes, sizeof schemes[0], SCHEMES, "'nowait info --models' lists all",
                        &index));
    *scheme = &schemes[index];
    return NW_OK;
}

static void fill(float *values, size_t count, float x)
{
    for (size_t i = 0; i < count; i++) values[i] = x;
}

static void draw(const nw_segment *s, nw_draw how, nw_rng rng, float *values)
{
    size_t taps = s->dims == 4 ? (size_t)s->shape[2] * (size_t)s->shape[3] : 1;
    double fan_in = s->fan_in, fan_out = (double)s->shape[0] * (double)taps;
    float bound = 1.0f / sqrtf((float)s->fan_in);
    float deviation = (float)(how == HE_OUT ? sqrt(2.0 / fan_out) : how == HE_IN ? sqrt(2.0 / fan_in) : 0.01);
    for (size_t i = 0; i < s->count; i++)
        values[i] = how == ZERO      ? 0.0f
                    : how == UNIFORM ? (2.0f * nw_rng_uniform(&rng) - 1.0f) * bound
                                     : deviation * nw_rng_normal(&rng);
}

void nw_params_init(nw_params *params, uint64_t seed)
{
    const nw_init_scheme *scheme = params->init ? params->init : &schemes[0];
    bool first = true, after_linear = false; /* a bias follows its layer's weight */
    for (int i = 0; i < params->learned.count; i++) {
        const nw_segment *s = &params->learned.at[i];
        float *values = params->values + s->offset;
        bool zero = s->ends_residual && (params->zero_init_residual || scheme->zero_residual);
        nw_rng rng = nw_rng_make(seed, NW_PURPOSE_INIT, (uint64_t)i, 0);
        switch (s->role) {
        case NW_ROLE_NORM_SCALE:
            fill(values, s->count, zero ? 0.0f : 1.0f);
            break;
        case NW_ROLE_CONV:
            draw(s, first ? scheme->first_conv : scheme->conv, rng, values);
            first = after_linear = false;
            break;
        case NW_ROLE_LINEAR:
            draw(s, scheme->linear, rng, values);
            after_linear = true;
            break;
        case NW_ROLE_BIAS:
            draw(s, after_linear ? scheme->linear_bias : scheme->conv_bias, rng, values);
            break;
        default:
            fill(values, s->count, 0.0f);
        }
    }
    for (int i = 0; i < params->running.count; i++) {
        const nw_segment *s = &params->running.at[i];
        fill(params->buffers + s->offset, s->count, s->role == NW_ROLE_RUNNING_VAR ? 1.0f : 0.0f);
    }
}
