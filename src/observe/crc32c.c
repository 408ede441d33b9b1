/*
 * crc32c.c - CRC-32C with the reflected polynomial 0x82F63B78 (RFC 3720, B.4), four bits at a time.
 *
 * Events have some hundred bytes each, so a table of 16 words is fast enough. Any thread may call.
 */
#include "observe/crc32c.h"

/* Entry i: the remainder of the four bits i, the lowest first. */
static const uint32_t nibbles[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3,
                                     0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                     0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};

uint32_t nw_crc32c(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = (crc >> 4) ^ nibbles[crc & 15];
        crc = (crc >> 4) ^ nibbles[crc & 15];
    }
    return ~crc;
}

uint32_t nw_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = nw_crc32c(data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}
