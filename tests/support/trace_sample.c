/*
 * trace_sample.c - writes trace.json and ledger.json of a small invented run, for tests that read them with programs
 * that are not ours, and to look at in a viewer.
 *
 *   trace_sample DIR STEPS EVENTS
 *
 * Four ranks compute for 1000 us (rank 3 for 1500), send 1000 bytes to all others, and wait for theirs, which take
 * 200 us. Events: room per rank. The table of the ledger goes to stdout.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "net/ledger.h"
#include "observe/trace.h"

enum { WORLD = 4, PAYLOAD = 1000 };

static void require(nw_status status)
{
    if (status == NW_OK) return;
    fprintf(stderr, "trace_sample: %s\n", nw_error_message());
    exit(1);
}

static int64_t computed(int64_t begin_ns, int rank) { return begin_ns + (rank == 3 ? 1500000 : 1000000); }

static void play_message(nw_trace *trace, nw_ledger *ledger, int64_t step, int64_t begin_ns, int from, int to)
{
    nw_header header = {
        .magic = NW_MESSAGE_MAGIC, .kind = 1, .channel = NW_CHANNEL_EXCHANGE, .from = (uint16_t)from, .bytes = PAYLOAD};
    nw_trace_message message = {.from = from, .to = to, .sequence = (uint32_t)step, .step = step};
    message.bytes = NW_HEADER_BYTES + PAYLOAD;
    message.name = nw_trace_name(trace, "gradient");
    int64_t sent = computed(begin_ns, from) + 1000 * to, there = sent + 200000;
    nw_trace_sent(trace, &message, sent, sent + 5000);
    nw_trace_received(trace, &message, there, there + 3000);
    nw_ledger_sent(ledger, from, to, &header);
    nw_ledger_received(ledger, from, to, &header);
    nw_ledger_transport(ledger, NW_SENT, message.bytes);
    nw_ledger_transport(ledger, NW_RECEIVED, message.bytes);
}

static void play_step(nw_trace *trace, nw_ledger *ledger, int64_t step)
{
    int64_t begin = step * 2000000, end = begin + 1800000;
    for (int rank = 0; rank < WORLD; rank++) {
        int64_t middle = begin + 400000, done = computed(begin, rank);
        nw_trace_span(trace, rank, NW_TRACE_COMPUTE, nw_trace_name(trace, "step"), step, begin, done);
        nw_trace_span(trace, rank, NW_TRACE_COMPUTE, nw_trace_name(trace, "forward"), step, begin, middle);
        nw_trace_span(trace, rank, NW_TRACE_COMPUTE, nw_trace_name(trace, "backward"), step, middle, done);
        nw_trace_span(trace, rank, NW_TRACE_EXCHANGE, nw_trace_name(trace, "wait"), step, done, end);
        for (int to = 0; to < WORLD; to++)
            if (to != rank) play_message(trace, ledger, step, begin, rank, to);
        nw_trace_counter(trace, rank, nw_trace_name(trace, "loss"), step, end, 1.0 / (double)step);
    }
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: trace_sample DIR STEPS EVENTS\n");
        return 2;
    }
    int64_t steps = atoll(arguments[2]);
    nw_trace *trace;
    nw_ledger *ledger;
    nw_trace_options options = {
        .world = WORLD, .ranks = WORLD, .host = "sample", .events = (size_t)atoll(arguments[3])};
    nw_ledger_options ledger_options = {.world = WORLD, .ranks = WORLD, .segments = 1};
    require(nw_trace_create(&trace, &options));
    require(nw_ledger_create(&ledger, &ledger_options));
    for (int64_t step = 1; step <= steps; step++) play_step(trace, ledger, step);
    char *path;
    nw_ledger_run run = {.steps = steps, .images = steps * WORLD * 8};
    require(nw_path_join(&path, arguments[1], "trace.json"));
    nw_trace_view view = nw_trace_look(trace, 0);
    require(nw_trace_write(trace, path, &view, NULL, NULL));
    free(path);
    require(nw_path_join(&path, arguments[1], "ledger.json"));
    require(nw_ledger_check(ledger));
    require(nw_ledger_check_links(ledger, NULL));
    require(nw_ledger_save_json(ledger, run, path));
    require(nw_ledger_print(ledger, run, stdout));
    free(path);
    nw_ledger_free(ledger);
    nw_trace_free(trace);
    return 0;
}
