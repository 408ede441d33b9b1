/*
 * codec.c - `nowait bench codec`: what each codec costs, in copies of the same floats by memcpy.
 *
 * A vector of 11 million floats is one item. Vectors, bytes and memories take turns, so many of each that the vectors are
 * together twice as large as the last-level cache: all is read from memory and written to it, as it is between two steps
 * of training. All codecs and directions and the copy take turns in --repeats rounds, after one that is not timed; the
 * median of each counts. By one thread, and by two; the gain of two is compared with what the copy gains.
 *
 * Of codecs that add floats in rounds, "encode" is all but the last mean, which is "decode".
 */
#include "bench/bench.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "codec/kernels.h"
#include "codec/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROWS = 2750, /* as a matrix of 2,750 x 4,000 */
    FLOATS = ROWS * 4000,
    MOST_CODECS = 48,
    MOST_VECTORS = 24,
    MOST_THREADS = 2,
    DEFAULT_CACHE = 32 << 20,
    ROUND_FLOATS = FLOATS + 64,
};

typedef enum direction { ENCODE, DECODE, DECODE_ADD, REMEMBER, DIRECTIONS } direction;
static const char *const direction_name[] = {"encode", "decode", "decode_add", "encode_with_memory"};

/* Beside every codec with its default options. */
static const struct {
    const char *name, *label;
    int levels, bucket;
} variants[] = {{"qsgd", "qsgd 127/512", 127, 512}, {"randomk", "randomk private", 0, 0}};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

typedef struct contestant {
    char label[32];
    nw_codec *codec;
    nw_block block; /* of one item, for one receiver */
    float **kept, *kept_floats;
    nw_scratch scratch;
    bool remembers; /* it may have a memory */
    nw_encoded encoded[MOST_VECTORS];
    double ns[MOST_THREADS][DIRECTIONS]; /* of a vector; 0: it has no such direction */
} contestant;

typedef struct bench {
    const nw_bench_settings *asked;
    uint64_t seed;
    int codecs, vectors, threads; /* threads: of this turn */
    contestant at[MOST_CODECS];
    nw_partial *partial;
    nw_arena arena;
    nw_pool *pool[MOST_THREADS]; /* of one thread more; the first is NULL */
    nw_memory *memory;           /* one, which takes turns with nothing: what it holds is as large as a vector */
    float *in[MOST_VECTORS], *out[MOST_VECTORS], *round;
    uint8_t *bytes[MOST_VECTORS];
    double *samples;
    double copy[MOST_THREADS];
} bench;

static bool has_direction(const contestant *c, direction d)
{
    if (d == REMEMBER) return c->remembers;
    return d != DECODE_ADD || !c->codec->ops->rounds;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

typedef struct copy_job {
    float *to;
    const float *from;
    int parts;
} copy_job;

static void copy_part(void *context, int index, int worker)
{
    const copy_job *j = context;
    size_t first = (size_t)index * FLOATS / (size_t)j->parts, end = (size_t)(index + 1) * FLOATS / (size_t)j->parts;
    (void)worker;
    memcpy(j->to + first, j->from + first, (end - first) * sizeof(float));
}

static void copy_vector(bench *b, int vector)
{
    copy_job j = {b->out[vector], b->in[vector], b->threads};
    if (b->threads > 1)
        nw_pool_run(b->pool[b->threads - 1], b->threads, copy_part, &j);
    else
        copy_part(&j, 0, 0);
}

static nw_status run_rounds(bench *b, nw_encoding *e, direction d, int vector)
{
    const nw_rounds *r = e->codec->ops->rounds;
    nw_pool *pool = b->pool[b->threads - 1];
    for (int i = 0; d != DECODE && i < r->count; i++) {
        nw_codec_contribute(e, i, b->round, pool);
        if (i + 1 < r->count || e->memory)
            nw_codec_use_mean(e, i, b->round, i + 1 < r->count ? NULL : b->out[vector], pool);
    }
    if (d == DECODE) nw_codec_use_mean(e, r->count - 1, b->round, b->out[vector], pool);
    return NW_OK;
}

static nw_status run_codec(bench *b, contestant *c, direction d, int vector)
{
    nw_pool *pool = b->pool[b->threads - 1];
    if (d == ENCODE || d == REMEMBER || c->codec->ops->rounds) {
        nw_encoding e = {.block = &c->block,
                         .codec = c->codec,
                         .memory = d == REMEMBER ? b->memory : NULL,
                         .key = {(uint64_t)vector, 3, 0},
                         .ratio = c->codec->options.ratio,
                         .clip = 1,
                         .vector = b->in[vector],
                         .kept = c->kept,
                         .partial = b->partial,
                         .scratch = &c->scratch,
                         .out = &b->bytes[vector],
                         .encoded = &c->encoded[vector]};
        if (c->codec->ops->rounds) return run_rounds(b, &e, d, vector);
        NW_TRY(nw_codec_begin(&e, pool));
        return nw_codec_end(&e, pool);
    }
    nw_decoding decoding = {.block = &c->block,
                            .codec = c->codec,
                            .key = {(uint64_t)vector, 3, 0},
                            .in = b->bytes[vector],
                            .bytes = c->encoded[vector].bytes,
                            .scratch = &c->scratch};
    return nw_codec_decode(&decoding, b->out[vector], NW_AT_FIRST, d == DECODE_ADD, pool);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Contestant 0 is the copy. */
static nw_status time_one(bench *b, int number, direction d, double *ns)
{
    int64_t start = nw_now_ns();
    for (int v = 0; v < b->vectors; v++) {
        if (number > 0)
            NW_TRY(run_codec(b, &b->at[number - 1], d, v));
        else
            copy_vector(b, v);
    }
    *ns = (double)(nw_now_ns() - start) / b->vectors;
    return NW_OK;
}

static double *samples_of(const bench *b, int number, direction d)
{
    return b->samples + (size_t)(number * DIRECTIONS + (int)d) * (size_t)b->asked->repeats;
}

static nw_status measure_round(bench *b, int round)
{
    for (int number = 0; number <= b->codecs; number++)
        for (direction d = ENCODE; d < DIRECTIONS; d++) {
            double ns = 0;
            if (number == 0 ? d != ENCODE : !has_direction(&b->at[number - 1], d)) continue;
            if (d == REMEMBER) memset(b->memory->v, 0, FLOATS * sizeof(float));
            NW_TRY(time_one(b, number, d, &ns));
            if (round >= 0) samples_of(b, number, d)[round] = ns;
        }
    return NW_OK;
}

static nw_status measure(bench *b)
{
    int repeats = b->asked->repeats;
    for (b->threads = 1; b->threads <= MOST_THREADS; b->threads++) {
        for (int round = -1; round < repeats; round++) NW_TRY(measure_round(b, round));
        b->copy[b->threads - 1] = nw_median(samples_of(b, 0, ENCODE), repeats);
        for (int c = 0; c < b->codecs; c++)
            for (direction d = ENCODE; d < DIRECTIONS; d++)
                if (has_direction(&b->at[c], d))
                    b->at[c].ns[b->threads - 1][d] = nw_median(samples_of(b, c + 1, d), repeats);
    }
    return NW_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static double bytes_per_float(const contestant *c)
{
    const nw_rounds *r = c->codec->ops->rounds;
    double bytes = (double)c->encoded[0].bytes;
    for (int i = 0; r && i < r->count; i++) bytes += sizeof(float) * (double)nw_codec_round_floats(&c->block, i);
    return bytes / FLOATS;
}
/* Of floats, through both directions by one thread. */
static double gigabytes_per_second(const contestant *c) { return 4.0 * FLOATS / (c->ns[0][ENCODE] + c->ns[0][DECODE]); }
/* Gbit/s of a link between two below which what is not sent saves more time than encoding and decoding take. */
static double break_even(const contestant *c)
{
    return 8 * (4 - bytes_per_float(c)) * FLOATS / (c->ns[0][ENCODE] + c->ns[0][DECODE]);
}

/* Both directions, in copies by as many threads. */
static double both(const bench *b, const contestant *c, int threads, direction encode)
{
    return (c->ns[threads - 1][encode] + c->ns[threads - 1][DECODE]) / b->copy[threads - 1];
}
/* What two threads gain over one, over what the copy gains: the ratio of the times in copies. */
static double gain(const bench *b, const contestant *c) { return both(b, c, 1, ENCODE) / both(b, c, 2, ENCODE); }

static void print_number(bool there, double x)
{
    if (there)
        printf(" %7.2f", x);
    else
        printf(" %7s", "-");
}

static void print_table(const bench *b, nw_cpu_ticks before)
{
    printf("%d floats, %d vectors in turn, kernels %s, median of %d round%s\n", FLOATS, b->vectors,
           nw_codec_kernels_best()->name, b->asked->repeats, b->asked->repeats == 1 ? "" : "s");
    printf("copy: %.2f ms by one thread (%.1f GB/s), %.2f ms by two; all else in copies by as many threads\n",
           b->copy[0] * 1e-6, 4.0 * FLOATS / b->copy[0], b->copy[1] * 1e-6);
    printf("%-17s %7s %7s %7s %7s %7s %7s | %7s %7s %7s | %7s %9s\n", "codec", "bytes/f", "encode", "decode", "add",
           "both", "memory", "both", "memory", "gain", "GB/s", "pays to");
    for (int i = 0; i < b->codecs; i++) {
        const contestant *c = &b->at[i];
        printf("%-17s %7.2f", c->label, bytes_per_float(c));
        for (direction d = ENCODE; d <= DECODE_ADD; d++) print_number(has_direction(c, d), c->ns[0][d] / b->copy[0]);
        print_number(true, both(b, c, 1, ENCODE));
        print_number(c->remembers, both(b, c, 1, REMEMBER));
        printf(" |");
        print_number(true, both(b, c, 2, ENCODE));
        print_number(c->remembers, both(b, c, 2, REMEMBER));
        print_number(true, gain(b, c));
        printf(" | %7.2f %9.2f\n", gigabytes_per_second(c), break_even(c));
    }
    printf(
        "both: encode and decode; memory: with error feedback; gain of two threads, over that of the copy\n"
        "GB/s of floats through both; pays to: Gbit/s of a link between two ranks, above which it costs more than it "
        "saves\n");
    nw_bench_machine_table(before);
}

static void put_codec(nw_json *json, const bench *b, const contestant *c)
{
    nw_json_object(json);
    nw_json_put_string(json, "codec", c->label);
    nw_json_put_double(json, "bytes_per_float", bytes_per_float(c));
    nw_json_put_double(json, "gb_per_second", gigabytes_per_second(c));
    nw_json_put_double(json, "break_even_gbit_per_second", break_even(c));
    for (int t = 0; t < MOST_THREADS; t++) {
        nw_json_put_object(json, t == 0 ? "one_thread" : "two_threads");
        for (direction d = ENCODE; d < DIRECTIONS; d++)
            if (has_direction(c, d)) nw_json_put_double(json, direction_name[d], c->ns[t][d] / b->copy[t]);
        nw_json_object_end(json);
    }
    nw_json_put_double(json, "gain_over_copy", gain(b, c));
    nw_json_object_end(json);
}

static void print_json(const bench *b, nw_cpu_ticks before)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "codec");
    nw_json_put_string(&json, "kernels", nw_codec_kernels_best()->name);
    nw_json_put_int(&json, "repeats", b->asked->repeats);
    nw_json_put_int(&json, "floats", FLOATS);
    nw_json_put_int(&json, "vectors", b->vectors);
    nw_json_put_array(&json, "copy_ms");
    for (int t = 0; t < MOST_THREADS; t++) nw_json_double(&json, b->copy[t] * 1e-6);
    nw_json_array_end(&json);
    nw_json_put_array(&json, "codecs_in_copies");
    for (int c = 0; c < b->codecs; c++) put_codec(&json, b, &b->at[c]);
    nw_json_array_end(&json);
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Numbers as gradients have them, near 0.01. */
static void fill_floats(bench *b)
{
    nw_rng rng = nw_rng_make(b->seed, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < FLOATS; i++) b->in[0][i] = 0.01f * nw_rng_normal(&rng);
    for (int v = 0; v < b->vectors; v++) {
        if (v > 0) memcpy(b->in[v], b->in[0], FLOATS * sizeof(float));
        memset(b->out[v], 0, FLOATS * sizeof(float)); /* pages are there before the clock starts */
    }
}

static void bind(bench *b, nw_arena *arena)
{
    for (int v = 0; v < b->vectors; v++) {
        b->in[v] = nw_arena_alloc(arena, FLOATS * sizeof(float));
        b->out[v] = nw_arena_alloc(arena, FLOATS * sizeof(float));
        b->bytes[v] = nw_arena_alloc(arena, 5 * (size_t)FLOATS); /* more than any codec needs */
    }
    b->round = nw_arena_alloc(arena, ROUND_FLOATS * sizeof(float));
    b->partial = nw_arena_alloc(arena, (FLOATS / NW_TILE_FLOATS + 1) * sizeof *b->partial);
    b->samples =
        nw_arena_alloc(arena, (size_t)(b->codecs + 1) * DIRECTIONS * (size_t)b->asked->repeats * sizeof *b->samples);
}

static nw_status add_contestant(bench *b, const nw_codec_options *o, const char *label)
{
    NW_FAIL_IF(b->codecs == MOST_CODECS, NW_E_INTERNAL, "this benchmark has room for %d codecs", MOST_CODECS);
    contestant *c = &b->at[b->codecs++];
    snprintf(c->label, sizeof c->label, "%s", label);
    NW_TRY(nw_codec_create(&c->codec, o));
    NW_TRY(nw_block_make(&c->block, c->codec, &(nw_extent){0, FLOATS, 0, ROWS}, 1, (size_t[]){0, FLOATS}, 1, 0));
    NW_TRY(nw_scratch_make(&c->scratch, (const nw_block *const[]){&c->block}, 1, MOST_THREADS));
    c->remembers =
        !c->codec->exact && nw_memory_check(c->codec, &(nw_memory_options){.name = "error"}, FLOATS) == NW_OK;
    const nw_rounds *r = c->codec->ops->rounds;
    if (!r) return NW_OK;
    NW_NEW(c->kept, 1, "what %s keeps", label);
    NW_NEW(c->kept_floats, r->keeps(&c->block, 0) + 1, "what %s keeps", label);
    c->kept[0] = c->kept_floats;
    r->start(c->codec, &c->block, 0, c->kept[0]);
    return NW_OK;
}

static nw_status add_contestants(bench *b)
{
    for (int i = 0; i < nw_codec_kinds(); i++) {
        nw_codec_options o = nw_codec_options_default(nw_codec_at(i)->name);
        NW_TRY(add_contestant(b, &o, o.name));
    }
    for (int i = 0; i < VARIANTS; i++) {
        nw_codec_options o = nw_codec_options_default(variants[i].name);
        o.shared = false;
        o.bucket = variants[i].bucket;
        if (variants[i].levels) o.levels = variants[i].levels;
        NW_TRY(add_contestant(b, &o, variants[i].label));
    }
    return NW_OK;
}

static nw_status run_codec_bench(bench *b)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t twice = 2 * (size_t)(cache > 0 ? cache : DEFAULT_CACHE), vector = FLOATS * sizeof(float);
    b->vectors = b->asked->vectors > 0 ? b->asked->vectors : (int)((twice + vector - 1) / vector);
    if (b->vectors < 2) b->vectors = 2;
    if (b->vectors > MOST_VECTORS) b->vectors = MOST_VECTORS;
    NW_TRY(add_contestants(b));
    for (int t = 1; t < MOST_THREADS; t++) NW_TRY(nw_pool_create(&b->pool[t], t + 1));
    NW_TRY(nw_memory_create(&b->memory, &(nw_memory_options){.name = "error"}, FLOATS));
    nw_arena measured = nw_arena_measure();
    bind(b, &measured);
    NW_TRY(nw_arena_create(&b->arena, measured.used));
    bind(b, &b->arena);
    fill_floats(b);
    nw_cpu_ticks before = nw_machine_ticks();
    NW_TRY(measure(b));
    if (strcmp(b->asked->format, "json") == 0)
        print_json(b, before);
    else
        print_table(b, before);
    return NW_OK;
}

nw_status nw_bench_codec(const nw_common_settings *all, const nw_bench_settings *asked)
{
    bench *b = calloc(1, sizeof *b);
    NW_FAIL_IF(!b, NW_E_MEMORY, "no memory for the benchmark");
    b->asked = asked;
    b->seed = (uint64_t)all->seed;
    nw_status status = run_codec_bench(b);
    for (int i = 0; i < b->codecs; i++) {
        contestant *c = &b->at[i];
        nw_codec_free(c->codec);
        nw_block_free(&c->block);
        nw_scratch_free(&c->scratch);
        free(c->kept);
        free(c->kept_floats);
    }
    for (int t = 0; t < MOST_THREADS; t++) nw_pool_free(b->pool[t]);
    nw_memory_free(b->memory);
    nw_arena_destroy(&b->arena);
    free(b);
    return status;
}
