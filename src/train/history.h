/*
 * history.h - keeps the earlier parameters of a replica at which later gradients will still be computed (--max-delay).
 *
 * Version v is the parameters after v updates. The gradient of update t is computed at version t - delay(t) and applied
 * to version t (delay.h). A ring of D versions would need D times the memory of the parameters. But delays are known in
 * advance, so a version is kept only if a later update will read it, and is released after its last reader. So on
 * average no more versions are held than the mean delay: about D / e = 0.37 D for uniform delays, D - 1 for fixed ones,
 * a few for heavy ones. Versions are stored exactly.
 *
 * Vectors come from a pool that grows when it must and is freed at the end, so that a run allocates nothing after its
 * greatest need was reached. The order of calls, for each update:
 *
 *   const float *old = nw_history_read(h);    before each batch of the gradient; NULL: use the newest parameters
 *   nw_history_keep(h, values);               when the gradient is complete, before the update changes `values`
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
/* The parameters at which its gradient is computed, which must not be changed; NULL: the newest ones. */
float *nw_history_read(const nw_history *history);
/* The gradient of this update is computed, and `newest` will now be changed by it. */
nw_status nw_history_keep(nw_history *history, const float *newest);

/* Delays of all updates so far, also before a checkpoint from which the run went on. */
const nw_histogram *nw_history_delays(const nw_history *history);

/* Lists the versions that are held, and the delays so far. */
void nw_history_state(nw_history *history, nw_state *state, nw_state_rule rule);
/* Discards everything and continues so that `update` is the next update; allocates the versions that it and later ones
 * read, which nw_history_state then lists for loading. NW_E_FILE: there is no such update. */
nw_status nw_history_go_to(nw_history *history, int64_t update);

#endif
