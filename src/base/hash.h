/* hash.h - a fast 64-bit hash of memory, to see whether two copies are equal. Not for names, files or adversaries. */
#ifndef NW_BASE_HASH_H
#define NW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Four independent lanes of 8 bytes, so that it runs at the speed of memory. */
static inline uint64_t nw_hash64(const void *data, size_t bytes)
{
    const uint64_t prime = 0x9e3779b97f4a7c15u;
    uint64_t lane[4] = {1, 2, 3, 4}, word[4];
    const unsigned char *at = data;
    size_t left = bytes;
    for (; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < 4; i++) {
            lane[i] = (lane[i] ^ word[i]) * prime;
            lane[i] ^= lane[i] >> 29;
        }
    }
    uint64_t hash = (uint64_t)bytes;
    for (; left > 0; left--) hash = (hash ^ *at++) * prime;
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ lane[i]) * prime;
        hash ^= hash >> 32;
    }
    return hash;
}

#endif
