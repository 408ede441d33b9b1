/*
 * bench_update.c - `nowait bench update`: an optimizer's step over a long vector, against what memory allows.
 *
 * A step of a rule with S state vectors reads weights, gradient and states and writes weights and states: 4 (2 + S) +
 * 4 (1 + S) bytes a parameter, 36 for AMSGrad; lars reads weights and gradient once more for its norms. A written line
 * was read before, so nothing hidden travels beside these bytes. The bound is these bytes over the bandwidth of the best
 * of some plain loops over the same vectors, with the same threads and pieces, that also write only what they read:
 *
 *   scale   a = s a                     8 bytes an element
 *   add     a = a + s b                12
 *   mix     as many streams read and written as the rule has, an addition each
 *
 * The step and the loops take turns in --repeats rounds, after one that is not timed; the best of each counts, medians
 * are printed beside. The loops leave values as they are (s is 1, or too small to matter), so steps stay ordinary.
 */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/rng.h"
#include "compute/isa.h"
#include "nn/model.h"
#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALL_FLOATS = 128 << 20, /* of five vectors together, unless --floats or --model says: far beyond any cache */
    PIECE = 1 << 16,        /* of the plain loops' tasks, as of the optimizers' */
    MOST_STREAMS = 2 + NW_UPDATE_STATES,
};

typedef enum contestant { STEP, SCALE, ADD, MIX, CONTESTANTS } contestant;
static const char *const contestant_name[] = {"update", "scale", "add", "mix"};
static const char *const contestant_text[] = {"the optimizer's step", "a = s a", "a = a + s b",
                                              "the same streams, an addition each"};

typedef struct bench {
    const nw_settings *settings;
    nw_model model; /* of --model */
    nw_params own;  /* of --floats */
    nw_params *params;
    nw_optimizer *optimizer;
    nw_arena arena;
    nw_exec exec;
    size_t floats;
    int streams; /* weights, states, gradient: all but the last are written */
    float *stream[MOST_STREAMS];
    double *samples; /* [contestant][round], seconds */
    double best[CONTESTANTS], median[CONTESTANTS];
} bench;

/* ---- plain loops ------------------------------------------------------------------------------------------------- */

typedef struct plain_job {
    const bench *b;
    contestant what;
    float one, little; /* 1 and 1e-30, which the compiler does not know */
} plain_job;

/* Vectors written down, because the compiler is not asked to find them in this folder. Memory is what limits, so those
 * of any machine will do. Aligned as floats are. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
enum { STRIDE = 16 };

/* The first `written` streams get what the last one has. They begin at `first`; fewer than STRIDE at the end are left
 * out. */
static inline __attribute__((always_inline)) void add_streams(float *const *stream, int written, const float *last,
                                                              size_t first, size_t count, float little)
{
    float *to[MOST_STREAMS];
    for (int s = 0; s < written; s++) to[s] = stream[s] + first;
    last += first;
    for (size_t i = 0; i + STRIDE <= count; i += STRIDE)
#pragma GCC unroll 4
        for (size_t k = i; k < i + STRIDE; k += 4) {
            lanes g = little * *(const lanes *)(last + k);
#pragma GCC unroll 4
            for (int s = 0; s < written; s++) *(lanes *)(to[s] + k) += g;
        }
}

static void scale_stream(float *a, size_t count, float one)
{
    for (size_t i = 0; i + STRIDE <= count; i += STRIDE)
#pragma GCC unroll 4
        for (size_t k = i; k < i + STRIDE; k += 4) *(lanes *)(a + k) *= one;
}

static void plain_piece(void *context, int index, int worker)
{
    (void)worker;
    const plain_job *job = context;
    const bench *b = job->b;
    size_t first = (size_t)index * PIECE, count = b->floats - first < PIECE ? b->floats - first : PIECE;
    const float *last = b->stream[b->streams - 1];
    if (job->what == SCALE)
        scale_stream(b->stream[0] + first, count, job->one);
    else if (job->what == ADD || b->streams == 2)
        add_streams(b->stream, 1, last, first, count, job->little);
    else if (b->streams == 3)
        add_streams(b->stream, 2, last, first, count, job->little);
    else if (b->streams == 4)
        add_streams(b->stream, 3, last, first, count, job->little);
    else
        add_streams(b->stream, 4, last, first, count, job->little);
}

static double bytes_per_parameter(const bench *b, contestant what)
{
    int passes = what == SCALE ? 2 : what == ADD ? 3 : 2 * b->streams - 1;
    bool norms = what == STEP && strcmp(b->settings->optimizer, "lars") == 0;
    return 4.0 * (passes + (norms ? 2 : 0));
}

static double rate(const bench *b, contestant what, double seconds) /* GB/s */
{
    return bytes_per_parameter(b, what) * (double)b->floats / seconds * 1e-9;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static nw_status time_one(bench *b, contestant what, double *seconds)
{
    plain_job job = {.b = b, .what = what, .one = 1.0f, .little = 1e-30f};
    __asm__ volatile("" : "+m"(job.one), "+m"(job.little));
    int64_t start = nw_now_ns();
    if (what == STEP)
        NW_TRY(nw_optimizer_step(b->optimizer, &b->exec, b->params, 1e-6, 1.0));
    else
        nw_pool_run(b->exec.pool, (int)((b->floats + PIECE - 1) / PIECE), plain_piece, &job);
    *seconds = nw_seconds(nw_now_ns() - start);
    return NW_OK;
}

static nw_status measure(bench *b)
{
    int repeats = b->settings->repeats;
    for (int round = -1; round < repeats; round++)
        for (int c = 0; c < CONTESTANTS; c++) {
            double seconds = 0;
            NW_TRY(time_one(b, (contestant)c, &seconds));
            if (round >= 0) b->samples[c * repeats + round] = seconds;
        }
    for (int c = 0; c < CONTESTANTS; c++) {
        b->median[c] = nw_median(b->samples + c * repeats, repeats); /* sorts */
        b->best[c] = b->samples[c * repeats];
    }
    return NW_OK;
}

/* Of the fastest loop, in GB/s. */
static double bandwidth(const bench *b, const double *seconds)
{
    double most = 0;
    for (int c = SCALE; c < CONTESTANTS; c++) {
        double r = rate(b, (contestant)c, seconds[c]);
        most = r > most ? r : most;
    }
    return most;
}
static double share(const bench *b, const double *seconds)
{
    return rate(b, STEP, seconds[STEP]) / bandwidth(b, seconds);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void print_table(const bench *b, nw_cpu_ticks before)
{
    const nw_settings *s = b->settings;
    printf("%s: %zu parameters, %d vectors, %g bytes a parameter; %d thread%s, %s, best of %d round%s\n", s->optimizer,
           b->floats, b->streams, bytes_per_parameter(b, STEP), nw_pool_threads(b->exec.pool),
           nw_pool_threads(b->exec.pool) == 1 ? "" : "s", b->exec.kernels->isa, s->repeats, s->repeats == 1 ? "" : "s");
    printf("%-8s %8s %8s %8s %14s\n", "", "ms", "GB/s", "median", "ns a parameter");
    for (int c = 0; c < CONTESTANTS; c++)
        printf("%-8s %8.2f %8.2f %8.2f %14.3f   %s\n", contestant_name[c], b->best[c] * 1e3,
               rate(b, (contestant)c, b->best[c]), rate(b, (contestant)c, b->median[c]),
               b->best[c] * 1e9 / (double)b->floats, contestant_text[c]);
    printf("bound    %.3f ns a parameter at %.2f GB/s; the update reaches %.2f of it (medians: %.2f)\n",
           bytes_per_parameter(b, STEP) / bandwidth(b, b->best), bandwidth(b, b->best), share(b, b->best),
           share(b, b->median));
    nw_bench_machine_table(before);
}

static void print_json(const bench *b, nw_cpu_ticks before)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "update");
    nw_json_put_string(&json, "optimizer", b->settings->optimizer);
    if (b->settings->model[0]) nw_json_put_string(&json, "model", b->settings->model);
    nw_json_put_int(&json, "parameters", (int64_t)b->floats);
    nw_json_put_double(&json, "bytes_per_parameter", bytes_per_parameter(b, STEP));
    nw_json_put_string(&json, "isa", b->exec.kernels->isa);
    nw_json_put_int(&json, "threads", nw_pool_threads(b->exec.pool));
    nw_json_put_int(&json, "repeats", b->settings->repeats);
    for (int c = 0; c < CONTESTANTS; c++) {
        nw_json_key(&json, contestant_name[c]);
        nw_json_object(&json);
        nw_json_put_double(&json, "seconds", b->best[c]);
        nw_json_put_double(&json, "seconds_median", b->median[c]);
        nw_json_put_double(&json, "gb_per_second", rate(b, (contestant)c, b->best[c]));
        nw_json_put_double(&json, "ns_per_parameter", b->best[c] * 1e9 / (double)b->floats);
        nw_json_object_end(&json);
    }
    nw_json_put_double(&json, "bound_gb_per_second", bandwidth(b, b->best));
    nw_json_put_double(&json, "share_of_bound", share(b, b->best));
    nw_json_put_double(&json, "share_of_bound_median", share(b, b->median));
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

/* ---- the benchmark ----------------------------------------------------------------------------------------------- */

/* The parameters of a model; or one vector, as long as was asked for or as memory has room. */
static nw_status make_params(bench *b, const nw_optimizer_options *o)
{
    const nw_settings *s = b->settings;
    if (s->model[0]) {
        nw_model_options m = {.name = s->model, .classes = 10};
        NW_TRY(nw_model_make(&b->model, &m, b->exec.kernels, 1, nw_pool_threads(b->exec.pool)));
        b->params = &b->model.params;
        return nw_optimizer_make(&b->optimizer, o, b->params);
    }
    size_t room = nw_machine_available_memory() / 4 / sizeof(float), all = ALL_FLOATS;
    if (room > 0 && room < all) all = room;
    int count = s->floats ? (int)s->floats : (int)(all / MOST_STREAMS), index;
    NW_TRY(nw_segments_add(&b->own.learned, "vector", NW_ROLE_LINEAR, 0, count, 1, &count, &index));
    b->params = &b->own;
    return nw_optimizer_make(&b->optimizer, o, b->params);
}

static void bind(bench *b, nw_arena *arena)
{
    nw_params_bind(b->params, arena);
    nw_optimizer_bind(b->optimizer, arena);
    b->samples = nw_arena_alloc(arena, (size_t)CONTESTANTS * (size_t)b->settings->repeats * sizeof *b->samples);
}

/* Weights near 0.1 and gradients near 0.01, a piece of them over and over. The first step sets the states. */
static void fill(bench *b)
{
    nw_rng rng = nw_rng_make((uint64_t)b->settings->seed, NW_PURPOSE_TEST, 0, 0);
    size_t piece = b->floats < PIECE ? b->floats : PIECE;
    for (size_t i = 0; i < piece; i++) {
        b->params->values[i] = 0.1f * nw_rng_normal(&rng);
        b->params->gradients[i] = 0.01f * nw_rng_normal(&rng);
    }
    for (size_t i = piece; i < b->floats; i++) {
        b->params->values[i] = b->params->values[i - piece];
        b->params->gradients[i] = b->params->gradients[i - piece];
    }
}

static nw_status run(bench *b)
{
    const nw_settings *s = b->settings;
    const char *note;
    NW_FAIL_IF(s->model[0] && s->floats, NW_E_ARGUMENT,
               "--model %s has a number of parameters already; leave out --floats or --model", s->model);
    NW_TRY(nw_isa_select(NW_PRECISION_AUTO, &b->exec.kernels, &note));
    if (note) fprintf(stderr, "nowait: %s\n", note);
    NW_TRY(nw_pool_create(&b->exec.pool, s->threads ? s->threads : nw_machine_allowed_cpus()));
    nw_optimizer_options o = nw_optimizer_options_default(s->optimizer);
    NW_TRY(make_params(b, &o));
    nw_arena measured = nw_arena_measure();
    bind(b, &measured);
    NW_TRY(nw_arena_create(&b->arena, measured.peak));
    bind(b, &b->arena);
    b->floats = b->params->learned.floats;
    b->stream[b->streams++] = b->params->values;
    for (int i = 0; i < nw_optimizer_states(b->optimizer); i++)
        b->stream[b->streams++] = nw_optimizer_state_at(b->optimizer, i).data;
    b->stream[b->streams++] = b->params->gradients;
    fill(b);
    nw_cpu_ticks before = nw_machine_ticks();
    NW_TRY(measure(b));
    if (strcmp(s->format, "json") == 0)
        print_json(b, before);
    else
        print_table(b, before);
    return NW_OK;
}

nw_status nw_bench_update(const nw_settings *settings)
{
    bench *b = calloc(1, sizeof *b);
    NW_FAIL_IF(!b, NW_E_MEMORY, "no memory for the benchmark");
    b->settings = settings;
    nw_status status = run(b);
    nw_optimizer_free(b->optimizer);
    nw_params_free(&b->own);
    nw_model_free(&b->model);
    if (b->exec.pool) nw_pool_free(b->exec.pool);
    if (b->arena.base) nw_arena_destroy(&b->arena);
    free(b);
    return status;
}
