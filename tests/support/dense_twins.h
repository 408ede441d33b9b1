/*
 * dense_twins.h - the dense families in plain loops: one cut of a block into bytes, and what a receiver sees of it. Written
 * from the description of the bytes, element by element, with no tables of tiles' places. Include after cmocka.
 */
#ifndef NW_TESTS_DENSE_TWINS_H
#define NW_TESTS_DENSE_TWINS_H

#include "codec/draws.h"
#include "codec/packed.h"
#include "support/blocks.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A message that grows; scales and values apart. */
typedef struct twin {
    const nw_codec *codec;
    nw_rng stream;
    float scales[8192];
    size_t scale_count, value_bytes;
    uint8_t *values;
} twin;

static inline float twin_scale(double x)
{
    if (x < 0x1p-119) return 0;
    return x > (double)0x1.fffffp+127f ? 0x1.fffffp+127f : (float)x;
}

/* In 16 lanes, as promised. */
static inline double twin_sum(const float *v, size_t count, bool square)
{
    double lanes[16] = {0}, all = 0;
    for (size_t i = 0; i < count; i++) lanes[i % 16] += square ? (double)v[i] * (double)v[i] : fabs((double)v[i]);
    for (int k = 0; k < 16; k++) all += lanes[k];
    return all;
}
static inline float twin_largest(const float *v, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(v[i]));
    return most;
}

/* The scale of an item: of all its tiles, also of other cuts. */
static inline float twin_item_scale(const nw_block *b, int item, const float *v, bool max_norm)
{
    double all = 0;
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++) {
        const nw_tile *tile = &b->tiles[t];
        if (max_norm)
            all = fmax(all, (double)twin_largest(v + tile->first, tile->count));
        else
            all += twin_sum(v + tile->first, tile->count, true);
    }
    return twin_scale(max_norm ? all : sqrt(all));
}

static inline void twin_bits(uint8_t *out, size_t at, unsigned width, unsigned code)
{
    for (unsigned k = 0; k < width; k++, at++) out[at / 8] |= (uint8_t)((code >> k & 1) << at % 8);
}

static inline void twin_qsgd(twin *w, const nw_tile *tile, float item_scale, const float *v, float *seen)
{
    const nw_codec_options *o = &w->codec->options;
    unsigned width = (unsigned)ceil(log2(2 * o->levels + 1));
    size_t whole = tile->count / 512 * 512;
    float s = (float)o->levels;
    float scale = item_scale;
    for (size_t i = 0; i < tile->count; i++) {
        if (o->bucket && i % (size_t)o->bucket == 0) {
            size_t count = tile->count - i < (size_t)o->bucket ? tile->count - i : (size_t)o->bucket;
            scale = o->max_norm ? twin_scale((double)twin_largest(v + i, count))
                                : twin_scale(sqrt(twin_sum(v + i, count, true)));
            w->scales[w->scale_count++] = scale;
        }
        float u = ((float)nw_draw(&w->stream, tile->within + (uint32_t)i) + 0.5f) / 65536;
        float inverse = scale > 0 ? s / scale : 0;
        if (isinf(inverse)) inverse = 0;
        float scaled = fabsf(v[i]) * inverse; /* rounded before the sum, as FLT_EVAL_METHOD is 0 */
        int level = (int)fminf(floorf(scaled + u), s), code = signbit(v[i]) ? o->levels - level : o->levels + level;
        seen[i] = (float)(code - o->levels) * (scale / s);
        if (i < whole)
            /* Row of 512, lane, place in the lane's stream of 32 codes; a lane's words are 64 bytes apart. */
            for (unsigned k = 0; k < width; k++) {
                size_t bit = i % 512 / 16 * width + k, word = i / 512 * width * 16 + bit / 32 * 16 + i % 16;
                twin_bits(w->values + w->value_bytes, 32 * word + bit % 32, 1, (unsigned)code >> k & 1);
            }
        else
            twin_bits(w->values + w->value_bytes + whole / 8 * width, (i - whole) * width, width, (unsigned)code);
    }
    w->value_bytes += whole / 8 * width + ((tile->count - whole) * width + 7) / 8;
}

static inline void twin_terngrad(twin *w, const nw_tile *tile, float scale, const float *v, float *seen)
{
    size_t bytes = (tile->count + 4) / 5;
    float inverse = scale > 0 ? 1 / scale : 0;
    uint8_t *out = w->values + w->value_bytes;
    for (size_t i = 0; i < 5 * bytes; i++) {
        int trit = 0;
        static const uint8_t power[] = {1, 3, 9, 27, 81};
        if (i < tile->count) {
            float u = ((float)nw_draw(&w->stream, tile->within + (uint32_t)i) + 0.5f) / 65536;
            trit = u <= fabsf(v[i]) * inverse ? (signbit(v[i]) ? -1 : 1) : 0;
            seen[i] = (float)trit * scale;
        }
        out[i % bytes] = (uint8_t)(out[i % bytes] + (trit + 1) * power[i / bytes]);
    }
    w->value_bytes += bytes;
}

static inline void twin_sign(twin *w, const nw_tile *tile, const float *v, float *seen)
{
    for (size_t i = 0; i < tile->count; i++) {
        size_t from = i - i % 1024, count = tile->count - from < 1024 ? tile->count - from : 1024;
        if (i == from) w->scales[w->scale_count++] = twin_scale(twin_sum(v + from, count, false) / (double)count);
        seen[i] = copysignf(w->scales[w->scale_count - 1], v[i]);
        twin_bits(w->values + w->value_bytes, i, 1, signbit(v[i]) != 0);
    }
    w->value_bytes += (tile->count + 7) / 8;
}

static inline void twin_int8(twin *w, const nw_tile *tile, const float *v, float *seen)
{
    for (size_t i = 0; i < tile->count; i++) {
        size_t from = i - i % 256, count = tile->count - from < 256 ? tile->count - from : 256;
        if (i == from) w->scales[w->scale_count++] = twin_scale((double)twin_largest(v + from, count));
        float scale = w->scales[w->scale_count - 1], inverse = scale > 0 ? 127 / scale : 0;
        int code = (int)rintf(v[i] * inverse);
        seen[i] = (float)code * (scale / 127);
        w->values[w->value_bytes++] = (uint8_t)code;
    }
}

/* By value: between two powers of two, the greater with the chance that the place between them says. */
static inline void twin_natural(twin *w, const nw_tile *tile, const float *v, float *seen)
{
    for (size_t i = 0; i < tile->count; i++) {
        double m = fabs((double)v[i]), r = nw_draw(&w->stream, tile->within + (uint32_t)i) / 65536.0;
        int exponent = m >= (double)FLT_MIN ? ilogb(m) : -127;
        /* Subnormals lie between 0 and 2^-126, of which nothing is sent. */
        double place = m >= (double)FLT_MIN ? ldexp(m, -exponent) - 1 : 0;
        if (place + r >= 1) exponent++;
        int code = exponent < -108 ? 0 : (exponent > 18 ? 18 : exponent) + 109;
        seen[i] = copysignf(code ? (float)ldexp(1, code - 109) : 0, v[i]);
        w->values[w->value_bytes++] = (uint8_t)(code | (signbit(v[i]) ? 128 : 0));
    }
}

/* Bytes of the cut to out; what a receiver sees to seen, at the places of the vector. */
static inline size_t twin_encode(const nw_codec *codec, const nw_codec_key *key, const nw_block *b, int cut,
                                 const float *v, uint8_t *out, float *seen)
{
    nw_family family = codec->ops->family;
    bool max_norm = family == NW_FAMILY_TERNARY || codec->options.max_norm;
    bool by_item = family == NW_FAMILY_TERNARY || (family == NW_FAMILY_LEVELS && codec->options.bucket == 0);
    twin *w = calloc(1, sizeof *w);
    w->codec = codec;
    w->values = calloc(1, 8 * b->floats + 64);
    for (int t = b->cut_tile[cut], item = -1; t < b->cut_tile[cut + 1]; t++) {
        const nw_tile *tile = &b->tiles[t];
        const float *at = v + tile->first;
        float scale = by_item ? twin_item_scale(b, tile->item, v, max_norm) : 0;
        if (by_item && tile->item != item) w->scales[w->scale_count++] = scale;
        item = tile->item;
        w->stream = nw_draws_stream(codec, key, b->number[item], false);
        if (family == NW_FAMILY_LEVELS) twin_qsgd(w, tile, scale, at, seen + tile->first);
        if (family == NW_FAMILY_TERNARY) twin_terngrad(w, tile, scale, at, seen + tile->first);
        if (family == NW_FAMILY_SIGN) twin_sign(w, tile, at, seen + tile->first);
        if (family == NW_FAMILY_EXPONENT) twin_natural(w, tile, at, seen + tile->first);
        if (family == NW_FAMILY_BYTES) twin_int8(w, tile, at, seen + tile->first);
    }
    size_t scale_bytes = 4 * w->scale_count, bytes = 16 + scale_bytes + nw_pad4(w->value_bytes);
    uint8_t parameter = family == NW_FAMILY_LEVELS  ? (uint8_t)ceil(log2(2 * codec->options.levels + 1))
                        : family == NW_FAMILY_SIGN  ? 10
                        : family == NW_FAMILY_BYTES ? 8
                                                    : 0;
    memset(out, 0, bytes);
    out[0] = (uint8_t)family;
    out[2] = parameter;
    nw_put_u32(out + 4, (uint32_t)b->cut_floats[cut]);
    nw_put_u32(out + 8, (uint32_t)b->cut_floats[cut]);
    nw_put_u32(out + 12, (uint32_t)bytes);
    memcpy(out + 16, w->scales, scale_bytes);
    memcpy(out + 16 + scale_bytes, w->values, w->value_bytes);
    free(w->values);
    free(w);
    return bytes;
}

#endif
