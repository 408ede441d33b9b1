/*
 * pipeline.h - a pipeline of several ranks, for tests: a machine between a worker and its exchange, in the place of
 * exchange/passes.c.
 *
 * Stage p of P does the same at every time and in every world, whatever arrives when. In iteration s:
 *
 *   forward    batch s, when `up s` is here (stage 0: from the loader); TAKEN s goes down, `up s` goes up
 *   backward   batch s - D(p), when `down s - D(p)` is here, which goes on down; D(p) = ceil(h (P - 1 - p))
 *   update     when `accumulation` batches have come back: the exchange has its gradient
 *
 * and the last stage, where D = 0, goes forward and backward in one pass. It begins an iteration only when its exchange
 * has asked for a gradient, so that a batch goes forward at parameters that depend on nothing but its number.
 *
 * No deadlock. Sort what ranks do by iteration, in it forward from stage 0 to the last, then backward from the last to
 * stage 0, then updates: everybody waits for earlier things only. That holds for any h.
 *
 * Windows. At most `window` batches are on their way up that the next stage has not TAKEN; a further one is held back,
 * and no other goes forward meanwhile. Batches on their way down are bounded by the order, at most ceil(h) + 1.
 *
 * Pace. In step, GO says how many batches go forward in a run. It ends after as many iterations: batches of the last
 * D(p) have not come back to stage p then, messages down that are ahead of it are held and saved, and the exchange has
 * made (N - D(p)) / accumulation updates after N batches. A run that drains goes on for D(p) iterations without forward
 * passes. For the exchange that is a second GO, since all are asked to stop in the first part only.
 *
 * Stopping. Who is asked tells stage 0, which asks its exchange to stop; stages 0 agree on an update as they always
 * do. When its exchange is quiescent, stage 0 tells its row after how many batches the run ends (END): nobody can have
 * gone further without a message from below. Other exchanges' last gradient ends incomplete.
 *
 * Stage 0 counts. What a stage says of the world's updates is what stage 0 has made when it is quiescent.
 */
#ifndef NW_TESTS_PIPELINE_H
#define NW_TESTS_PIPELINE_H

#include "exchange/exchange.h"

enum { PIPELINE_BATCH = 1, PIPELINE_END, PIPELINE_TAKEN, PIPELINE_STOP }; /* kinds of messages */

typedef struct pipeline_options {
    nw_group row;            /* the stages of this replica */
    const nw_params *params; /* of this stage */
    int accumulation;        /* 0: 1 */
    double hop;              /* h */
    int window;              /* 0: 3 */
    size_t floats;           /* of a message down */
} pipeline_options;

/* Takes over the exchange. */
nw_status pipeline_create(nw_machine **pipeline, nw_machine *exchange, const pipeline_options *options);
int64_t pipeline_delay(double hop, int stages, int stage); /* D */

#endif
