/*
 * history.h - earlier parameters of a replica, as many as later gradients will still be computed at.
 *
 * Version v is the parameters after v updates. The gradient of update t is computed at version t - delay(t) and applied
 * to version t (delay.h). A ring of D versions would do, at D times the memory of the network. But delays are known in
 * advance: a version is kept only if an update after its own will read it, and dropped after its last reader. So on
 * average no more versions are held than the mean delay; of uniform delays, whose readers often meet, about D / e =
 * 0.37 D, of fixed ones D - 1, and of heavy ones a few. Nothing is rounded: what is read is what was written.
 *
 * Vectors come from a pool that grows one by one while it must and gives nothing back until the end, so a run allocates
 * nothing once it has seen its greatest need. The order of calls, for each update:
 *
 *   const float *old = nw_history_read(h);    before the gradient, as often as its batches; NULL: at the newest
 *   nw_history_keep(h, values);               when it is complete, before `values` change: then the next update's turn
 *
 * One thread at a time.
 */
#ifndef NW_TRAIN_HISTORY_H
#define NW_TRAIN_HISTORY_H

#include "base/histogram.h"
#include "net/state.h"
#include "train/delay.h"

typedef struct nw_history nw_history;

/* Of vectors of `floats` numbers, before update 0. */
nw_status nw_history_create(nw_history **history, const nw_delay_options *options, size_t floats);
void nw_history_free(nw_history *history);

/* The delay of the next update. */
int64_t nw_history_delay(const nw_history *history);
/* The vector that its gradient is computed at, which nobody may change; NULL: the newest, which the caller has. */
float *nw_history_read(const nw_history *history);
/* The gradient of this update is computed, and `newest` will now be changed by it. */
nw_status nw_history_keep(nw_history *history, const float *newest);

/* Delays of all updates so far, also before a checkpoint from which the run went on. */
const nw_histogram *nw_history_delays(const nw_history *history);

/* Lists the versions that are held, and the delays so far. */
void nw_history_state(nw_history *history, nw_state *state, nw_state_rule rule);
/* Forgets everything and goes to where update `update` is the next one, with room for the versions that it and later
 * ones read, whose content nw_history_state lists. NW_E_FILE where there is no such update. */
nw_status nw_history_go_to(nw_history *history, int64_t update);

#endif
