/*
 * fuzz_message.c - messages as a transport hands them over, and payloads of each codec with any count.
 *
 * The input is a header and what follows it. First the header is checked as it is; what passes must keep its promises.
 * Then each codec decodes what follows the header, with the header's count and with counts that fit, into ranges of
 * exactly that length, so that a sanitizer sees the first float too far. A codec that refuses must not have written.
 */
#include "codec/run.h"
#include "net/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 8, MARK = 0x5a, MOST_FLOATS = 1 << 20 };

/* Whatever the sender, ranks of a world of 8 may have sent it or not. */
static void check(const nw_header *h, size_t size)
{
    for (int from = 0; from < WORLD; from++) {
        nw_status status = nw_message_check(h, size, from, WORLD);
        if (status != NW_OK && (status != NW_E_MESSAGE || strlen(nw_error_message()) == 0)) abort();
        if (status == NW_OK && (h->from != (uint32_t)from || h->bytes != size - NW_HEADER_BYTES || h->kind == 0 ||
                                h->channel >= NW_CHANNELS || h->reserved != 0 || h->index_bytes > h->bytes ||
                                h->scale_bytes > h->bytes - h->index_bytes))
            abort();
    }
}

static bool untouched(const float *out, size_t count)
{
    const uint8_t *bytes = (const uint8_t *)out;
    for (size_t i = 0; i < count * sizeof *out; i++)
        if (bytes[i] != MARK) return false;
    return true;
}

/* As bytes of one cut of a block of so many floats. */
static void decode(const nw_codec *codec, const nw_header *h, const uint8_t *bytes, size_t size, size_t count)
{
    nw_block b;
    size_t cuts[] = {0, count / 3, count};
    nw_extent items[] = {{0, count / 2, 0, 1}, {count / 2 + 5, count - count / 2, 1, 1}};
    if (count == 0 || count > MOST_FLOATS) return;
    const nw_block *blocks[] = {&b};
    nw_scratch scratch;
    if (nw_block_make(&b, codec, items, 2, cuts, 2, 0) != NW_OK) abort();
    if (nw_scratch_make(&scratch, blocks, 1, 1) != NW_OK) abort();
    nw_decoding d = {.block = &b,
                     .codec = codec,
                     .key = {h->step, h->channel, h->from},
                     .cut = h->part & 1,
                     .in = bytes,
                     .bytes = size,
                     .scratch = &scratch};
    float *out = malloc((count + 5) * sizeof *out);
    for (int add = 0; out && add < 2; add++) {
        memset(out, MARK, (count + 5) * sizeof *out);
        nw_status status = nw_codec_decode(&d, out, NW_AT_FIRST, add, NULL);
        if (status != NW_OK && (status != NW_E_MESSAGE || !untouched(out, count + 5))) abort();
    }
    free(out);
    nw_scratch_free(&scratch);
    nw_block_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static nw_codec *codecs[64];
    _Alignas(64) nw_header h = {0};
    memcpy(&h, data, size < sizeof h ? size : sizeof h);
    check(&h, size);
    if (size < sizeof h) return 0;
    const uint8_t *payload = data + sizeof h;
    size_t bytes = size - sizeof h;
    for (int c = 0; c < nw_codec_kinds() && c < 64; c++) {
        nw_codec_options o = nw_codec_options_default(nw_codec_at(c)->name);
        if (nw_codec_at(c)->rounds) continue; /* no bytes of its own travel */
        if (!codecs[c] && nw_codec_create(&codecs[c], &o) != NW_OK) abort();
        const size_t counts[] = {h.count, bytes, bytes / 2, bytes / 4, 3 * bytes / 4, 3 * bytes / 8};
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) decode(codecs[c], &h, payload, bytes, counts[i]);
    }
    return 0;
}
