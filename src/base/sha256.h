/* sha256.h - SHA-256 (FIPS 180-4), for hashes of weights and files. */
#ifndef NW_BASE_SHA256_H
#define NW_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct nw_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} nw_sha256;

nw_sha256 nw_sha256_begin(void);
void nw_sha256_add(nw_sha256 *hash, const void *data, size_t bytes);
void nw_sha256_end(nw_sha256 *hash, char text[65]);               /* 64 hexadecimal digits and a zero */
void nw_sha256_of(const void *data, size_t bytes, char text[65]); /* all at once */

#endif
