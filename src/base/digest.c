/*
 * digest.c - SHA-256 (FIPS 180-4) and MD5 (RFC 1321), plain loops. Both take blocks of 64 bytes and end with the number
 * of bits; words and that number are big-endian in the one and little-endian in the other.
 */
#include "base/digest.h"

#include <stdio.h>
#include <string.h>

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* One round: h becomes the new a, and d the new e. */
static inline void mix_round(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g,
                             uint32_t *h, uint32_t kw)
{
    uint32_t t = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + kw;
    *d += t;
    *h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void mix_sha256(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, state, sizeof v);
    /* The eight words move on by one place a round. Instead of moving them, eight rounds name them in turn. */
#define ROUND(r) \
    mix_round(V(0, r), V(1, r), V(2, r), &V(3, r), V(4, r), V(5, r), V(6, r), &V(7, r), sha256_k[i + (r)] + w[i + (r)])
#define V(place, r) v[((place) - (r)) & 7]
    for (int i = 0; i < 64; i += 8) {
        ROUND(0);
        ROUND(1);
        ROUND(2);
        ROUND(3);
        ROUND(4);
        ROUND(5);
        ROUND(6);
        ROUND(7);
    }
#undef V
#undef ROUND
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

/* floor(2^32 |sin(i + 1)|) */
static const uint32_t md5_k[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

static void mix_md5(uint32_t state[4], const unsigned char *p)
{
    static const int turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
               (uint32_t)p[4 * i + 3] << 24;
    for (int i = 0; i < 64; i++) {
        uint32_t f;
        int g, turn = turns[i / 16][i % 4];
        switch (i / 16) {
        case 0:
            f = (b & c) | (~b & d), g = i;
            break;
        case 1:
            f = (d & b) | (~d & c), g = (5 * i + 1) % 16;
            break;
        case 2:
            f = b ^ c ^ d, g = (3 * i + 5) % 16;
            break;
        default:
            f = c ^ (b | ~d), g = 7 * i % 16;
        }
        f += a + md5_k[i] + w[g];
        a = d;
        d = c;
        c = b;
        b += f << turn | f >> (32 - turn);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

nw_digest nw_sha256_begin(void)
{
    return (nw_digest){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

nw_digest nw_md5_begin(void)
{
    return (nw_digest){.md5 = true, .state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void nw_digest_add(nw_digest *digest, const void *data, size_t bytes)
{
    void (*mix)(uint32_t * state, const unsigned char *block) = digest->md5 ? mix_md5 : mix_sha256;
    const unsigned char *p = data;
    size_t held = digest->bytes % 64;
    digest->bytes += bytes;
    while (held + bytes >= 64) {
        size_t take = 64 - held;
        if (held == 0) {
            mix(digest->state, p);
        } else {
            memcpy(digest->block + held, p, take);
            mix(digest->state, digest->block);
            held = 0;
        }
        p += take;
        bytes -= take;
    }
    if (bytes) memcpy(digest->block + held, p, bytes);
}

void nw_digest_end(nw_digest *digest, char text[65])
{
    uint64_t bits = digest->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> 8 * (digest->md5 ? i : 7 - i));
    nw_digest_add(digest, "\x80", 1);
    while (digest->bytes % 64 != 56) nw_digest_add(digest, "", 1);
    nw_digest_add(digest, length, 8);
    for (int i = 0; i < (digest->md5 ? 4 : 8); i++) {
        uint32_t word = digest->md5 ? __builtin_bswap32(digest->state[i]) : digest->state[i];
        snprintf(text + 8 * i, 9, "%08x", word);
    }
}

void nw_sha256_of(const void *data, size_t bytes, char text[65])
{
    nw_digest digest = nw_sha256_begin();
    nw_digest_add(&digest, data, bytes);
    nw_digest_end(&digest, text);
}
