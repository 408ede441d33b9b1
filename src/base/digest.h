/*
 * digest.h - SHA-256, for hashes of weights and files; and MD5, only to compare downloads with the digests that their
 * publishers give.
 */
#ifndef NW_BASE_DIGEST_H
#define NW_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nw_digest {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
    bool md5;
} nw_digest;

nw_digest nw_sha256_begin(void);
nw_digest nw_md5_begin(void);
void nw_digest_add(nw_digest *digest, const void *data, size_t bytes);
void nw_digest_end(nw_digest *digest, char text[65]); /* 64 hexadecimal digits and a zero; of MD5 32 */
/* All at once. */
void nw_sha256_of(const void *data, size_t bytes, char text[65]);

#endif
