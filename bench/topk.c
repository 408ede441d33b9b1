/*
 * topk.c - what sparse codecs cost beside one copy of the vector.
 *
 *   build/topk [FLOATS] [ROUNDS] [THREADS] [turns]
 *
 * Vectors of Gaussian floats, as many as take at least twice the last-level cache, are used in turn, so that every pass
 * comes from memory. Copies and codecs take turns, too; medians are told in milliseconds and in copies. With `turns`
 * every round but the first waits for a line of input: somebody else measures meanwhile (bench/topk.py).
 */
#define _GNU_SOURCE
#include "base/rng.h"
#include "codec/kernels.h"
#include "codec/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MOST = 999, CASES = 5 };

static void check(nw_status status)
{
    if (status == NW_OK) return;
    fprintf(stderr, "topk: %s\n", nw_error_message());
    exit(1);
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) exit(1);
    memset(memory, 0, bytes);
    return memory;
}

/* Of this thread where there is one: others may use the machine meanwhile. */
static clockid_t used_clock = CLOCK_THREAD_CPUTIME_ID;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(used_clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* What all cases use in turn. */
typedef struct vectors {
    size_t floats;
    int count, next;
    float **at;
} vectors;

static float *next_vector(vectors *v) { return v->at[v->next++ % v->count]; }

static vectors make_vectors(size_t floats)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = floats * sizeof(float), most = cache > 0 ? (size_t)cache : 32u << 20;
    vectors v = {.floats = floats, .count = (int)(2 * most / bytes) + 4};
    v.at = take((size_t)v.count * sizeof *v.at);
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (int i = 0; i < v.count; i++) {
        v.at[i] = take(bytes);
        for (size_t j = 0; j < floats; j++)
            v.at[i][j] = i == 0 ? nw_rng_normal(&rng) : v.at[0][(j + 977 * (size_t)i) % floats];
    }
    return v;
}

/* One codec with what it needs. */
typedef struct setting {
    const char *name;
    double ratio;
    nw_values values;
    bool memory;
    nw_codec *codec;
    nw_memory *kept;
    nw_block block;
    nw_scratch scratch;
    nw_partial *partial;
    uint8_t *bytes;
    size_t size;
    double begin[ROUNDS_MOST], end[ROUNDS_MOST], decode[ROUNDS_MOST], all[ROUNDS_MOST];
} setting;

static void make_setting(setting *s, size_t floats, int threads)
{
    nw_codec_options o = nw_codec_options_default("topk");
    nw_extent all = {0, floats, 0, 1};
    const nw_block *block = &s->block;
    o.ratio = s->ratio;
    o.values = s->values;
    check(nw_codec_create(&s->codec, &o));
    check(nw_memory_create(&s->kept, &(nw_memory_options){.name = s->memory ? "error" : NULL}, floats));
    check(nw_block_make(&s->block, s->codec, &all, 1, (size_t[]){0, floats}, 1, 0));
    check(nw_scratch_make(&s->scratch, &block, 1, threads));
    s->partial = take((size_t)s->block.tile_count * sizeof *s->partial);
    s->bytes = take(floats + 4096);
}

static void measure(setting *s, vectors *v, nw_pool *pool, int round)
{
    nw_encoded encoded;
    nw_encoding e = {.block = &s->block,
                     .codec = s->codec,
                     .memory = s->kept,
                     .key = {(uint64_t)round, 3, 0},
                     .ratio = s->ratio,
                     .clip = 1,
                     .vector = next_vector(v),
                     .partial = s->partial,
                     .scratch = &s->scratch,
                     .out = &s->bytes,
                     .encoded = &encoded};
    double start = now_ms();
    check(nw_codec_begin(&e, pool));
    double begun = now_ms();
    check(nw_codec_end(&e, pool));
    double ended = now_ms();
    nw_decoding d = {&s->block, s->codec, e.key, 0, s->bytes, encoded.bytes, &s->scratch};
    float *to = next_vector(v);
    check(nw_codec_decode(&d, to, NW_AT_FIRST, false, pool));
    double done = now_ms();
    memcpy(to, v->at[v->next % v->count], v->floats * sizeof *to); /* Gaussian again */
    s->size = encoded.bytes;
    s->begin[round] = begun - start;
    s->end[round] = ended - begun;
    s->decode[round] = done - ended;
    s->all[round] = done - start;
}

int main(int argc, char **argv)
{
    static setting settings[CASES] = {
        {.name = "top-k 1 %, f32", .ratio = 0.01, .values = NW_VALUES_F32},
        {.name = "top-k 1 %, fp16", .ratio = 0.01, .values = NW_VALUES_FP16},
        {.name = "top-k 1 %, fp16, error feedback", .ratio = 0.01, .values = NW_VALUES_FP16, .memory = true},
        {.name = "top-k 0.1 %, fp16", .ratio = 0.001, .values = NW_VALUES_FP16},
        {.name = "top-k 0.1 %, fp16, error feedback", .ratio = 0.001, .values = NW_VALUES_FP16, .memory = true}};
    size_t floats = argc > 1 ? (size_t)atol(argv[1]) : 11000000;
    int rounds = argc > 2 ? atoi(argv[2]) : 21, threads = argc > 3 ? atoi(argv[3]) : 1;
    double copies[ROUNDS_MOST];
    nw_pool *pool = NULL;
    if (floats < 1 || rounds < 1 || rounds > ROUNDS_MOST || threads < 1)
        return fprintf(stderr, "usage: topk [FLOATS] [ROUNDS] [THREADS] [turns]\n"), 2;
    if (threads > 1) {
        used_clock = CLOCK_MONOTONIC;
        check(nw_pool_create(&pool, threads));
    }
    vectors v = make_vectors(floats);
    for (int i = 0; i < CASES; i++) make_setting(&settings[i], floats, threads);
    for (int round = 0; round < rounds; round++) {
        char line[8];
        if (argc > 4 && round > 0 && printf("next\n") > 0 && !fflush(stdout) && !fgets(line, sizeof line, stdin)) break;
        float *from = next_vector(&v), *to = next_vector(&v);
        double start = now_ms();
        memcpy(to, from, floats * sizeof *to);
        copies[round] = now_ms() - start;
        for (int i = 0; i < CASES; i++) measure(&settings[i], &v, pool, round);
    }
    double copy = median(copies, rounds);
    printf("%zu floats, %d vectors, %s, %d threads; medians of %d rounds\n", floats, v.count,
           nw_codec_kernels_best()->name, threads, rounds);
    printf("%-34s %8s %8s %8s %8s %8s %10s\n", "ms", "begin", "end", "decode", "all", "copies", "bytes");
    printf("%-34s %35.2f %8.2f %10zu\n", "one copy", copy, 1.0, floats * sizeof(float));
    for (int i = 0; i < CASES; i++) {
        setting *s = &settings[i];
        double all = median(s->all, rounds);
        printf("%-34s %8.2f %8.2f %8.2f %8.2f %8.2f %10zu\n", s->name, median(s->begin, rounds), median(s->end, rounds),
               median(s->decode, rounds), all, all / copy, s->size);
    }
    return 0;
}
