/* sha256.c - SHA-256 (FIPS 180-4), plain loops. */
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

static const uint32_t k[64] = {
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

static void mix_block(uint32_t state[8], const unsigned char *p)
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
    mix_round(V(0, r), V(1, r), V(2, r), &V(3, r), V(4, r), V(5, r), V(6, r), &V(7, r), k[i + (r)] + w[i + (r)])
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

nw_sha256 nw_sha256_begin(void)
{
    return (nw_sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void nw_sha256_add(nw_sha256 *hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    size_t held = hash->bytes % 64;
    hash->bytes += bytes;
    while (held + bytes >= 64) {
        size_t take = 64 - held;
        if (held == 0) {
            mix_block(hash->state, p);
        } else {
            memcpy(hash->block + held, p, take);
            mix_block(hash->state, hash->block);
            held = 0;
        }
        p += take;
        bytes -= take;
    }
    if (bytes) memcpy(hash->block + held, p, bytes);
}

void nw_sha256_end(nw_sha256 *hash, char text[65])
{
    uint64_t bits = hash->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    nw_sha256_add(hash, "\x80", 1);
    while (hash->bytes % 64 != 56) nw_sha256_add(hash, "", 1);
    nw_sha256_add(hash, length, 8);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", hash->state[i]);
}

void nw_sha256_of(const void *data, size_t bytes, char text[65])
{
    nw_sha256 hash = nw_sha256_begin();
    nw_sha256_add(&hash, data, bytes);
    nw_sha256_end(&hash, text);
}
