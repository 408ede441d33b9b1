/* block.c - see block.h. */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

/* Divides the extents into tiles and returns their number; with tiles == NULL it only counts them. */
static int make_tiles(nw_tile *tiles, const nw_extent *extents, int extent_count, const size_t *cuts, int cut_count)
{
    int count = 0, cut = 0, item = -1;
    size_t at = 0, within = 0;
    for (int s = 0; s < extent_count; s++) {
        size_t first = extents[s].first, end = first + extents[s].count;
        if (extents[s].item != item) within = 0;
        item = extents[s].item;
        while (first < end) {
            while (cut + 1 < cut_count && at >= cuts[cut + 1]) cut++;
            size_t length = end - first;
            if (length > NW_TILE_FLOATS) length = NW_TILE_FLOATS;
            if (length > cuts[cut + 1] - at) length = cuts[cut + 1] - at;
            if (tiles)
                tiles[count] = (nw_tile){.first = first,
                                         .kept = first,
                                         .element = at,
                                         .count = (uint32_t)length,
                                         .place = (uint32_t)(at - cuts[cut]),
                                         .within = (uint32_t)within,
                                         .item = item,
                                         .cut = cut};
            count++;
            first += length;
            at += length;
            within += length;
        }
    }
    return count;
}

static nw_status allocate(nw_block *b)
{
    NW_NEW(b->tiles, b->tile_count + 1, "%d tiles", b->tile_count);
    NW_NEW(b->item_tile, b->item_count + 1, "%d items", b->item_count);
    NW_NEW(b->cut_tile, b->cut_count + 1, "%d cuts", b->cut_count);
    NW_NEW(b->cut_floats, b->cut_count + 1, "%d cuts", b->cut_count);
    NW_NEW(b->number, b->item_count + 1, "%d items", b->item_count);
    NW_NEW(b->rows, b->item_count + 1, "%d items", b->item_count);
    return NW_OK;
}

/* Finds where the bytes and scales of each tile are in its cut. Without tile_scales each item has one scale. */
static void place_tiles(nw_block *b)
{
    const nw_codec_ops *ops = b->codec->ops;
    for (int c = 0; ops->tile_bytes && c < b->cut_count; c++) {
        size_t at = 0, scale = 0;
        for (int t = b->cut_tile[c]; t < b->cut_tile[c + 1]; t++) {
            nw_tile *tile = &b->tiles[t];
            tile->at = (uint32_t)at;
            tile->scale = (uint32_t)(ops->tile_scales ? scale : (size_t)(tile->item - b->tiles[b->cut_tile[c]].item));
            at += ops->tile_bytes(b->codec, tile->count);
            if (ops->tile_scales) scale += ops->tile_scales(b->codec, tile->count);
        }
    }
}

/* Fills the tables that follow from the tiles. */
static void index_tiles(nw_block *b)
{
    int item = 0, cut = 0;
    for (int t = 0; t < b->tile_count; t++) {
        const nw_tile *tile = &b->tiles[t];
        while (item <= tile->item) b->item_tile[item++] = t;
        while (cut <= tile->cut) b->cut_tile[cut++] = t;
        b->cut_floats[tile->cut] += tile->count;
        b->floats += tile->count;
    }
    while (item <= b->item_count) b->item_tile[item++] = b->tile_count;
    while (cut <= b->cut_count) b->cut_tile[cut++] = b->tile_count;
    place_tiles(b);
}

nw_status nw_block_make(nw_block *b, const nw_codec *codec, const nw_extent *extents, int extent_count,
                        const size_t *cuts, int cut_count, uint32_t first_number)
{
    *b = (nw_block){.codec = codec, .cut_count = cut_count};
    b->tile_count = make_tiles(NULL, extents, extent_count, cuts, cut_count);
    b->item_count = extent_count > 0 ? extents[extent_count - 1].item + 1 : 0;
    NW_TRY(allocate(b));
    make_tiles(b->tiles, extents, extent_count, cuts, cut_count);
    index_tiles(b);
    for (int i = 0; i < b->item_count; i++) b->number[i] = first_number + (uint32_t)i;
    for (int i = 0; i < extent_count; i++) b->rows[extents[i].item] = extents[i].rows ? extents[i].rows : 1;
    return NW_OK;
}

nw_status nw_block_make_part(nw_block *part, const nw_block *b, int cut, size_t kept)
{
    const nw_tile *from = b->tiles + b->cut_tile[cut];
    int count = b->cut_tile[cut + 1] - b->cut_tile[cut];
    int item = count > 0 ? from[0].item : 0;
    *part = (nw_block){.codec = b->codec, .cut_count = 1, .tile_count = count};
    part->item_count = count > 0 ? from[count - 1].item + 1 - item : 0;
    NW_TRY(allocate(part));
    for (int t = 0; t < count; t++) {
        part->tiles[t] = from[t];
        part->tiles[t].item -= item;
        part->tiles[t].cut = 0;
        part->tiles[t].kept = kept + from[t].place;
        part->tiles[t].element = from[t].place;
    }
    index_tiles(part);
    for (int i = 0; i < part->item_count; i++) {
        part->number[i] = b->number[item + i];
        part->rows[i] = 1; /* a part of a matrix is treated as a vector */
    }
    return NW_OK;
}

void nw_block_free(nw_block *b)
{
    free(b->tiles);
    free(b->item_tile);
    free(b->cut_tile);
    free(b->cut_floats);
    free(b->number);
    free(b->rows);
    *b = (nw_block){0};
}
