/*
 * pack.h - numbers into bytes and back, little-endian: for event logs.
 *
 * Both sides carry their failure along, so that a caller packs or unpacks many numbers and looks once: a packer that
 * found no memory adds nothing more; an unpacker that was asked for more than there is gives zeros from then on. A
 * count that is read must be compared with nw_unpack_left before anything is sized by it.
 */
#ifndef NW_BASE_PACK_H
#define NW_BASE_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct nw_packer {
    uint8_t *data; /* to be freed by whoever packs */
    size_t size, capacity;
    bool failed;
} nw_packer;

static inline uint8_t *nw_pack_room(nw_packer *packer, size_t bytes)
{
    size_t needed = packer->size + bytes;
    if (!packer->failed && needed > packer->capacity) {
        size_t capacity = needed < 256 ? 256 : needed + needed / 2;
        uint8_t *grown = realloc(packer->data, capacity);
        packer->failed = grown == NULL;
        if (grown != NULL) {
            packer->data = grown;
            packer->capacity = capacity;
        }
    }
    if (packer->failed) return NULL;
    packer->size = needed;
    return packer->data + needed - bytes;
}

/* The lowest `bytes` bytes of a number, 1 to 8. */
static inline void nw_pack(nw_packer *packer, uint64_t value, int bytes)
{
    uint8_t *at = nw_pack_room(packer, (size_t)bytes);
    for (int i = 0; at != NULL && i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* A text of less than 64 KiB: its length in two bytes, then its bytes. */
static inline void nw_pack_text(nw_packer *packer, const char *text)
{
    size_t length = strlen(text) & 0xffff;
    nw_pack(packer, length, 2);
    uint8_t *at = nw_pack_room(packer, length);
    if (at != NULL) memcpy(at, text, length);
}

typedef struct nw_unpacker {
    const uint8_t *data;
    size_t size, at;
    bool failed;
} nw_unpacker;

static inline size_t nw_unpack_left(const nw_unpacker *unpacker)
{
    return unpacker->failed ? 0 : unpacker->size - unpacker->at;
}

static inline const uint8_t *nw_unpack_bytes(nw_unpacker *unpacker, size_t bytes)
{
    if (bytes > nw_unpack_left(unpacker)) unpacker->failed = true;
    if (unpacker->failed) return NULL;
    unpacker->at += bytes;
    return unpacker->data + unpacker->at - bytes;
}

static inline uint64_t nw_unpack(nw_unpacker *unpacker, int bytes)
{
    const uint8_t *at = nw_unpack_bytes(unpacker, (size_t)bytes);
    uint64_t value = 0;
    for (int i = 0; at != NULL && i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* What nw_pack_text packed, cut to fit; empty after a failure. */
static inline void nw_unpack_text(nw_unpacker *unpacker, char *text, size_t room)
{
    size_t length = (size_t)nw_unpack(unpacker, 2);
    const uint8_t *at = nw_unpack_bytes(unpacker, length);
    size_t kept = at == NULL ? 0 : length < room ? length : room - 1;
    if (kept > 0) memcpy(text, at, kept);
    text[kept] = '\0';
}

#endif
