/*
 * bench_update.c - `nowait bench update`: an optimizer's step over a long vector, against what memory allows; alone, and
 * as a parameter server makes it.
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
 * A server (bench_serve.h) also reads a gradient of w bytes a parameter and writes it as floats, reads the weights and
 * writes them as w bytes: 8 + 2 w bytes more at least. Here lines are written that were not read before, which most
 * machines fetch all the same; that is not in the bound, since stores exist that need not.
 *
 * All take turns in --repeats rounds, after one that is not timed; the best of each counts, medians are printed beside.
 * The loops leave values as they are (s is 1, or too small to matter), so steps stay ordinary.
 */
#include "cli/bench.h"
#include "cli/bench_serve.h"

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
    SEGMENT = 1 << 20,      /* of a vector that is no model's: what travels together */
    MOST_STREAMS = 2 + NW_UPDATE_STATES,
    MOST_CODECS = 32,
};

/* Behind the loops come the servers, one a codec. */
typedef enum contestant { STEP, SCALE, ADD, MIX, LOOPS_END, SERVE = LOOPS_END } contestant;
enum { CONTESTANTS = SERVE + MOST_CODECS };
static const char *const contestant_name[] = {"update", "scale", "add", "mix"};
static const char *const contestant_text[] = {"the step alone", "a = s a", "a = a + s b", "all streams"};

typedef enum phase { IN, UPDATE, OUT, PHASES } phase; /* of a server's turn */

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
    int codecs;
    nw_bench_server server[MOST_CODECS];
    double *samples; /* [contestant][round], seconds */
    double *parts;   /* [codec][phase][round], seconds */
    double best[CONTESTANTS], median[CONTESTANTS], part[MOST_CODECS][PHASES];
} bench;

static int contestants(const bench *b) { return SERVE + b->codecs; }
static double *samples_of(const bench *b, int what) { return b->samples + what * b->settings->repeats; }
static double *parts_of(const bench *b, int codec, int which)
{
    return b->parts + (codec * PHASES + which) * b->settings->repeats;
}

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

/* At least, as the top of this file says. */
static double bytes_per_parameter(const bench *b, int what)
{
    int passes = what == SCALE ? 2 : what == ADD ? 3 : 2 * b->streams - 1;
    bool steps = what == STEP || what >= SERVE, norms = steps && strcmp(b->settings->optimizer, "lars") == 0;
    double bytes = 4.0 * (passes + (norms ? 2 : 0));
    if (what >= SERVE) bytes += 8 + 2 * (double)b->server[what - SERVE].bytes / (double)b->floats;
    return bytes;
}

static double rate(const bench *b, int what, double seconds) /* GB/s */
{
    return bytes_per_parameter(b, what) * (double)b->floats / seconds * 1e-9;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static const double little_rate = 1e-6; /* of learning */

static nw_status time_server(bench *b, int codec, int round, double *seconds)
{
    nw_serve_times times;
    NW_TRY(nw_bench_server_turn(&b->server[codec], little_rate, &times));
    *seconds = times.in + times.step + times.out;
    if (round < 0) return NW_OK;
    parts_of(b, codec, IN)[round] = times.in;
    parts_of(b, codec, UPDATE)[round] = times.step;
    parts_of(b, codec, OUT)[round] = times.out;
    return NW_OK;
}

static nw_status time_one(bench *b, int what, int round, double *seconds)
{
    if (what >= SERVE) return time_server(b, what - SERVE, round, seconds);
    plain_job job = {.b = b, .what = (contestant)what, .one = 1.0f, .little = 1e-30f};
    __asm__ volatile("" : "+m"(job.one), "+m"(job.little));
    int64_t start = nw_now_ns();
    if (what == STEP)
        NW_TRY(nw_optimizer_step(b->optimizer, &b->exec, b->params, little_rate, 1.0));
    else
        nw_pool_run(b->exec.pool, (int)((b->floats + PIECE - 1) / PIECE), plain_piece, &job);
    *seconds = nw_seconds(nw_now_ns() - start);
    return NW_OK;
}

static nw_status measure(bench *b)
{
    int repeats = b->settings->repeats;
    for (int round = -1; round < repeats; round++)
        for (int c = 0; c < contestants(b); c++) {
            double seconds = 0;
            NW_TRY(time_one(b, c, round, &seconds));
            if (round >= 0) samples_of(b, c)[round] = seconds;
        }
    for (int c = 0; c < contestants(b); c++) {
        b->median[c] = nw_median(samples_of(b, c), repeats); /* sorts */
        b->best[c] = samples_of(b, c)[0];
    }
    for (int c = 0; c < b->codecs; c++)
        for (int p = 0; p < PHASES; p++) b->part[c][p] = nw_median(parts_of(b, c, p), repeats);
    return NW_OK;
}

/* Of the fastest loop, in GB/s. */
static double bandwidth(const bench *b, const double *seconds)
{
    double most = 0;
    for (int c = SCALE; c < LOOPS_END; c++) {
        double r = rate(b, c, seconds[c]);
        most = r > most ? r : most;
    }
    return most;
}

/* Of the time that the bytes of `bound` take at that bandwidth, to the contestant's own. */
static double share(const bench *b, int what, int bound, const double *seconds)
{
    return rate(b, bound, seconds[what]) / bandwidth(b, seconds);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static double ns(const bench *b, double seconds) { return seconds * 1e9 / (double)b->floats; }

static void print_row(const bench *b, int c, const char *name, const char *text)
{
    printf("%-10s %5.3g %8.2f %7.2f %7.2f %7.3f  ", name, bytes_per_parameter(b, c), b->best[c] * 1e3,
           rate(b, c, b->best[c]), rate(b, c, b->median[c]), ns(b, b->best[c]));
    if (c == STEP || c >= SERVE)
        printf("%5.2f  %5.2f  %s\n", share(b, c, c, b->best), share(b, c, c, b->median), text);
    else
        printf("%14s%s\n", "", text);
}

static void print_table(const bench *b, nw_cpu_ticks before)
{
    const nw_settings *s = b->settings;
    int threads = nw_pool_threads(b->exec.pool);
    printf("%s: %zu parameters, %d vectors, %g bytes a parameter\n", s->optimizer, b->floats, b->streams,
           bytes_per_parameter(b, STEP));
    printf("%d thread%s, %s, best of %d round%s\n\n", threads, threads == 1 ? "" : "s", b->exec.kernels->isa,
           s->repeats, s->repeats == 1 ? "" : "s");
    printf("%-10s %5s %8s %7s %7s %7s  %s\n", "", "bytes", "ms", "GB/s", "median", "ns", "bound  median");
    print_row(b, STEP, contestant_name[STEP], contestant_text[STEP]);
    for (int c = 0; c < b->codecs; c++) {
        char name[32];
        snprintf(name, sizeof name, "serve %s", b->server[c].codec->ops->name);
        print_row(b, SERVE + c, name, "end to end");
    }
    for (int c = SCALE; c < LOOPS_END; c++) print_row(b, c, contestant_name[c], contestant_text[c]);
    printf("Bytes and ns are of a parameter; bound is the share of what %.2f GB/s allow.\n\n", bandwidth(b, b->best));
    printf("%-10s %7s %7s %7s   %s\n", "ns", "in", "step", "out", "of the bound of the step alone");
    for (int c = 0; c < b->codecs; c++)
        printf("serve %-4s %7.3f %7.3f %7.3f   %.2f (medians: %.2f)\n", b->server[c].codec->ops->name,
               ns(b, b->part[c][IN]), ns(b, b->part[c][UPDATE]), ns(b, b->part[c][OUT]),
               share(b, SERVE + c, STEP, b->best), share(b, SERVE + c, STEP, b->median));
    printf("\nThe update reaches %.2f of its bound (medians: %.2f).\n", share(b, STEP, STEP, b->best),
           share(b, STEP, STEP, b->median));
    nw_bench_machine_table(before);
}

static void put_times(nw_json *json, const bench *b, int c)
{
    nw_json_put_double(json, "seconds", b->best[c]);
    nw_json_put_double(json, "seconds_median", b->median[c]);
    nw_json_put_double(json, "gb_per_second", rate(b, c, b->best[c]));
    nw_json_put_double(json, "ns_per_parameter", ns(b, b->best[c]));
}

static void put_server(nw_json *json, const bench *b, int codec)
{
    int c = SERVE + codec;
    nw_json_object(json);
    nw_json_put_string(json, "codec", b->server[codec].codec->ops->name);
    nw_json_put_double(json, "bytes_per_parameter", bytes_per_parameter(b, c));
    put_times(json, b, c);
    nw_json_put_double(json, "in_seconds_median", b->part[codec][IN]);
    nw_json_put_double(json, "step_seconds_median", b->part[codec][UPDATE]);
    nw_json_put_double(json, "out_seconds_median", b->part[codec][OUT]);
    nw_json_put_double(json, "share_of_bound", share(b, c, c, b->best));
    nw_json_put_double(json, "share_of_bound_median", share(b, c, c, b->median));
    nw_json_put_double(json, "share_of_update_bound", share(b, c, STEP, b->best));
    nw_json_put_double(json, "share_of_update_bound_median", share(b, c, STEP, b->median));
    nw_json_object_end(json);
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
    for (int c = 0; c < LOOPS_END; c++) {
        nw_json_key(&json, contestant_name[c]);
        nw_json_object(&json);
        put_times(&json, b, c);
        nw_json_object_end(&json);
    }
    nw_json_put_double(&json, "bound_gb_per_second", bandwidth(b, b->best));
    nw_json_put_double(&json, "share_of_bound", share(b, STEP, STEP, b->best));
    nw_json_put_double(&json, "share_of_bound_median", share(b, STEP, STEP, b->median));
    nw_json_key(&json, "serve");
    nw_json_array(&json);
    for (int c = 0; c < b->codecs; c++) put_server(&json, b, c);
    nw_json_array_end(&json);
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

/* ---- the benchmark ----------------------------------------------------------------------------------------------- */

/* One vector, as long as was asked for or as memory has room: for those of the rule, and for a gradient and messages of
 * each codec. */
static nw_status make_vector(bench *b)
{
    size_t room = nw_machine_available_memory() / 8 / sizeof(float), all = ALL_FLOATS;
    if (room > 0 && room < all) all = room;
    int left = b->settings->floats ? (int)b->settings->floats : (int)(all / MOST_STREAMS), index;
    for (int i = 0; left > 0; i++) {
        char name[32];
        int count = left < SEGMENT ? left : SEGMENT;
        snprintf(name, sizeof name, "vector%d", i);
        NW_TRY(nw_segments_add(&b->own.learned, name, NW_ROLE_LINEAR, 0, count, 1, &count, &index));
        left -= count;
    }
    b->params = &b->own;
    return NW_OK;
}

/* The parameters of a model, or that vector. */
static nw_status make_params(bench *b, const nw_optimizer_options *o)
{
    const nw_settings *s = b->settings;
    if (s->model[0]) {
        nw_model_options m = {.name = s->model, .classes = 10};
        NW_TRY(nw_model_make(&b->model, &m, b->exec.kernels, 1, nw_pool_threads(b->exec.pool)));
        b->params = &b->model.params;
    } else {
        NW_TRY(make_vector(b));
    }
    return nw_optimizer_make(&b->optimizer, o, b->params);
}

static void bind(bench *b, nw_arena *arena)
{
    nw_params_bind(b->params, arena);
    nw_optimizer_bind(b->optimizer, arena);
    size_t round = (size_t)b->settings->repeats * sizeof(double);
    b->samples = nw_arena_alloc(arena, (size_t)contestants(b) * round);
    b->parts = nw_arena_alloc(arena, (size_t)(b->codecs * PHASES) * round);
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
    b->codecs = nw_codec_count() < MOST_CODECS ? nw_codec_count() : MOST_CODECS;
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
    for (int c = 0; c < b->codecs; c++)
        NW_TRY(nw_bench_server_make(&b->server[c], nw_codec_at(c)->name, b->params, b->optimizer, &b->exec));
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
    for (int c = 0; c < b->codecs; c++) nw_bench_server_free(&b->server[c]);
    nw_optimizer_free(b->optimizer);
    nw_params_free(&b->own);
    nw_model_free(&b->model);
    if (b->exec.pool) nw_pool_free(b->exec.pool);
    if (b->arena.base) nw_arena_destroy(&b->arena);
    free(b);
    return status;
}
