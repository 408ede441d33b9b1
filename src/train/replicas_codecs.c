/*
 * replicas_codecs.c - tables about compression for the user: the codec of each tensor, how buckets are reduced and how
 * many bytes that sends, and what encoding cost in the end.
 */
#include "train/replicas.h"

#include "channel/warm_up.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nw_params *params_of(const nw_replicas *group) { return &nw_replicas_first(group)->net->model.params; }

/* Whether this run can have counts there: the same on all ranks. */
static bool is_used(const nw_replicas *group, int index)
{
    bool used = false;
    for (int i = 0; i < group->assignment.codec_count; i++)
        used |= nw_channel_stats_index(group->assignment.codecs[i]) == index;
    return used;
}

static nw_status gather_counts(nw_replicas *group, nw_channel_stats *sum, nw_codec_stats *all)
{
    int world = nw_replicas_world(group);
    for (int k = 0; k < NW_STATS_CODECS; k++) {
        nw_codec_stats mine = sum->of[k];
        if (!is_used(group, k)) continue;
        NW_TRY(nw_driver_allgather(group->driver, &mine, sizeof mine, all));
        sum->of[k] = (nw_codec_stats){0};
        for (int i = 0; i < world; i++)
            if (!group->dropped[i]) nw_channel_stats_merge(&sum->of[k], &all[i]);
    }
    return NW_OK;
}

/* What no codec has. */
typedef struct totals {
    int64_t sent_floats;
    double memory_square;
} totals;

static nw_status gather_totals(nw_replicas *group, nw_channel_stats *sum, totals *all)
{
    totals mine = {sum->sent_floats, sum->memory_square};
    NW_TRY(nw_driver_allgather(group->driver, &mine, sizeof mine, all));
    sum->sent_floats = 0;
    sum->memory_square = 0;
    for (int i = 0; i < nw_replicas_world(group); i++) {
        if (group->dropped[i]) continue;
        sum->sent_floats += all[i].sent_floats;
        sum->memory_square += all[i].memory_square;
    }
    return NW_OK;
}

nw_status nw_replicas_channel_stats(nw_replicas *group, nw_channel_stats *sum)
{
    size_t world = (size_t)nw_replicas_world(group);
    *sum = (nw_channel_stats){0};
    for (int i = 0; i < group->count; i++) {
        nw_channel_stats *own = &group->members[i].stats;
        nw_channel_stats_read_memory(own);
        for (int k = 0; k < NW_STATS_CODECS; k++) nw_channel_stats_merge(&sum->of[k], &own->of[k]);
        sum->sent_floats += own->sent_floats;
        sum->memory_square += own->memory_square;
    }
    if (group->options.mode != NW_REPLICAS_MPI) return NW_OK;
    NW_AUTOFREE nw_codec_stats *counts = calloc(world, sizeof *counts);
    NW_AUTOFREE totals *rest = calloc(world, sizeof *rest);
    NW_FAIL_IF(!counts || !rest, NW_E_MEMORY, "no memory for the counts of %zu ranks", world);
    NW_TRY(gather_totals(group, sum, rest));
    return gather_counts(group, sum, counts);
}

/* ---- kinds of buckets -------------------------------------------------------------------------------------------- */

/* Buckets that share a codec and a mode. */
typedef struct kind {
    const nw_codec *codec;
    nw_mode mode;
    int buckets;
    uint64_t floats, sends; /* sends: bytes of a member in a step, at the final ratio */
} kind;

enum { KINDS_MOST = 64 };

/* The bytes of a bucket: for codecs with rounds the floats of all rounds, for others the encoded size. */
static uint64_t bytes_of(const nw_bucket *b)
{
    const nw_codec *codec = b->block.codec;
    const nw_rounds *rounds = codec->ops->rounds;
    uint64_t floats = 0;
    for (int r = 0; rounds && r < rounds->count; r++)
        for (int i = 0; i < b->block.item_count; i++) floats += rounds->floats(&b->block, i, r);
    if (rounds) return floats * sizeof(float);
    return nw_mode_bytes(codec, b->block.floats, b->entries, (uint64_t)b->block.item_count);
}

/* In gossip, what is sent goes to one member. */
static int count_kinds(const nw_replicas *group, kind *kinds)
{
    const nw_layout *l = &group->layout;
    const uint64_t members = (uint64_t)nw_replicas_world(group);
    const bool pairs = nw_replicas_is_gossip(group);
    int count = 0;
    for (int i = 0; i < l->count; i++) {
        const nw_bucket *b = &l->at[i];
        int k = 0;
        while (k < count && (kinds[k].codec != b->block.codec || kinds[k].mode != b->mode)) k++;
        if (k == KINDS_MOST) continue;
        if (k == count) kinds[count++] = (kind){.codec = b->block.codec, .mode = b->mode};
        kinds[k].buckets++;
        kinds[k].floats += b->block.floats;
        kinds[k].sends += pairs ? bytes_of(b) : nw_mode_sends(b->mode, bytes_of(b), members);
    }
    return count;
}

nw_status nw_replicas_make_layout(nw_replicas *group)
{
    nw_layout_options o = group->options.exchange.layout;
    o.segments = &params_of(group)->learned;
    o.cuts = nw_replicas_is_gossip(group) ? 1 : nw_replicas_world(group);
    return nw_layout_make(&group->layout, &o);
}

/* Buckets are those of gradients, whose number does not depend on how they are cut. */
nw_status nw_replicas_make_ledger(const nw_replicas *group, int world, int first, int count, nw_ledger **ledger)
{
    const nw_segments *s = &params_of(group)->learned;
    nw_layout_options o = group->options.exchange.layout;
    NW_CLEANUP(nw_layout_free) nw_layout layout = {0};
    NW_AUTOFREE char(*names)[160] = NULL;
    NW_AUTOFREE const char **list = NULL;
    o.segments = s;
    o.cuts = 1;
    NW_TRY(nw_layout_make(&layout, &o));
    NW_NEW(names, layout.count, "names of buckets");
    NW_NEW(list, layout.count, "names of buckets");
    for (int b = 0; b < layout.count; b++) {
        nw_layout_name(&layout, s, b, names[b], sizeof names[b]);
        list[b] = names[b];
    }
    nw_ledger_options options = {
        .world = world, .first_rank = first, .ranks = count, .segments = layout.count, .segment_names = list};
    return nw_ledger_create(ledger, &options);
}

/* ---- epochs without compression ---------------------------------------------------------------------------------- */

static bool is_plain(const nw_replicas *group, int64_t clock)
{
    return strcmp(group->options.exchange.name, "allreduce") == 0 &&
           nw_warm_up_is_plain(&group->layout, nw_replicas_world(group), clock);
}

double nw_replicas_ratio(const nw_replicas *group)
{
    int64_t batches = nw_replicas_position(group)->batches, clock = batches > 0 ? batches - 1 : 0;
    for (int i = 0; i < group->assignment.codec_count; i++) {
        const nw_codec *codec = group->assignment.codecs[i];
        if (!nw_codec_warms_up(codec) && strcmp(codec->ops->name, "randomk") != 0) continue;
        return is_plain(group, clock) ? 1 : nw_codec_ratio(codec, clock);
    }
    return (double)NAN;
}

/* Says which epochs are exchanged uncompressed, if there are any. */
static void print_plain(const nw_replicas *group, FILE *out)
{
    const nw_warm_up *w = &group->options.codecs.codec.warm_up;
    int count = 0;
    if (is_plain(group, INT64_MAX)) {
        fprintf(out, "a ratio of 1 sends everything: gradients are exchanged uncompressed\n");
        return;
    }
    for (int e = 0; e < w->epochs; e++)
        if (is_plain(group, e * w->batches))
            fprintf(out, "%s %d", count++ ? "," : "exchanged uncompressed, since messages would not be shorter: epochs",
                    e + 1);
    if (count > 0) fprintf(out, "\n");
}

static bool is_served(const nw_replicas *group) { return strcmp(group->options.exchange.name, "server") == 0; }

void nw_replicas_collective(const nw_replicas *group, char *text, size_t size)
{
    kind kinds[KINDS_MOST];
    int count = count_kinds(group, kinds);
    uint64_t sends[3] = {0};
    size_t used = 0;
    text[0] = 0;
    for (int k = 0; k < count && !is_served(group); k++) sends[kinds[k].mode] += kinds[k].sends;
    if (nw_replicas_is_gossip(group)) {
        snprintf(text, size, "pairs %llu B", (unsigned long long)(sends[0] + sends[1] + sends[2]));
        return;
    }
    for (int m = 0; m < 3; m++)
        if (sends[m] > 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s %llu B", used ? ", " : "",
                                     nw_mode_name((nw_mode)m), (unsigned long long)sends[m]);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static const char *way_of(const nw_replicas *group, const kind *k)
{
    if (!nw_replicas_is_gossip(group)) return nw_mode_name(k->mode);
    return nw_agreeing_name(nw_agreeing_of(k->codec, group->options.exchange.gossip.values));
}

void nw_replicas_print_codecs(const nw_replicas *group, FILE *out)
{
    kind kinds[KINDS_MOST];
    int count = count_kinds(group, kinds);
    char often[32] = "a step";
    if (group->members[0].machine->outer)
        snprintf(often, sizeof often, "in %d steps", group->options.exchange.sync_every);
    if (nw_replicas_is_gossip(group)) snprintf(often, sizeof often, "in an averaging");
    if (!nw_assign_compresses(&group->options.codecs)) return;
    nw_assign_print(&group->assignment, group->options.codecs.scope, &params_of(group)->learned, "", out);
    for (int k = 0; k < count && !is_served(group); k++) {
        char name[64];
        nw_assign_name(kinds[k].codec, name, sizeof name);
        fprintf(out, "%-24s %d %s of %llu floats, %s: a rank sends about %llu bytes %s\n",
                kinds[k].codec->exact ? "dense" : name, kinds[k].buckets, kinds[k].buckets == 1 ? "bucket" : "buckets",
                (unsigned long long)kinds[k].floats, way_of(group, &kinds[k]), (unsigned long long)kinds[k].sends,
                often);
    }
    print_plain(group, out);
}
