/*
 * fuzz_message.c - messages as a transport hands them over, and payloads of each codec with any count.
 *
 * The input is a header and what follows it. First the header is checked as it is; what passes must keep its promises.
 * Then each codec decodes what follows the header, with the header's count and with counts that fit, into ranges of
 * exactly that length, so that a sanitizer sees the first float too far. A codec that refuses must not have written.
 */
#include "codec/codec.h"
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

/* `count` is what the message claims. For counts that no memory holds there is no range: they must be refused. Those in
 * between would take too long. */
static void decode(const nw_codec *codec, const nw_header *h, const uint8_t *bytes, size_t size, size_t count)
{
    const nw_codec_key key = {h->step, h->bucket, h->part, h->from};
    if (count > MOST_FLOATS && count <= UINT32_MAX) return;
    size_t room = count <= MOST_FLOATS ? count : 0;
    float *out = malloc(room * sizeof *out + !room);
    if (!out) return;
    memset(out, MARK, room * sizeof *out);
    for (int add = 0; add < 2; add++) {
        nw_status status = add ? codec->ops->decode_add(codec, &key, bytes, size, out, count)
                               : codec->ops->decode(codec, &key, bytes, size, out, count);
        if (status == NW_OK && (room != count || codec->ops->bound(codec, count) < size)) abort();
        if (status != NW_OK && (status != NW_E_MESSAGE || !untouched(out, room))) abort();
        memset(out, MARK, room * sizeof *out);
    }
    free(out);
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
    for (int c = 0; c < nw_codec_count() && c < 64; c++) {
        if (!codecs[c] && nw_codec_create(&codecs[c], &(nw_codec_options){.name = nw_codec_at(c)->name}) != NW_OK)
            abort();
        const size_t counts[] = {
            h.count, bytes, bytes / 2, bytes / 4, SIZE_MAX / 2 + 1 + bytes / 2, SIZE_MAX / 4 + 1 + bytes / 4};
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) decode(codecs[c], &h, payload, bytes, counts[i]);
    }
    return 0;
}
