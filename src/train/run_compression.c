/*
 * run_compression.c - what compression cost and saved in a run: for summary.json, and as a table at its end with one
 * sentence on whether it paid. See run_private.h.
 *
 * A step costs time for encoding and decoding, and saves time because messages are shorter. The link speed at which
 * both are equal is the break-even: on slower links compression pays. The speed of a virtual cluster's links is known,
 * so there the sentence can say whether it paid.
 */
#include "train/run_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t payload_bytes(const run *r)
{
    const uint64_t *bytes = r->sent.bytes;
    return (int64_t)(bytes[NW_OWNER_VALUES] + bytes[NW_OWNER_INDICES] + bytes[NW_OWNER_SCALES]);
}

/* Both halves of each averaging, and what is not encoded: means, and reports. */
static int64_t dense_averagings(const run *r, int64_t floats)
{
    const nw_averagings *a = &r->result->averagings;
    int64_t halves = 0, encoded = nw_channel_stats_total(&r->stats, false).bytes;
    if (r->options->resume || a->world == 0) return NW_UNKNOWN;
    if (!nw_assign_compresses(&r->group->options.codecs)) return payload_bytes(r);
    for (int i = 0; i < a->world; i++) halves += a->exchanges[i];
    return payload_bytes(r) - encoded + halves * floats * (int64_t)sizeof(float);
}

/* What floats as they are would have taken, for the same steps; NW_UNKNOWN: nobody counted. */
static int64_t dense_bytes(const run *r)
{
    const nw_replicas *group = r->group;
    int64_t floats = (int64_t)nw_replicas_first(group)->net->model.params.learned.floats,
            world = nw_replicas_world(group);
    bool served = strcmp(group->options.exchange.name, "server") == 0;
    if (nw_replicas_is_gossip(group)) return dense_averagings(r, floats);
    bool reduces = strcmp(group->options.exchange.name, "allreduce") == 0;
    if ((served || reduces) && r->stats.sent_floats >= 0) return r->stats.sent_floats * (int64_t)sizeof(float);
    if (reduces) /* resumed from a checkpoint without counts */
        return nw_replicas_updates(group) * 2 * (world - 1) * floats * (int64_t)sizeof(float);
    if (strcmp(group->options.exchange.name, "local") == 0)
        return (int64_t)nw_local_sends(&group->options.exchange, nw_replicas_updates(group), (size_t)floats);
    return NW_UNKNOWN;
}

void nw_run_fill_compression(const run *r, nw_end_record *end)
{
    const nw_memory_options *memory = &r->group->options.codecs.memory;
    bool remembers = memory->name && strcmp(memory->name, "none") != 0;
    end->payload_bytes = payload_bytes(r);
    end->dense_bytes = dense_bytes(r);
    if (!nw_assign_compresses(&r->group->options.codecs)) return;
    nw_codec_stats all = nw_channel_stats_total(&r->stats, false);
    end->encode_seconds = (double)all.encode_ns * 1e-9;
    end->decode_seconds = (double)all.decode_ns * 1e-9;
    if (remembers || r->stats.memory_square > 0) end->memory_norm = sqrt(r->stats.memory_square);
}

int nw_run_list_codecs(const run *r, nw_ledger_codec *list, int most)
{
    int count = 0;
    for (int k = 0; k < nw_codec_kinds() && k < NW_STATS_CODECS && count < most; k++) {
        const nw_codec_stats *t = &r->stats.of[k];
        if (t->payloads == 0) continue;
        list[count++] = (nw_ledger_codec){.codec = nw_codec_at(k)->name,
                                          .payloads = t->payloads,
                                          .float_bytes = t->floats * (int64_t)sizeof(float),
                                          .bytes = t->bytes,
                                          .index_bytes = t->index_bytes,
                                          .scale_bytes = t->scale_bytes,
                                          .entries = t->entries,
                                          .index_bound_bytes = t->bound_bits / 8,
                                          .int32_list_bytes = t->listed32,
                                          .int64_list_bytes = t->listed64};
    }
    return count;
}

/* Of a rank's step, each codec. */
static void print_methods(const nw_channel_stats *stats, double steps, FILE *out)
{
    fprintf(out, "  a rank's step   %12s %12s %10s %12s %12s\n", "encoding ms", "decoding ms", "payloads", "bytes",
            "of floats");
    for (int k = 0; k < nw_codec_kinds() && k < NW_STATS_CODECS; k++) {
        const nw_codec_stats *t = &stats->of[k];
        if (t->payloads == 0) continue;
        fprintf(out, "    %-13s %12.3f %12.3f %10.1f %12.0f %12.0f\n", nw_codec_at(k)->name,
                (double)t->encode_ns / steps * 1e-6, (double)t->decode_ns / steps * 1e-6, (double)t->payloads / steps,
                (double)t->bytes / steps, (double)t->floats * sizeof(float) / steps);
    }
}

static void print_positions(const nw_codec_stats *t, FILE *out)
{
    double k = (double)t->entries;
    if (t->entries == 0) return;
    fprintf(out,
            "  positions of entries     %10.2f bits each; the lower bound is %.2f, int32 and int64 take 32 and 64\n",
            8 * (double)t->index_bytes / k, t->bound_bits / k);
    fprintf(out,
            "  %.0f entries encoded in %.3f MB; lists with int32 positions %.3f MB, with int64 positions %.3f MB\n", k,
            (double)t->bytes * 1e-6, (double)t->listed32 * 1e-6, (double)t->listed64 * 1e-6);
}

/* The slowest way between two ranks: their link, or a network interface on it; bytes a second, infinite without limit. */
static double at_most(double bandwidth, double than) { return bandwidth > 0 && bandwidth < than ? bandwidth : than; }

static double slowest_link(const nw_cluster *c)
{
    double least = INFINITY;
    for (int from = 0; from < c->world; from++)
        for (int to = 0; to < c->world; to++) {
            if (from == to) continue;
            least = at_most(nw_cluster_link_between(c, from, to)->bandwidth, least);
            if (c->ranks[from].node == c->ranks[to].node) continue;
            least = at_most(c->nodes[c->ranks[from].node].egress, least);
            least = at_most(c->nodes[c->ranks[to].node].ingress, least);
        }
    return least;
}

/* What a step of a rank saves on links of that speed (bytes a second), and what it costs. */
static void print_verdict(const run *r, double saved_bytes, double cost_seconds, FILE *out)
{
    const nw_cluster *cluster = r->group->options.cluster;
    bool simulated = r->group->options.mode == NW_REPLICAS_VIRTUAL && cluster;
    double even = cost_seconds > 0 ? saved_bytes / cost_seconds : INFINITY;
    double speed = simulated ? slowest_link(cluster) : 0;
    if (saved_bytes <= 0) {
        fprintf(out, "  it did not pay: messages were not shorter than floats\n");
        return;
    }
    if (speed > 0 && isfinite(speed))
        fprintf(out, "  at %.0f Mbit/s a step saves %.3f ms on the wire and spends %.3f ms on encoding: it %s\n",
                speed * 8e-6, saved_bytes / speed * 1e3, cost_seconds * 1e3,
                saved_bytes / speed > cost_seconds ? "paid" : "did not pay");
    fprintf(out, "  it pays on links below %.0f Mbit/s a rank\n", even * 8e-6);
}

void nw_run_print_compression(const run *r, FILE *out)
{
    const nw_end_record *end = &r->result->end;
    const nw_assign_options *o = &r->group->options.codecs;
    bool pairs = nw_replicas_is_gossip(r->group); /* each update is one rank's, not all ranks' */
    double updates = (double)nw_replicas_updates(r->group), ranks = nw_replicas_world(r->group);
    double steps = pairs ? updates : updates * ranks;
    if (!nw_assign_compresses(o) || steps <= 0) return;
    double payload = (double)end->payload_bytes, dense = end->dense_bytes == NW_UNKNOWN ? 0 : (double)end->dense_bytes;
    fprintf(out, "compression: %s, memory %s\n", r->options->record.method ? r->options->record.method : o->codec.name,
            o->memory.name ? o->memory.name : "none");
    print_methods(&r->stats, steps, out);
    if (ranks > 1)
        fprintf(out, "  payloads                 %10.3f MB in %llu messages; floats would have taken %.3f MB\n",
                payload * 1e-6, (unsigned long long)r->sent.messages, dense * 1e-6);
    nw_codec_stats all = nw_channel_stats_total(&r->stats, false), coded = nw_channel_stats_total(&r->stats, true);
    if (ranks < 2 && all.bytes > 0) { /* what others would get */
        payload = (double)all.bytes;
        dense = (double)all.floats * sizeof(float);
    }
    if (payload > 0 && dense > 0) fprintf(out, "  shorter by a factor of   %10.1f\n", dense / payload);
    print_positions(&coded, out);
    if (ranks > 1 && dense > 0)
        print_verdict(r, (dense - payload) / steps, (end->encode_seconds + end->decode_seconds) / steps, out);
    if (pairs && end->sent_again > 0)
        fprintf(out, "  %lld buckets were sent once more, exactly\n", (long long)end->sent_again);
}
