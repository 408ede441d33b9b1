/*
 * codec.c - `nowait bench codec`: how fast each codec turns floats into bytes and back, beside memcpy.
 *
 * Rates are bytes of f32 (4 a float) per second, whatever the codec makes of them, so that they compare with memcpy of
 * the same floats and with one another. One thread. For each length, all codecs and directions and memcpy take turns in
 * --repeats rounds, after one that is not timed; the median of each counts, and the ratio is that of the medians. The
 * lengths lie in the first-level caches or just beyond, in the second or third, and in memory.
 */
#include "bench/bench.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "codec/half_convert.h"
#include "codec/run.h"

#include <stdlib.h>
#include <string.h>

static const size_t lengths[] = {4 << 10, 256 << 10, 16 << 20};
enum {
    LENGTHS = sizeof lengths / sizeof lengths[0],
    LONGEST = 16 << 20,
    PER_TIMING = 4 << 20, /* floats, at least: some milliseconds */
    MOST_CODECS = 32,
};

typedef enum direction { ENCODE, DECODE, DECODE_ADD, DIRECTIONS } direction;
static const char *const direction_name[] = {"encode", "decode", "decode_add"};

typedef struct bench {
    const nw_bench_settings *asked;
    int codecs;
    nw_codec *codec[MOST_CODECS];
    nw_block block[LENGTHS]; /* of one item, for one receiver */
    nw_partial *partial;
    nw_scratch scratch;
    nw_arena arena;
    float *in, *out;
    uint8_t *bytes;
    nw_encoded encoded[LENGTHS][MOST_CODECS]; /* what became of `in` */
    double *samples;                          /* of one length: [contestant][round], in GB/s */
    double copy[LENGTHS], rate[LENGTHS][MOST_CODECS][DIRECTIONS];
} bench;

/* Of the samples: memcpy, then the codecs with their directions. */
static int contestants(const bench *b) { return 1 + b->codecs * DIRECTIONS; }
static double *samples_of(const bench *b, int contestant)
{
    return b->samples + (size_t)contestant * (size_t)b->asked->repeats;
}

static nw_status run_codec(bench *b, int index, direction d, int length)
{
    const nw_codec *codec = b->codec[index];
    const nw_block *block = &b->block[length];
    nw_encoded *encoded = &b->encoded[length][index];
    if (d == ENCODE) {
        nw_encoding e = {.block = block,
                         .codec = codec,
                         .ratio = codec->options.ratio,
                         .clip = 1,
                         .vector = b->in,
                         .partial = b->partial,
                         .scratch = &b->scratch,
                         .out = &b->bytes,
                         .encoded = encoded};
        NW_TRY(nw_codec_begin(&e, NULL));
        return nw_codec_end(&e, NULL);
    }
    nw_decoding decoding = {
        .block = block, .codec = codec, .in = b->bytes, .bytes = encoded->bytes, .scratch = &b->scratch};
    return nw_codec_decode(&decoding, b->out, NW_AT_FIRST, d == DECODE_ADD, NULL);
}

/* GB/s of floats. */
static nw_status time_one(bench *b, int contestant, int length, double *rate)
{
    size_t count = lengths[length], calls = count < PER_TIMING ? PER_TIMING / count : 1;
    int64_t start = nw_now_ns();
    for (size_t i = 0; i < calls; i++) {
        if (contestant > 0) {
            NW_TRY(run_codec(b, (contestant - 1) / DIRECTIONS, (direction)((contestant - 1) % DIRECTIONS), length));
        } else {
            memcpy(b->out, b->in, count * sizeof *b->in);
            __asm__ volatile("" ::: "memory"); /* or the compiler sees that once would do */
        }
    }
    *rate = (double)(calls * count * sizeof(float)) / (double)(nw_now_ns() - start);
    return NW_OK;
}

static double bytes_per_float(const bench *b, int length, int codec)
{
    return (double)b->encoded[length][codec].bytes / (double)lengths[length];
}

/* Encoding comes before decoding in every round, so the bytes are always those of the codec whose turn it is. */
static nw_status measure(bench *b)
{
    for (int l = 0; l < LENGTHS; l++) {
        for (int round = -1; round < b->asked->repeats; round++)
            for (int c = 0; c < contestants(b); c++) {
                double rate = 0;
                NW_TRY(time_one(b, c, l, &rate));
                if (round >= 0) samples_of(b, c)[round] = rate;
            }
        b->copy[l] = nw_median(samples_of(b, 0), b->asked->repeats);
        for (int c = 1; c < contestants(b); c++)
            b->rate[l][(c - 1) / DIRECTIONS][(c - 1) % DIRECTIONS] = nw_median(samples_of(b, c), b->asked->repeats);
    }
    return NW_OK;
}

static void print_table(const bench *b, nw_cpu_ticks before)
{
    printf("GB/s of f32 and their ratio to memcpy; one thread, halves by %s, median of %d round%s\n",
           nw_half_set_best()->name, b->asked->repeats, b->asked->repeats == 1 ? "" : "s");
    printf("%9s  %-7s %11s", "floats", "codec", "bytes/float");
    for (int d = 0; d < DIRECTIONS; d++) printf(" %10s  ratio", direction_name[d]);
    printf("\n");
    for (int l = 0; l < LENGTHS; l++) {
        printf("%9zu  %-7s %11s %10.2f\n", lengths[l], "memcpy", "", b->copy[l]);
        for (int c = 0; c < b->codecs; c++) {
            printf("%9s  %-7s %11.2f", "", b->codec[c]->ops->name, bytes_per_float(b, l, c));
            for (int d = 0; d < DIRECTIONS; d++)
                printf(" %10.2f %6.2f", b->rate[l][c][d], b->rate[l][c][d] / b->copy[l]);
            printf("\n");
        }
    }
    nw_bench_machine_table(before);
}

static void print_json(const bench *b, nw_cpu_ticks before)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "codec");
    nw_json_put_string(&json, "halves_by", nw_half_set_best()->name);
    nw_json_put_int(&json, "repeats", b->asked->repeats);
    nw_json_put_array(&json, "lengths");
    for (int l = 0; l < LENGTHS; l++) {
        nw_json_object(&json);
        nw_json_put_int(&json, "floats", (int64_t)lengths[l]);
        nw_json_put_double(&json, "memcpy_gb_per_second", b->copy[l]);
        nw_json_put_array(&json, "codecs");
        for (int c = 0; c < b->codecs; c++) {
            nw_json_object(&json);
            nw_json_put_string(&json, "codec", b->codec[c]->ops->name);
            nw_json_put_double(&json, "bytes_per_float", bytes_per_float(b, l, c));
            for (int d = 0; d < DIRECTIONS; d++) {
                nw_json_put_object(&json, direction_name[d]);
                nw_json_put_double(&json, "gb_per_second", b->rate[l][c][d]);
                nw_json_put_double(&json, "ratio_to_memcpy", b->rate[l][c][d] / b->copy[l]);
                nw_json_object_end(&json);
            }
            nw_json_object_end(&json);
        }
        nw_json_array_end(&json);
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

/* Numbers as gradients have them, near 0.01; a piece of them over and over. */
static void fill_floats(bench *b, int64_t seed)
{
    enum { PIECE = 1 << 16 };
    nw_rng rng = nw_rng_make((uint64_t)seed, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < PIECE; i++) b->in[i] = 0.01f * nw_rng_normal(&rng);
    for (size_t i = PIECE; i < LONGEST; i += PIECE) memcpy(b->in + i, b->in, PIECE * sizeof *b->in);
    memset(b->out, 0, LONGEST * sizeof *b->out); /* pages are there before the clock starts */
}

static void bind(bench *b, nw_arena *arena)
{
    b->in = nw_arena_alloc(arena, LONGEST * sizeof *b->in);
    b->out = nw_arena_alloc(arena, LONGEST * sizeof *b->out);
    b->bytes = nw_arena_alloc(arena, LONGEST * sizeof(float)); /* more than any codec needs */
    b->partial = nw_arena_alloc(arena, (LONGEST / NW_TILE_FLOATS + 1) * sizeof *b->partial);
    b->samples = nw_arena_alloc(arena, (size_t)contestants(b) * (size_t)b->asked->repeats * sizeof *b->samples);
}

static nw_status run_codec_bench(bench *b, int64_t seed)
{
    NW_FAIL_IF(nw_codec_kinds() > MOST_CODECS, NW_E_INTERNAL, "this benchmark has room for %d codecs, not for %d",
               MOST_CODECS, nw_codec_kinds());
    for (int i = 0; i < nw_codec_kinds(); i++) {
        nw_codec_options made = nw_codec_options_default(nw_codec_at(i)->name);
        if (nw_codec_at(i)->rounds) continue; /* no bytes of its own travel */
        NW_TRY(nw_codec_create(&b->codec[b->codecs++], &made));
    }
    for (int l = 0; l < LENGTHS; l++)
        NW_TRY(nw_block_make(&b->block[l], b->codec[0], &(nw_extent){0, lengths[l], 0, 1}, 1, (size_t[]){0, lengths[l]},
                             1, 0));
    nw_arena measured = nw_arena_measure();
    bind(b, &measured);
    NW_TRY(nw_arena_create(&b->arena, measured.used));
    bind(b, &b->arena);
    fill_floats(b, seed);
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
    nw_status status = run_codec_bench(b, all->seed);
    for (int c = 0; c < b->codecs; c++) nw_codec_free(b->codec[c]);
    for (int l = 0; l < LENGTHS; l++) nw_block_free(&b->block[l]);
    nw_arena_destroy(&b->arena);
    free(b);
    return status;
}
