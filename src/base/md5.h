/* md5.h - MD5 (RFC 1321), only to compare downloads with the digests that their publishers give. */
#ifndef NW_BASE_MD5_H
#define NW_BASE_MD5_H

#include <stddef.h>
#include <stdint.h>

typedef struct nw_md5 {
    uint32_t state[4];
    uint64_t bytes;
    unsigned char block[64];
} nw_md5;

nw_md5 nw_md5_begin(void);
void nw_md5_add(nw_md5 *hash, const void *data, size_t bytes);
void nw_md5_end(nw_md5 *hash, char text[33]); /* 32 hexadecimal digits and a zero */

#endif
