/* packed.c - see packed.h. */
#include "codec/packed.h"

#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel little-endian, as they lie in memory");

void nw_packed_write(uint8_t *out, nw_packed h)
{
    out[0] = h.family;
    out[1] = h.values;
    out[2] = h.parameter;
    out[3] = 0;
    nw_put_u32(out + 4, h.coordinates);
    nw_put_u32(out + 8, h.entries);
    nw_put_u32(out + 12, h.bytes);
}

nw_packed nw_packed_read(const uint8_t *in)
{
    return (nw_packed){.family = in[0],
                       .values = in[1],
                       .parameter = in[2],
                       .coordinates = nw_get_u32(in + 4),
                       .entries = nw_get_u32(in + 8),
                       .bytes = nw_get_u32(in + 12)};
}

nw_status nw_packed_check(const nw_decoding *d, uint8_t values, uint8_t parameter, nw_packed *h)
{
    const char *name = d->codec->ops->name;
    size_t floats = d->block->cut_floats[d->cut];
    NW_FAIL_IF(d->bytes < NW_PACKED_HEADER, NW_E_MESSAGE,
               "a block of codec %s has %zu bytes, fewer than the %d of its header", name, d->bytes, NW_PACKED_HEADER);
    *h = nw_packed_read(d->in);
    NW_FAIL_IF(
        h->family != d->codec->ops->family || h->values != values || h->parameter != parameter || d->in[3] != 0,
        NW_E_MESSAGE,
        "a block has family %u, values %u and parameter %u, but codec %s expects %d, %u and %u; give all ranks the same "
        "options",
        h->family, h->values, h->parameter, name, (int)d->codec->ops->family, values, parameter);
    NW_FAIL_IF(h->coordinates != floats || h->entries > floats, NW_E_MESSAGE,
               "a block of codec %s has %u entries of %u floats, but this part has %zu floats", name, h->entries,
               h->coordinates, floats);
    NW_FAIL_IF(h->bytes != d->bytes || d->bytes % 4 != 0, NW_E_MESSAGE,
               "the header of a block of codec %s says %u bytes, but %zu were received", name, h->bytes, d->bytes);
    return NW_OK;
}

nw_status nw_packed_check_zeros(const uint8_t *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        NW_FAIL_IF(at[i] != 0, NW_E_MESSAGE, "the padding of a block is %u, not 0", at[i]);
    return NW_OK;
}

nw_status nw_packed_check_scales(const uint8_t *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float scale = nw_get_f32(at + 4 * i);
        NW_FAIL_IF(!(scale >= 0) || isinf(scale), NW_E_MESSAGE,
                   "scale %zu of a block is %g; scales are finite and not negative", i, (double)scale);
    }
    return NW_OK;
}
