/*
 * array.c - numpy's arrays: types, sizes, elements; see array.h.
 */
#include "data/array.h"

#include <string.h>

nw_status nw_array_type(nw_array *array, const char *text, size_t length, const char *name)
{
    const char *at = text, *end = text + length;
    array->big = false;
    if (at < end && strchr("<>|=", *at)) array->big = *at++ == '>';
    bool known = end - at == 2 && (at[1] == '1' || at[1] == '2' || at[1] == '4' || at[1] == '8');
    if (known) {
        array->kind = at[0];
        array->item = at[1] - '0';
        known = at[0] == 'u' || at[0] == 'i' || (at[0] == 'f' && at[1] >= '4') || (at[0] == 'b' && at[1] == '1');
    }
    NW_FAIL_IF(!known, NW_E_FILE,
               "%s: an array has numpy type '%.*s', but images and labels are whole numbers or floats of 1 to 8 bytes",
               name, (int)(length < 16 ? length : 16), text);
    return NW_OK;
}

nw_status nw_array_finish(nw_array *array, const uint8_t *data, size_t size, const char *name)
{
    uint64_t count = 1, bytes;
    for (int i = 0; i < array->dims; i++)
        NW_FAIL_IF(__builtin_mul_overflow(count, array->shape[i], &count), NW_E_FILE,
                   "%s: the shape of an array overflows", name);
    NW_FAIL_IF(__builtin_mul_overflow(count, (uint64_t)array->item, &bytes) || bytes != size, NW_E_FILE,
               "%s: an array of %llu elements of %d bytes has %zu bytes of data; the file is damaged", name,
               (unsigned long long)count, array->item, size);
    array->count = count;
    array->data = data;
    array->size = size;
    return NW_OK;
}

/* The bits of an element, in the machine's order, in the low end of 64. */
static uint64_t bits(const nw_array *array, uint64_t index)
{
    const uint8_t *p = array->data + index * (uint64_t)array->item;
    uint64_t value = 0;
    for (int i = 0; i < array->item; i++) value = value << 8 | p[array->big ? i : array->item - 1 - i];
    return value;
}

static double real(const nw_array *array, uint64_t word)
{
    if (array->item == 4) {
        uint32_t half = (uint32_t)word;
        float value;
        memcpy(&value, &half, sizeof value);
        return value;
    }
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
}

int64_t nw_array_int(const nw_array *array, uint64_t index)
{
    uint64_t word = bits(array, index);
    if (array->kind == 'f') {
        double value = real(array, word);
        return value > -9e18 && value < 9e18 ? (int64_t)value : INT64_MIN;
    }
    if (array->kind == 'i' && array->item < 8) { /* sign */
        uint64_t sign = (uint64_t)1 << (8 * array->item - 1);
        return (int64_t)((word ^ sign) - sign);
    }
    return (int64_t)word;
}

double nw_array_float(const nw_array *array, uint64_t index)
{
    return array->kind == 'f' ? real(array, bits(array, index)) : (double)nw_array_int(array, index);
}
