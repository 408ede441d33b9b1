/*
 * server_shadows.c - sends parameters to workers as compressed differences. For each worker the server keeps a shadow:
 * the parameters as that worker has them. See server.c and server_private.h.
 *
 * Sparsifying and quantising codecs would destroy parameters, but they suit the changes of parameters. So a server
 * keeps the shadow w of each worker and sends the compressed difference from its parameters x:
 *
 *   d = C(x - w),   w := w + d   on both sides, in the same f32 operations, so that both are equal bit for bit.
 *
 * What C loses is part of x - w the next time, so no error memory is needed (this is EF21, Richtarik et al. 2021).
 * Buckets of the codecs none, fp16 and bf16 are sent directly. When quiescent all workers have x exactly, so shadows
 * are not saved. A worker that joins again gets x exactly, and its shadow is set to x.
 *
 * Memory: one range of the parameters for each worker; nw_server_shadow_bytes computes it before it is allocated.
 */
#include "exchange/server_private.h"

#include <stdlib.h>

/* Whether a bucket is sent to workers as a difference. */
static bool is_difference(const server *s, int bucket)
{
    const nw_codec *codec = s->layout.at[bucket].block.codec;
    return !codec->exact && codec->ops->family > NW_FAMILY_BF16;
}

bool nw_shadows_needed(const server *s)
{
    bool needed = false;
    for (int b = 0; b < s->layout.count; b++) needed |= is_difference(s, b);
    return needed;
}

nw_status nw_shadows_make(server *s)
{
    master *m = &s->master;
    size_t floats = 0;
    if (!s->shadowed) return NW_OK;
    for (int b = 0; b < s->layout.count; b++) floats += s->down.parts[b].floats;
    NW_NEW(m->difference, s->params->learned.floats, "%zu parameters", s->params->learned.floats);
    for (int i = 0; i < s->workers; i++)
        if (!is_own(s, &m->clients[i]))
            NW_NEW(m->clients[i].shadow, floats, "a copy of %zu parameters for worker %d of %d", floats, i, s->workers);
    return NW_OK;
}

void nw_shadows_free(server *s)
{
    for (int i = 0; s->master.clients && i < s->workers; i++) free(s->master.clients[i].shadow);
    free(s->master.difference);
}

/* Sets the worker's shadow to the parameters. */
void nw_shadows_are_exact(server *s, nw_actions *actions, client *c)
{
    for (int b = 0; c->shadow && b < s->layout.count; b++) {
        const nw_block *part = &s->down.parts[b];
        for (int t = 0; t < part->tile_count && is_difference(s, b); t++) {
            const nw_tile *tile = &part->tiles[t];
            const float *x = s->params->values + tile->first;
            for (uint32_t i = 0; i < tile->count; i++) c->shadow[tile->kept + i] = x[i];
        }
        if (part->tile_count > 0) nw_channel_touch(actions, part, 0, s->params->values, false);
        actions->touched += part->floats * sizeof(float);
    }
}

/* Writes x - w, or w itself, to `difference`, which is indexed as the parameters. */
static void fill(const server *s, const nw_block *part, const client *c, bool itself)
{
    for (int t = 0; t < part->tile_count; t++) {
        const nw_tile *tile = &part->tiles[t];
        const float *x = s->params->values + tile->first, *w = c->shadow + tile->kept;
        float *out = s->master.difference + tile->first;
        for (uint32_t i = 0; i < tile->count; i++) out[i] = itself ? w[i] : x[i] - w[i];
    }
}

/* Encodes the difference of one bucket, and updates the worker's shadow. */
static nw_status encode_difference(server *s, nw_actions *actions, client *c, int bucket, nw_message **out)
{
    const nw_block *part = &s->down.parts[bucket];
    int64_t version = s->master.version;
    nw_moment when = {.step = version, .clock = version * s->o.accumulation, .version = version};
    fill(s, part, c, false);
    nw_channel_touch(actions, part, 0, s->params->values, false);
    actions->touched += 2 * part->floats * sizeof(float);
    NW_TRY(nw_channel_encode(&s->down, actions, bucket, when, s->master.difference, -1, NW_CODED, out));
    (*out)->header->kind = MODEL;
    (*out)->header->flags = DIFFERENCE;
    (*out)->header->from = s->base.group.ranks[s->base.group.me];
    return nw_channel_decode_own(&s->down, actions, *out, c->shadow, true);
}

nw_status nw_shadows_send(server *s, nw_actions *actions, client *c)
{
    bool exactly = c->has < 0;
    for (int b = 0; b < s->layout.count; b++) {
        nw_message *m = NULL;
        bool difference = is_difference(s, b) && !exactly;
        if (s->down.parts[b].floats == 0) continue;
        if (difference)
            NW_TRY(encode_difference(s, actions, c, b, &m));
        else
            NW_TRY(nw_server_encode_own(s, actions, MODEL, is_difference(s, b) ? NW_PLAINLY : NW_CODED, b,
                                        s->master.version, &m));
        NW_TRY(nw_server_send(s, actions, c->member, m));
    }
    if (exactly) nw_shadows_are_exact(s, actions, c);
    return NW_OK;
}

nw_status nw_shadows_copy(server *s, nw_actions *actions, const client *c, int bucket, nw_message **out)
{
    const nw_block *part = &s->down.parts[bucket];
    int64_t version = s->master.version;
    nw_moment when = {.step = version, .version = version};
    if (!is_difference(s, bucket) || !c->shadow)
        return nw_server_encode_own(s, actions, MODEL, is_difference(s, bucket) ? NW_PLAINLY : NW_CODED, bucket,
                                    version, out);
    *out = NULL;
    if (part->floats == 0) return NW_OK;
    fill(s, part, c, true);
    NW_TRY(nw_channel_encode(&s->down, actions, bucket, when, s->master.difference, -1, NW_PLAINLY, out));
    (*out)->header->kind = MODEL;
    (*out)->header->from = s->base.group.ranks[s->base.group.me];
    return NW_OK;
}

size_t nw_server_shadow_bytes(const nw_exchange_options *o, const nw_segments *segments)
{
    size_t floats = 0;
    int servers = nw_server_servers(o);
    for (int i = 0; i < segments->count; i++) {
        const nw_codec *codec = o->layout.codecs ? o->layout.codecs[i] : o->layout.codec;
        if (!codec->exact && codec->ops->family > NW_FAMILY_BF16) floats = segments->floats;
    }
    return floats / (size_t)servers * sizeof(float) * (size_t)nw_server_workers(o);
}
