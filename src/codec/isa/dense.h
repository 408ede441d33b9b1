/*
 * isa/dense.h - loops of the dense families (levels, trits, signs, exponents, bytes) and of draws, part of
 * isa/kernels.h.
 *
 * A step works on VL elements. The rest of a range is copied to a vector padded with zeros and goes through the same
 * step, so that the bits of an element depend neither on its position nor on the instruction set.
 *
 * Draws: Philox4x32-10 (base/rng.c) for 16 counters at once. A vector has every other counter in its 64-bit lanes. Only
 * the low words matter: products of 32-bit numbers need the whole lane, and the high words are never read.
 */

typedef double vd __attribute__((vector_size(VL * 4))); /* VL / 2 of them */
typedef float vfh __attribute__((vector_size(VL * 2)));
typedef float vfh_any __attribute__((vector_size(VL * 2), aligned(4), may_alias));
typedef uint64_t vw __attribute__((vector_size(VL * 4)));
typedef uint32_t vu_any __attribute__((vector_size(VL * 4), aligned(1), may_alias));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
typedef uint16_t vh_any __attribute__((vector_size(VL * 2), aligned(1), may_alias));
typedef uint8_t vb __attribute__((vector_size(VL)));
typedef uint8_t vb_any __attribute__((vector_size(VL), aligned(1), may_alias));

enum { ROW = 16, VECTORS = ROW / VL, PHILOX_ROUNDS = 10, GROUP_ROWS = 8 };

INLINE vf v_part(const float *p, size_t count)
{
    vf v = {0};
    memcpy(&v, p, count * sizeof *p);
    return v;
}
INLINE void v_give(float *out, vf x, bool add) { v_store(out, add ? v_load(out) + x : x); }
INLINE void v_give_part(float *out, vf x, size_t count, bool add)
{
    if (add) x = v_part(out, count) + x;
    memcpy(out, &x, count * sizeof *out);
}
INLINE vf v_magnitude(vf v) { return (vf)((vi)v & 0x7fffffff); }
INLINE vi v_smaller(vi a, vi b)
{
#if defined __AVX512F__ && VL == 16
    return (vi)_mm512_min_epi32((__m512i)a, (__m512i)b);
#elif defined __AVX2__ && VL == 8
    return (vi)_mm256_min_epi32((__m256i)a, (__m256i)b);
#else
    vi less = a < b;
    return (a & less) | (b & ~less);
#endif
}
INLINE vi v_of_halves(const uint16_t *p) { return __builtin_convertvector(*(const vh_any *)p, vi); }
INLINE void v_to_halves(uint16_t *p, vi v) { *(vh_any *)p = __builtin_convertvector(v, vh); }
/* Intrinsics, because GCC splits vectors of bytes into single elements. */
INLINE vi v_of_bytes(const uint8_t *p)
{
#if defined __AVX512F__ && VL == 16
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
#elif defined __AVX2__ && VL == 8
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
#else
    return __builtin_convertvector(*(const vb_any *)p, vi);
#endif
}
INLINE void v_to_bytes(uint8_t *p, vi v)
{
#if defined __AVX512F__ && VL == 16
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined __AVX2__ && VL == 8
    const __m256i low = _mm256_setr_epi32(0x0c080400, -1, -1, -1, 0x0c080400, -1, -1, -1);
    __m256i four = _mm256_shuffle_epi8((__m256i)v, low); /* at the beginning of each half */
    __m128i all = _mm_unpacklo_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    _mm_storel_epi64((__m128i_u *)p, all);
#else
    *(vb_any *)p = __builtin_convertvector(v, vb);
#endif
}

/* ---- draws ---- */

/* The low words of `a` times m. */
INLINE vw times_word(vw a, uint32_t m)
{
#if defined __AVX512F__ && VL == 16
    return (vw)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(m));
#elif defined __AVX2__ && VL == 8
    return (vw)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(m));
#elif defined __SSE2__ && VL == 4
    return (vw)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(m));
#else
    return (a & 0xffffffffu) * (uint64_t)m;
#endif
}
INLINE vw exclusive_or(vw a, vw b, vw c)
{
#if defined __AVX512F__ && VL == 16
    return (vw)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
    return a ^ b ^ c;
#endif
}

/* Words 0 to 3 of VL / 2 counters; keys: of each round. */
INLINE void philox_lanes(vw c[4], const vw keys[PHILOX_ROUNDS][2])
{
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        vw product0 = times_word(c[0], 0xD2511F53), product1 = times_word(c[2], 0xCD9E8D57);
        c[0] = exclusive_or(product1 >> 32, c[1], keys[round][0]);
        c[2] = exclusive_or(product0 >> 32, c[3], keys[round][1]);
        c[1] = product1;
        c[3] = product0;
    }
}

/* Each group of 128 numbers takes 16 counters, from counter[0] on; row h of the group is half-word h of each
 * counter. */
static void draws(const uint32_t key[2], const uint32_t counter[4], size_t groups, uint16_t *out)
{
    vw keys[PHILOX_ROUNDS][2], even = {0};
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        keys[round][0] = (vw){0} + (uint32_t)(key[0] + (uint32_t)round * 0x9E3779B9u);
        keys[round][1] = (vw){0} + (uint32_t)(key[1] + (uint32_t)round * 0xBB67AE85u);
    }
    for (unsigned k = 0; k < VL / 2; k++) even[k] = 2 * k;
    for (size_t g = 0; g < groups; g++)
        for (unsigned p = 0; p < VECTORS; p++) {
            vw first = even + (uint32_t)(counter[0] + ROW * g + p * VL), zero = {0};
            vw a[4] = {first, zero + counter[1], zero + counter[2], zero + counter[3]};
            vw b[4] = {first + 1, a[1], a[2], a[3]};
            philox_lanes(a, keys);
            philox_lanes(b, keys);
            for (int w = 0; w < 4; w++) {
                vu word = (vu)((a[w] & 0xffffffffu) | b[w] << 32);
                uint16_t *row = out + (GROUP_ROWS * g + 2 * (size_t)w) * ROW + p * VL;
                v_to_halves(row, (vi)word);
                v_to_halves(row + ROW, (vi)(word >> 16));
            }
        }
}

/* u = (r + 1/2) / 65536 for each random number. */
INLINE vf v_chance(const uint16_t *draw)
{
    return __builtin_convertvector(v_of_halves(draw), vf) * 0x1p-16f + 0x1p-17f;
}

/* ---- sums in double: element i in lane i % 16; lanes in order ---- */

INLINE double sum_lanes(const float *v, size_t count, bool square)
{
    vd sums[2 * VECTORS] = {0};
    double lanes[ROW], all = 0;
    size_t i = 0;
    for (; i + ROW <= count; i += ROW)
        for (size_t p = 0; p < 2 * VECTORS; p++) {
            vd x = __builtin_convertvector(*(const vfh_any *)(v + i + p * VL / 2), vd);
            sums[p] += square ? x * x : (vd)((vw)x & 0x7fffffffffffffffu);
        }
    memcpy(lanes, sums, sizeof lanes);
    for (; i < count; i++) {
        double x = (double)v[i];
        lanes[i % ROW] += square ? x * x : __builtin_fabs(x);
    }
    for (int k = 0; k < ROW; k++) all += lanes[k];
    return all;
}
static double squares(const float *v, size_t count) { return sum_lanes(v, count, true); }
static double magnitudes(const float *v, size_t count) { return sum_lanes(v, count, false); }

/* ---- levels: s + sign(v) min(s, floor(|v| inverse + u)) ---- */

INLINE void levels_step(vf v, const uint16_t *draw, float inverse, int32_t s, uint16_t *codes)
{
    vi level = __builtin_convertvector(v_magnitude(v) * inverse + v_chance(draw), vi), sign = (vi)v >> 31;
    level = v_smaller(level, s - (vi){0});
    v_to_halves(codes, ((level ^ sign) - sign) + s);
}
static void levels(const float *v, const uint16_t *draw, size_t count, float inverse, int32_t s, uint16_t *codes)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) levels_step(v_load(v + i), draw + i, inverse, s, codes + i);
    if (i < count) levels_step(v_part(v + i, count - i), draw + i, inverse, s, codes + i);
}

INLINE vf level_value(const uint16_t *codes, int32_t s, float factor)
{
    return __builtin_convertvector(v_of_halves(codes) - s, vf) * factor;
}
static void level_values(const uint16_t *codes, size_t count, int32_t s, float factor, float *out, bool add)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_give(out + i, level_value(codes + i, s, factor), add);
    if (i < count) v_give_part(out + i, level_value(codes + i, s, factor), count - i, add);
}

static uint32_t most_code(const uint16_t *codes, size_t count)
{
    uint16_t most = 0;
    for (size_t i = 0; i < count; i++) most = codes[i] > most ? codes[i] : most;
    return most;
}

/* ---- packing: 512 codes as `width` rows of 16 words; the rest as one stream of bits ---- */

enum { PACKED = 512, PACKED_ROWS = PACKED / ROW };

INLINE void pack_lanes(const uint16_t *codes, unsigned width, uint8_t *out)
{
    vu word = {0};
    unsigned filled = 0;
    for (int row = 0; row < PACKED_ROWS; row++) {
        vu code = (vu)v_of_halves(codes + row * ROW);
        word |= code << filled;
        filled += width;
        if (filled < 32) continue;
        *(vu_any *)out = word;
        out += 4 * ROW;
        filled -= 32;
        word = code >> (width - filled);
    }
}
INLINE void unpack_lanes(const uint8_t *in, unsigned width, uint16_t *codes)
{
    vu word = *(const vu_any *)in, mask = (1u << width) - (vu){0};
    unsigned left = 32;
    for (int row = 0; row < PACKED_ROWS; row++) {
        vu code = word >> (32 - left);
        if (left < width || (left == width && row + 1 < PACKED_ROWS)) {
            in += 4 * ROW;
            word = *(const vu_any *)in;
            if (left < width) code |= word << left;
            left += 32;
        }
        left -= width;
        v_to_halves(codes + row * ROW, (vi)(code & (mask - 1)));
    }
}

static void pack_rest(const uint16_t *codes, size_t count, unsigned width, uint8_t *out)
{
    uint32_t bits = 0;
    unsigned filled = 0;
    for (size_t i = 0; i < count; i++) {
        bits |= (uint32_t)codes[i] << filled;
        for (filled += width; filled >= 8; filled -= 8, bits >>= 8) *out++ = (uint8_t)bits;
    }
    if (filled > 0) *out = (uint8_t)bits;
}
static void unpack_rest(const uint8_t *in, size_t count, unsigned width, uint16_t *codes)
{
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < count; i++) {
        for (; held < width; held += 8) bits |= (uint32_t)*in++ << held;
        codes[i] = (uint16_t)(bits & ((1u << width) - 1));
        bits >>= width;
        held -= width;
    }
}

static void pack(const uint16_t *codes, size_t count, unsigned width, uint8_t *out)
{
    for (; count >= PACKED; count -= PACKED, codes += PACKED, out += 4 * ROW * width)
        for (size_t p = 0; p < VECTORS; p++) pack_lanes(codes + p * VL, width, out + 4 * p * VL);
    pack_rest(codes, count, width, out);
}
static void unpack(const uint8_t *in, size_t count, unsigned width, uint16_t *codes)
{
    for (; count >= PACKED; count -= PACKED, codes += PACKED, in += 4 * ROW * width)
        for (size_t p = 0; p < VECTORS; p++) unpack_lanes(in + 4 * p * VL, width, codes + p * VL);
    unpack_rest(in, count, width, codes);
}

/* ---- trits: 0, 1, 2 for -, 0, +; not 0 where u <= |v| inverse ---- */

INLINE void trits_step(vf v, const uint16_t *draw, float inverse, uint8_t *out)
{
    vi some = v_chance(draw) <= v_magnitude(v) * inverse, sign = (vi)v >> 31;
    v_to_bytes(out, 1 + (some & (sign | 1)));
}
static void trits(const float *v, const uint16_t *draw, size_t count, float inverse, uint8_t *out)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) trits_step(v_load(v + i), draw + i, inverse, out + i);
    if (i < count) trits_step(v_part(v + i, count - i), draw + i, inverse, out + i);
}

INLINE vf trit_value(const uint8_t *in, float scale) { return __builtin_convertvector(v_of_bytes(in) - 1, vf) * scale; }
static void trit_values(const uint8_t *in, size_t count, float scale, float *out, bool add)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_give(out + i, trit_value(in + i, scale), add);
    if (i < count) v_give_part(out + i, trit_value(in + i, scale), count - i, add);
}

/* Byte j of `bytes` bytes has trits j, j + bytes, .. j + 4 bytes; the first has weight 1, the last 81. */
static void trit_pack(const uint8_t *restrict in, size_t bytes, uint8_t *restrict out)
{
    for (size_t j = 0; j < bytes; j++) {
        uint8_t sum = in[j + 4 * bytes];
        for (size_t i = 4; i-- > 0;) sum = (uint8_t)(sum + sum + sum + in[j + i * bytes]);
        out[j] = sum;
    }
}
static void trit_unpack(const uint8_t *restrict in, size_t bytes, uint8_t *restrict out)
{
    for (size_t j = 0; j < bytes; j++) {
        uint16_t rest = in[j];
        for (size_t i = 0; i < 5; i++) {
            uint16_t third = (uint16_t)((uint16_t)(rest * 171) >> 9); /* rest / 3, exact up to 255 */
            out[j + i * bytes] = (uint8_t)(rest - 3 * third);
            rest = third;
        }
    }
}

/* Whether all bytes, after exclusive or with `flip`, are at most `most`. */
static bool bytes_within(const uint8_t *in, size_t count, uint8_t flip, uint8_t most)
{
    uint8_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = in[i] ^ flip;
        found = byte > found ? byte : found;
    }
    return found <= most;
}

/* ---- signs: bit j of the bytes is the sign bit of element j ---- */

INLINE unsigned sign_bits(vf v)
{
#if defined __AVX512DQ__ && VL == 16
    return _mm512_movepi32_mask((__m512i)v);
#elif defined __AVX__ && VL == 8
    return (unsigned)_mm256_movemask_ps((__m256)v);
#else
    unsigned bits = 0;
    for (int k = 0; k < VL; k++) bits |= ((vu)v)[k] >> 31 << k;
    return bits;
#endif
}
static void signs(const float *v, size_t count, uint8_t *out)
{
    size_t i = 0;
    for (; i + ROW <= count; i += ROW) {
        unsigned bits = 0;
        for (size_t p = 0; p < VECTORS; p++) bits |= sign_bits(v_load(v + i + p * VL)) << p * VL;
        *out++ = (uint8_t)bits;
        *out++ = (uint8_t)(bits >> 8);
    }
    for (; i < count; i += 8) {
        *out = 0;
        for (size_t k = i; k < count && k < i + 8; k++)
            *out = (uint8_t)(*out | (__builtin_signbit(v[k]) != 0) << (k - i));
        out++;
    }
}

static void sign_values(const uint8_t *in, size_t count, float scale, float *out, bool add)
{
    vi bit, value = (vi)(scale - (vf){0});
    size_t i = 0;
    for (int k = 0; k < VL; k++) bit[k] = 1 << k;
    for (; i + ROW <= count; i += ROW, in += 2)
        for (size_t p = 0; p < VECTORS; p++) {
            int32_t bits = (in[0] | in[1] << 8) >> p * VL;
            vi negative = ((bits & bit) != 0) & INT32_MIN;
            v_give(out + i + p * VL, (vf)(value | negative), add);
        }
    for (size_t k = 0; i < count; i++, k++) {
        float x = in[k / 8] >> k % 8 & 1 ? -scale : scale;
        out[i] = add ? out[i] + x : x;
    }
}

/* ---- exponents: a magnitude rounded stochastically to a power of two, 2^-108 to 2^18, in 7 bits below the sign
 * ---- */

INLINE vi exponent_of(vf v, const uint16_t *draw)
{
    vi field = (vi)((((vu)v & 0x7fffffffu) + ((vu)v_of_halves(draw) << 7)) >> 23), sign = (vi)((vu)v >> 31 << 7);
    return ((v_smaller(field, 145 - (vi){0}) - 18) & (field >= 19)) | sign;
}
static void exponents(const float *v, const uint16_t *draw, size_t count, uint8_t *out)
{
    size_t i = 0;
    uint8_t rest[VL];
    for (; i + VL <= count; i += VL) v_to_bytes(out + i, exponent_of(v_load(v + i), draw + i));
    v_to_bytes(rest, exponent_of(v_part(v + i, count - i), draw + i));
    memcpy(out + i, rest, count - i);
}

INLINE vf exponent_value(const uint8_t *in)
{
    vi code = v_of_bytes(in), field = code & 127;
    return (vf)((((field + 18) << 23) & (field != 0)) | (code & 128) << 24);
}
static void exponent_values(const uint8_t *in, size_t count, float *out, bool add)
{
    size_t i = 0;
    uint8_t rest[VL] = {0};
    for (; i + VL <= count; i += VL) v_give(out + i, exponent_value(in + i), add);
    memcpy(rest, in + i, count - i);
    v_give_part(out + i, exponent_value(rest), count - i, add);
}

/* ---- bytes: v inverse to the nearest whole number, -127 to 127 ---- */

/* Floats near 1.5 * 2^23 have steps of 1, so adding that rounds, and the low bits are the whole number. */
INLINE vi byte_of(vf v, float inverse) { return (vi)(v * inverse + 0x1.8p23f); }
static void bytes(const float *v, size_t count, float inverse, uint8_t *out)
{
    size_t i = 0;
    uint8_t rest[VL];
    for (; i + VL <= count; i += VL) v_to_bytes(out + i, byte_of(v_load(v + i), inverse));
    v_to_bytes(rest, byte_of(v_part(v + i, count - i), inverse));
    memcpy(out + i, rest, count - i);
}

INLINE vf byte_value(const uint8_t *in, float factor)
{
    return __builtin_convertvector(((v_of_bytes(in) ^ 128) - 128), vf) * factor;
}
static void byte_values(const uint8_t *in, size_t count, float factor, float *out, bool add)
{
    size_t i = 0;
    uint8_t rest[VL] = {0};
    for (; i + VL <= count; i += VL) v_give(out + i, byte_value(in + i, factor), add);
    memcpy(rest, in + i, count - i);
    v_give_part(out + i, byte_value(rest, factor), count - i, add);
}
