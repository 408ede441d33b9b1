/*
 * option_table_exchange.c - options of exchanges, servers, codecs and pipelines; those that do not act here; and flags
 * of the reference codes that say in other words what an option says.
 *
 * LATER rows, and words of a choice behind '~', are understood, but not part of this version: help does not show them,
 * and nw_settings_check refuses them. To bring a row to life: give it a field in one of the settings of options.h, and
 * ACTS or TRAINS in its row. IGNORED rows belong to graphics processors, accounts and launchers of the reference codes.
 */
#include "config/settings.h"

#include "train/delay.h"

#include <string.h>

#define RUNS (NW_COMMAND_TRAIN | NW_COMMAND_SWEEP | NW_COMMAND_REPRODUCE)

#define LATER(topic) NW_NO_FIELD, 0, 1e18, RUNS, NW_TOPIC_##topic, NW_OPTION_LATER
#define IGNORED      NW_NO_FIELD, -1e18, 1e18, RUNS, NW_TOPIC_ELSEWHERE, NW_OPTION_IGNORED
/* ACTS and SERVES: also in programs that compute gradients themselves. */
#define ACTS(field, low, high, topic) \
    NW_AT(field), low, high, RUNS | NW_COMMAND_BENCH_EXCHANGE | NW_COMMAND_PEER, NW_TOPIC_##topic, NW_OPTION_LIVE
#define SERVES(field, low, high) NW_AT(field), low, high, RUNS | NW_COMMAND_PEER, NW_TOPIC_SERVER, NW_OPTION_LIVE
#define RUNS_ONLY(field, low, high, topic) \
    NW_AT(field), low, high, RUNS | NW_COMMAND_BENCH_EXCHANGE, NW_TOPIC_##topic, NW_OPTION_LIVE
#define TRAINS(field, low, high) NW_AT(field), low, high, RUNS, NW_TOPIC_SERVER, NW_OPTION_LIVE

#define MEETS(field, low, high)  NW_AT(field), low, high, RUNS | NW_COMMAND_PEER, NW_TOPIC_EXCHANGE, NW_OPTION_LIVE

#define FLAG    NW_OPTION_FLAG
#define INT     NW_OPTION_INT
#define INT64   NW_OPTION_INT64
#define NUMBER  NW_OPTION_NUMBER
#define TEXT    NW_OPTION_TEXT
#define CHOICE  NW_OPTION_CHOICE
#define NUMBERS NW_OPTION_NUMBERS
#define TEXTS   NW_OPTION_TEXTS

const nw_option nw_option_more_rows[] = {
    /* one replica in stages */
    {"pipeline", NULL, 0, INT, "P", "1", LATER(GRADIENT), "ranks that share the stages of a replica"},
    {"parallel", NULL, 0, FLAG, NULL, "false", LATER(GRADIENT), "stages on several ranks"},
    {"partition", "stages", 0, TEXT, "LIST|auto", "auto", LATER(GRADIENT), "which stages each rank owns"},
    {"schedule", NULL, 0, CHOICE, "sync|gpipe|1f1b|async", "sync", LATER(GRADIENT), "order of work in a pipeline"},
    {"synchronization-period", NULL, 0, INT, "N", "1", LATER(GRADIENT), "batches between copies of the weights"},
    {"hop-delay", NULL, 0, CHOICE, "1|2|real", "2", LATER(GRADIENT), "steps of delay from rank to rank"},
    {"drain", NULL, 0, CHOICE, "epoch|end|never", "epoch", LATER(GRADIENT), "when batches under way are finished"},
    {"order", NULL, 0, CHOICE, "fixed|free", "fixed", LATER(GRADIENT), "of the work inside a rank"},
    {"bn-stats", NULL, 0, CHOICE, "forward|backward", "forward", LATER(GRADIENT),
     "which pass updates running statistics"},
    {"lr-clock", NULL, 0, CHOICE, "tick|batch", "tick", LATER(GRADIENT), "which counter the learning rate follows"},
    {"stage-correction", "staleness-correction", 0, CHOICE, "none|pipemare|spike|lwp|shrink", "none", LATER(GRADIENT),
     "against the delay of a stage"},
    {"track-grad", NULL, 0, INT, "N", "0", LATER(GRADIENT), "compare with the exact gradient every N batches"},
    {"quantizer", NULL, 0, CHOICE, "QuantizSimple|Quantiz16Bits|Quantiz8Bits|QuantizQSGD", "QuantizSimple",
     LATER(GRADIENT), "of messages between stages"},
    {"quantize-forward-com", NULL, 0, FLAG, NULL, "false", LATER(GRADIENT), "compress forward messages"},
    {"quantize-backward-com", NULL, 0, FLAG, NULL, "false", LATER(GRADIENT), "compress backward messages"},
    {"quantize-buffer", NULL, 0, FLAG, NULL, "false", LATER(GRADIENT), "compress what waits for backward"},
    {"msg-dtype", NULL, 0, CHOICE, "f32|bf16|f16", "f32", LATER(GRADIENT), "of messages between stages"},

    /* several replicas */
    {"exchange", NULL, 0, CHOICE, "none|allreduce|local|server|gossip", "none", ACTS(world.exchange, 0, 0, EXCHANGE),
     "how replicas agree; none is for one replica"},
    {"world-size", NULL, 'w', INT, "N", "1", ACTS(world.world_size, 1, 1024, EXCHANGE),
     "expected number of ranks; a launcher or --virtual creates them"},
    {"virtual", NULL, 0, INT, "N", "0", RUNS_ONLY(world.virtual_ranks, 0, 1024, EXCHANGE),
     "simulate N ranks in this process"},
    {"cluster", NULL, 0, TEXT, "FILE|NAME", "", RUNS_ONLY(world.cluster, 0, 0, EXCHANGE),
     "speeds and links of simulated ranks: a file, ideal, 1g, 10g, 100g"},
    {"faults", NULL, 0, TEXT, "FILE|NAME", "", RUNS_ONLY(world.faults, 0, 0, EXCHANGE),
     "a file of faults to inject, and when"},
    {"calibrate", NULL, 0, TEXT, "FILE.yaml", "", RUNS_ONLY(world.calibrate, 0, 0, EXCHANGE),
     "measure this machine, write a cluster file and stop"},
    {"delay", NULL, 0, INT, "N", "0", ACTS(world.delay, 0, 1, EXCHANGE),
     "allreduce, local: apply gradients or outer steps N steps late, to hide the wait"},
    {"sync-every", NULL, 0, INT, "H", "8", MEETS(world.sync_every, 1, 1 << 30),
     "local: steps of each replica from one outer step to the next"},
    {"outer-optimizer", NULL, 0, CHOICE, "sgd|nesterov|adam", "sgd", MEETS(world.outer_optimizer, 0, 0),
     "local: what is done with the mean difference; sgd of rate 1 averages"},
    {"outer-lr", NULL, 0, NUMBER, "X", "-1", MEETS(world.outer_lr, -1, 1e6),
     "local: its rate; -1: 1 for sgd, 0.7 for nesterov, 0.01 for adam"},
    {"outer-momentum", NULL, 0, NUMBER, "M", "-1", MEETS(world.outer_momentum, -1, 0.999999),
     "local: its momentum, or beta1; -1: 0 for sgd, else 0.9"},
    {"fragments", NULL, 0, INT, "F", "1", MEETS(world.fragments, 1, 62),
     "local: parts of the model, which have their outer steps in turn"},
    {"outer-group", NULL, 0, CHOICE, "all|pairs", "all", MEETS(world.outer_group, 0, 0),
     "local: outer steps of all replicas, or of random pairs"},
    {"bucket-bytes", NULL, 0, INT64, "N", "4194304", ACTS(world.bucket_bytes, 1024, 1e9, EXCHANGE),
     "send gradients in buckets of at least N bytes"},
    {"timeout", NULL, 0, NUMBER, "SECONDS", "300", ACTS(world.timeout, 0, 1e9, EXCHANGE),
     "a rank that waits longer fails and names whom it waited for; 0: never"},
    {"compare-every", NULL, 0, INT64, "N", "100", RUNS_ONLY(world.compare_every, 0, 9e15, EXCHANGE),
     "check every N steps that replicas are equal; 0: never"},
    {"trace", NULL, 0, FLAG, NULL, "false", RUNS_ONLY(world.trace, 0, 0, EXCHANGE),
     "write trace.json: what every rank did when"},
    {"trace-events", NULL, 0, INT64, "N", "65536", RUNS_ONLY(world.trace_events, 64, 1 << 24, EXCHANGE),
     "events per rank in trace.json, at most"},
    {"record-events", "record-schedule", 0, FLAG, NULL, "true", RUNS_ONLY(world.record_events, 0, 0, EXCHANGE),
     "several ranks: write event-log/, so that 'nowait replay' can repeat the run"},
    {"graph-topology", NULL, 0, TEXT, "NAME|FILE", "complete", MEETS(gossip.graph_topology, 0, 0),
     "gossip: complete, cycle, exponential, torus, star, random-regular, a file"},
    {"pairing", NULL, 0, CHOICE, "handshake|first-come|scheduled", "handshake", MEETS(gossip.pairing, 0, 0),
     "gossip: workers ask each other, rank 0 pairs who is ready, or matchings"},
    {"rate-com", NULL, 0, NUMBER, "X", "1", MEETS(gossip.rate_com, 0, 1e4),
     "gossip: averagings of a worker in the time of one of its gradients"},
    {"deterministic-coms", NULL, 0, FLAG, NULL, "false", MEETS(gossip.deterministic_coms, 0, 0),
     "gossip: so many with each gradient; else at random times"},
    {"deterministic-neighbor", NULL, 0, FLAG, NULL, "false", MEETS(gossip.deterministic_neighbor, 0, 0),
     "gossip: with neighbours in turn; else with random ones"},
    {"apply-acid", NULL, 0, FLAG, NULL, "false", MEETS(gossip.apply_acid, 0, 0),
     "gossip: continuous momentum (A2CiD2)"},
    {"acid-params", NULL, 0, NUMBERS, "ETA,ALPHA", "", MEETS(gossip.acid_params, 0, 1e6),
     "apply-acid: its constants; default: those of the graph"},
    {"gossip-values", NULL, 0, CHOICE, "auto|difference|plain", "auto", MEETS(gossip.values, 0, 0),
     "gossip with a method: from what a pair last agreed on, or as they are"},
    {"consensus-step", NULL, 0, NUMBER, "X", "1", MEETS(gossip.consensus_step, 0.001, 1),
     "gossip: share of the way to their mean that two workers go"},
    {"modulo-bound", NULL, 0, NUMBER, "X", "0", MEETS(gossip.modulo_bound, 0, 1e30),
     "modulo: largest difference of two workers; 0: follows what is seen"},
    {"consensus-every", NULL, 0, INT64, "N", "0", NW_AT(gossip.consensus_every), 0, 9e15, RUNS, NW_TOPIC_EXCHANGE,
     NW_OPTION_LIVE, "gossip: measure the consensus distance so often; 0: 8 times an epoch"},
    {"log-averagings", NULL, 0, TEXT, "DIR", "", NW_AT(gossip.log_averagings), 0, 0, NW_COMMAND_PEER, NW_TOPIC_EXCHANGE,
     NW_OPTION_LIVE, "gossip: each rank writes to DIR what it does with its parameters"},
    {"bn-sync", NULL, 0, CHOICE, "local|average|recalibrate", "average", RUNS_ONLY(world.bn_sync, 0, 0, EXCHANGE),
     "batch norm in evaluation: rank 0's statistics, their mean, or measured anew"},
    {"recalibrate-batches", NULL, 0, INT, "N", "16", RUNS_ONLY(world.recalibrate_batches, 1, 1 << 20, EXCHANGE),
     "bn-sync recalibrate: batches per rank"},

    /* servers, and delays */
    {"communication", NULL, 0, CHOICE, "sync|async", "sync", SERVES(server.communication, 0, 0),
     "server: an update takes a gradient of every worker (sync) or of any (async)"},
    {"servers", NULL, 0, INT, "S", "1", SERVES(server.servers, 1, 1024),
     "number of servers; each owns a range of the parameters"},
    {"server-computes", NULL, 0, FLAG, NULL, "false", SERVES(server.server_computes, 0, 0),
     "servers compute gradients too, when they have nothing to apply"},
    {"global-batch", NULL, 0, FLAG, NULL, "false", TRAINS(server.global_batch, 0, 0),
     "synchronous server: --batch-size is the total over all workers"},
    {"in-flight", NULL, 0, INT, "N", "0", SERVES(server.in_flight, 0, 8),
     "server: gradients in flight per worker; 0: 2, or 1 if synchronous"},
    {"server-memory", NULL, 0, INT64, "BYTES", "4294967296", SERVES(server.server_memory, 1, 1e15),
     "bytes of gradients that a server holds at most; then workers wait for credits"},
    {"max-staleness", NULL, 0, INT64, "N", "-1", SERVES(server.max_staleness, -1, 1e15),
     "server: updates that a gradient may miss; -1: any number"},
    {"staleness", NULL, 0, CHOICE, "wait|drop|weight", "wait", SERVES(server.staleness, 0, 0),
     "server: what happens to gradients that would miss more"},
    {"server-correction", NULL, 0, CHOICE, "none|inverse|dc-asgd", "none", SERVES(server.server_correction, 0, 0),
     "server: how gradients are corrected for their delay"},
    {"dc-lambda", NULL, 0, NUMBER, "X", "0.04", SERVES(server.dc_lambda, 0, 1e9),
     "dc-asgd: strength of the compensation"},
    {"server-threads", "master-num-threads", 0, INT, "N", "0", TRAINS(server.server_threads, 0, 1024),
     "threads of ranks that only serve; 0: as --threads"},
    {"use-sparse", NULL, 0, FLAG, NULL, "false", LATER(SERVER), "server: leave zeros out of messages"},
    {"max-delay", NULL, 0, INT, "D", "1", TRAINS(delays.max_delay, 1, NW_DELAY_MODELS_MOST),
     "one replica: compute gradients at one of the last D models; 1: the newest"},
    {"delay-law", NULL, 0, CHOICE, "uniform|fixed|heavy|worker", "uniform", TRAINS(delays.delay_law, 0, 0),
     "max-delay: which of these models"},
    {"delay-tail", NULL, 0, NUMBER, "A", "1", TRAINS(delays.delay_tail, 0.01, 100),
     "delay-law heavy: exponent of the tail, small for many long delays"},
    {"delay-workers", NULL, 0, INT, "W", "10", TRAINS(delays.delay_workers, 1, NW_DELAY_MODELS_MOST),
     "delay-law worker: workers that take turns, each with its own delay"},

    /* what travels */
    {"method", NULL, 0, CHOICE,
     "none|fp16|bf16|topk|randomk|thresholdv=threshold|adaptivethreshold|terngrad|qsgd=randomdithering|sign|natural|"
     "int8|powersgd|dgc|onebit|modulo",
     "none", ACTS(codec.method, 0, 0, CODEC), "the compressor of gradients, or, with gossip, of parameters"},
    {"compress", NULL, 'c', CHOICE, "none|layerwise|bucket|entiremodel", "none", ACTS(codec.compress, 0, 0, CODEC),
     "what a method compresses as a whole: each tensor, a bucket, or the model"},
    {"ratio", "compress-ratio", 'K', NUMBER, "R", "0.5", ACTS(codec.ratio, 0, 1, CODEC),
     "topk, randomk, dgc: share of entries that is sent; dgc: 0.001 by default"},
    {"threshold", NULL, 'V', NUMBER, "V", "0.001", ACTS(codec.threshold, 0, 1e30, CODEC),
     "thresholdv: smallest magnitude sent; see --loss-reduction for its scale"},
    {"qstates", NULL, 'Q', INT, "S", "255", ACTS(codec.qstates, 1, 32767, CODEC), "qsgd: number of levels above 0"},
    {"bucket", NULL, 0, INT, "N", "0", ACTS(codec.bucket, 0, 1 << 30, CODEC),
     "qsgd: elements that share a norm, 16 or more; 0: the whole tensor"},
    {"norm", NULL, 0, CHOICE, "l2|max", "l2", ACTS(codec.norm, 0, 0, CODEC), "qsgd: which norm"},
    {"powersgd-rank", NULL, 0, INT, "R", "1", ACTS(codec.powersgd_rank, 1, 1024, CODEC),
     "powersgd: rank of the approximation"},
    {"modulo-bits", NULL, 0, INT, "Q", "8", ACTS(codec.modulo_bits, 2, 8, CODEC),
     "modulo: bits of each element; below 4 with a --modulo-bound only"},
    {"randomk-seed", NULL, 0, CHOICE, "shared|private", "shared", ACTS(codec.randomk_seed, 0, 0, CODEC),
     "randomk: all ranks send the same entries, or each its own"},
    {"scaled", NULL, 0, FLAG, NULL, "false", ACTS(codec.scaled, 0, 0, CODEC),
     "randomk: multiply values by n/k, which makes it unbiased"},
    {"values", NULL, 0, CHOICE, "f32|fp16|bf16|2|3|4|5|6|7|8", "f32", ACTS(codec.values, 0, 0, CODEC),
     "sparse methods: format of the values; a number: that many bits"},
    {"selection", NULL, 0, CHOICE, "exact|sampled", "exact", ACTS(codec.selection, 0, 0, CODEC),
     "topk, dgc: exactly the largest, or those above a sampled threshold"},
    {"memory", NULL, 0, CHOICE, "none|error|ef21|momentum", "none", ACTS(codec.memory, 0, 0, CODEC),
     "keep what was not sent; dgc and onebit have their own memory"},
    {"dense-below", NULL, 0, INT64, "N", "0", ACTS(codec.dense_below, 0, 9e15, CODEC),
     "tensors with fewer elements are not compressed"},
    {"codec-for", NULL, 0, TEXTS, "PATTERN=METHOD[:RATIO]...", "", ACTS(codec.codec_for, 1, 0, CODEC),
     "methods for tensors by name, as 'layer1.*=none'; the last match wins"},
    {"collective", NULL, 0, CHOICE, "auto|gather|owners", "auto", ACTS(codec.collective, 0, 0, CODEC),
     "send compressed buckets to all ranks, or to owners that average them"},
    {"sparsification", NULL, 0, FLAG, NULL, "false", ACTS(codec.sparsification, 0, 0, CODEC),
     "shared random-k with error feedback (--method randomk --memory error)"},
    {"randk", NULL, 0, NUMBER, "R", "1", ACTS(codec.randk, 0, 1, CODEC),
     "--sparsification: share of entries that is sent"},
    {"sample-ratio", NULL, 0, NUMBER, "R", "0.01", ACTS(codec.sample_ratio, 0, 1, DGC),
     "sampled selection: share of elements that is sampled, at least 0.01"},
    {"strided-sample", NULL, 0, FLAG, NULL, "true", ACTS(codec.strided_sample, 0, 0, DGC),
     "sampled selection: sample at equal distances"},
    {"compress-upper-bound", NULL, 0, NUMBER, "X", "1.3", ACTS(codec.compress_upper_bound, 1, 1e9, DGC),
     "sampled selection: above X times the wanted count, raise the threshold"},
    {"compress-lower-bound", NULL, 0, NUMBER, "X", "0.8", ACTS(codec.compress_lower_bound, 0, 1, DGC),
     "sampled selection: below X times the wanted count, lower the threshold"},
    {"max-adaptation-iters", NULL, 0, INT, "N", "10", ACTS(codec.max_adaptation_iters, 0, 1000, DGC),
     "sampled selection: changes of the threshold, at most"},
    {"resample", NULL, 0, FLAG, NULL, "true", ACTS(codec.resample, 0, 0, DGC),
     "sampled selection: if too many, take the largest of them"},
    {"ratio-warm-up", "warmup-epochs", 0, INT, "EPOCHS", "-1", ACTS(codec.warmup_epochs, -1, 64, DGC),
     "topk, dgc: epochs in which the ratio falls to --ratio; -1: none"},
    {"ratio-warm-up-list", "warmup-coeff", 0, NUMBERS, "R...", "", ACTS(codec.warmup_coeff, 0, 1, DGC),
     "ratio of each of these epochs; one number: factor from epoch to epoch"},
    {"memory-momentum", NULL, 0, NUMBER, "M", "-1", ACTS(codec.memory_momentum, -1, 0.999999, DGC),
     "dgc: momentum of its memory; -1: as --momentum"},
    {"memory-nesterov", NULL, 0, FLAG, NULL, "false", ACTS(codec.memory_nesterov, 0, 0, DGC),
     "dgc: Nesterov momentum in its memory"},
    {"memory-clip-norm", NULL, 0, NUMBER, "X", "0", ACTS(codec.memory_clip_norm, 0, 1e30, DGC),
     "dgc: clip each worker's gradient to norm X / sqrt(workers); 0: no"},
    {"momentum-masking", NULL, 0, FLAG, NULL, "true", ACTS(codec.momentum_masking, 0, 0, DGC),
     "dgc: reset the momentum of entries that were sent"},

    /* of other machines */
    {"cuda", NULL, 0, FLAG, NULL, "false", IGNORED, "this program has no GPU code"},
    {"use-gpu", NULL, 0, FLAG, NULL, "false", IGNORED, "this program has no GPU code"},
    {"gpu-id", NULL, 0, INT, "N", "0", IGNORED, "this program has no GPU code"},
    {"ngpus", NULL, 0, INT, "N", "1", IGNORED, "this program has no GPU code"},
    {"devices", "device", 0, TEXT, "D", "cpu", IGNORED, "this program has no GPU code"},
    {"fp16", NULL, 0, FLAG, NULL, "false", IGNORED, "--precision chooses the number format"},
    {"int32-indices", NULL, 0, FLAG, NULL, "false", IGNORED, "positions of entries take fewer bits than either width"},
    {"loss-scale", NULL, 0, NUMBER, "X", "1024", IGNORED, "bf16 needs no scaling of the loss"},
    {"deterministic", NULL, 0, FLAG, NULL, "true", IGNORED, "results are always deterministic"},
    {"master-address", NULL, 'm', TEXT, "URL", "127.0.0.1", IGNORED, "mpirun or srun sets up the ranks"},
    {"rank", NULL, 'r', INT, "N", "0", IGNORED, "mpirun or srun sets up the ranks"},
    {"local-rank", NULL, 0, INT, "N", "0", IGNORED, "mpirun or srun sets up the ranks"},
    {"distributed", NULL, 0, FLAG, NULL, "false", IGNORED, "mpirun or srun sets up the ranks"},
    {"dist-url", NULL, 0, TEXT, "URL", "env://", IGNORED, "mpirun or srun sets up the ranks"},
    {"dist-backend", NULL, 0, TEXT, "NAME", "nccl", IGNORED, "mpirun or srun sets up the ranks"},
    {"mpi-thread-level", NULL, 0, TEXT, "NAME", "MPI_THREAD_MULTIPLE", IGNORED, "one thread per rank communicates"},
    {"log-all-workers", NULL, 0, FLAG, NULL, "false", IGNORED, "one record is written for all workers"},
    {"phases", NULL, 0, TEXT, "TEXT", "", IGNORED, "pickled schedules are not read; --lr-knots says the same"},
    {"debug-comm", NULL, 0, FLAG, NULL, "false", IGNORED, "metrics.jsonl has such records"},
    {"debug-sparse-outfile", NULL, 0, TEXT, "FILE", "", IGNORED, "metrics.jsonl has such records"},
    {"debug-time-outfile", NULL, 0, TEXT, "FILE", "", IGNORED, "metrics.jsonl has such records"},
    {"debug-grad-outfile", NULL, 0, TEXT, "FILE", "", IGNORED, "metrics.jsonl has such records"},
    {"use-wandb", NULL, 0, FLAG, NULL, "false", IGNORED, "metrics.jsonl has such records"},
    {"wandb-project", NULL, 0, TEXT, "NAME", "PETRA", IGNORED, "metrics.jsonl has such records"},
    {"wandb-entity", NULL, 0, TEXT, "NAME", "", IGNORED, "metrics.jsonl has such records"},
    {"wandb-offline", NULL, 0, FLAG, NULL, "false", IGNORED, "metrics.jsonl has such records"},
};
const int nw_option_more_count = sizeof nw_option_more_rows / sizeof nw_option_more_rows[0];

static const nw_translation translations[] = {
    {"no-bn-weight-decay", "decay-filter", "no-norm-bias", "all", "no decay of batch norm and biases"},
    {"no-bn-wd", "decay-filter", "no-norm", "all", "no decay of batch norm"},
    {"filter-bias-and-bn", "decay-filter", "no-1d", "all", "no decay of vectors"},
    {"optimize-bn-separately", "decay-filter", "no-norm", "all", "no decay of batch norm"},
    {"normalize-grads", "clip-norm", "1", "0", "clip the gradient to norm 1"},
    {"short-epoch", "max-batches", "11", "0", "epochs of 11 batches"},
    {"timing", "train-metrics", "false", "true", "no evaluation of training images"},
    {"error-feedback", "memory", "error", "none", "keep what was not sent"},
    {"fp16-values", "values", "fp16", "f32", "values of 16 bits"},
    {"ddp", "exchange", "allreduce", "none", "average gradients over workers"},
};

int nw_translation_count(void) { return sizeof translations / sizeof translations[0]; }
const nw_translation *nw_translation_at(int index) { return &translations[index]; }

int nw_option_count(void) { return nw_option_row_count + nw_option_more_count; }

const nw_option *nw_option_at(int index)
{
    return index < nw_option_row_count ? &nw_option_rows[index] : &nw_option_more_rows[index - nw_option_row_count];
}

const char *nw_topic_name(nw_topic topic)
{
#define NAME(identifier, name, summary) name,
    static const char *const names[] = {NW_TOPIC_MAP(NAME)};
#undef NAME
    return names[topic];
}

const char *nw_topic_summary(nw_topic topic)
{
#define SUMMARY(identifier, name, summary) summary,
    static const char *const summaries[] = {NW_TOPIC_MAP(SUMMARY)};
#undef SUMMARY
    return summaries[topic];
}

/* Compares a given name, which may end with '=', with `length` characters of the table; '_' is '-'. */
static bool same_name(const char *given, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (given[i] != name[i] && !(given[i] == '_' && name[i] == '-')) return false;
    return given[length] == 0 || given[length] == '=';
}

static bool has_alias(const nw_option *o, const char *given)
{
    for (const char *a = o->aliases; a && *a;) {
        size_t length = strcspn(a, " ");
        if (same_name(given, a, length)) return true;
        a += length + (a[length] == ' ');
    }
    return false;
}

static int find_index(const char *given, unsigned command)
{
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        if ((o->commands & command) && (same_name(given, o->name, strlen(o->name)) || has_alias(o, given))) return i;
    }
    return -1;
}

nw_option_match nw_option_find(const char *text, unsigned command)
{
    nw_option_match match = {.index = find_index(text, command)};
    for (int i = 0; i < nw_translation_count() && match.index < 0; i++)
        if (same_name(text, translations[i].flag, strlen(translations[i].flag))) {
            match.index = find_index(translations[i].option, command);
            match.translation = match.index < 0 ? NULL : &translations[i];
        }
    if (match.index < 0 && (strncmp(text, "no-", 3) == 0 || strncmp(text, "no_", 3) == 0)) {
        int i = find_index(text + 3, command);
        if (i >= 0 && (nw_option_at(i)->kind == FLAG || nw_option_at(i)->kind == NW_OPTION_SWITCH))
            match = (nw_option_match){.index = i, .inverted = true};
    }
    return match;
}

nw_option_match nw_option_find_letter(char letter, unsigned command)
{
    for (int i = 0; i < nw_option_count(); i++)
        if ((nw_option_at(i)->commands & command) && nw_option_at(i)->letter == letter)
            return (nw_option_match){.index = i};
    return (nw_option_match){.index = -1};
}

static int names_of(unsigned command, const char *names[NW_OPTIONS_MOST])
{
    int count = 0;
    for (int i = 0; i < nw_option_count(); i++)
        if (nw_option_at(i)->commands & command) names[count++] = nw_option_at(i)->name;
    return count;
}

/* Other names of options, which are separated by spaces in the table. `text` is room for all of them. */
static int aliases_of(unsigned command, const char *names[NW_OPTIONS_MOST], char *text, size_t size)
{
    int count = 0;
    size_t used = 0;
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        size_t length = o->aliases && (o->commands & command) ? strlen(o->aliases) + 1 : 0;
        if (length == 0 || used + length > size) continue;
        char *begin = memcpy(text + used, o->aliases, length), *rest = NULL;
        used += length;
        for (char *word = strtok_r(begin, " ", &rest); word && count < NW_OPTIONS_MOST;
             word = strtok_r(NULL, " ", &rest))
            names[count++] = word;
    }
    return count;
}

nw_suggestion nw_option_nearest(const char *wrong, unsigned command)
{
    const char *lists = command == NW_COMMAND_PEER ? "docs/wrapper.md tells of all" : "--help lists all";
    const char *names[NW_OPTIONS_MOST] = {0};
    char text[8192];
    int count = names_of(command, names);
    if (!*nw_suggest_option(wrong, names, count, "").text) count = aliases_of(command, names, text, sizeof text);
    return nw_suggest_option(wrong, names, count, lists);
}

nw_suggestion nw_option_nearest_key(const char *wrong, unsigned command)
{
    const char *names[NW_OPTIONS_MOST];
    nw_suggestion s = nw_suggest(wrong, names, names_of(command, names), "");
    for (char *c = s.text; *c; c++)
        if (*c == '-') *c = '_';
    return s;
}
