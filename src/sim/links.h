/*
 * links.h - when a message arrives: the network of a virtual cluster, with its queues.
 *
 * The route of a message of `bytes` from rank a on node A to rank b on node B, sent at `now`, is a list of resources
 * with a bandwidth B_r each (those without limit are left out):
 *   1. the pair (a, b): at the smallest bandwidth of the whole route; other pairs do not disturb it
 *   2. its link, if all pairs that use this link share it
 *   3. the NIC of A, outwards; the trunk of A's switch, upwards; the trunk of B's switch, downwards; the NIC of B,
 *      inwards: only where A and B differ, trunks only where the switches differ
 *
 *   s_r     = bytes / B_r, of the pair and of A's NIC also the link's overhead       what the message takes of r
 *   start_1 = first time >= now at which the link is up and the pair's message before is through
 *   start_r = begin of the first gap of r, of length s_r, at or after start_(r-1)
 *   end_r   = max(start_r + s_r, end_(r-1))            cut-through: the head goes on while the tail still comes
 *   arrival = end_last + latency * jitter, but not before the message that the pair sent before
 *
 * So a lone message needs bytes / (smallest bandwidth) + latency. On a copied link bytes take no time here: the
 * receiving rank copies them (nw_cluster_copy_ns). While a link is down nothing moves on it (faults.h);
 * while it is slow, times on it are so much longer. Limits of the model: queues are first come, first served, in the
 * order of the calls: a short message may slip into a gap that is left before a reserved time, but flows do not share
 * a resource fairly at the same time; switches buffer without limit and lose nothing; there is no congestion control.
 *
 * Times of calls must not decrease. Messages of one pair arrive in the order in which they were sent. The state is
 * data: times until which queues are taken (nw_links_save).
 *
 * Threads: one at a time.
 */
#ifndef NW_SIM_LINKS_H
#define NW_SIM_LINKS_H

#include "sim/cluster.h"
#include "sim/faults.h"

typedef struct nw_links nw_links;

/* Both must outlive the links; faults may be NULL. */
nw_status nw_links_create(nw_links **links, const nw_cluster *cluster, const nw_faults *faults);
void nw_links_free(nw_links *links);

/* Sends at time `now`; returns the time of arrival, NW_NEVER if the link stays down. `sequence` counts the messages of
 * (from, to) and is what jitter is drawn from. A message to oneself arrives at once. Allocates nothing. */
int64_t nw_links_send(nw_links *links, int from, int to, size_t bytes, int64_t now, uint64_t sequence);

/* The queues as numbers, for checkpoints: now nw_links_state_count of them, which save writes. Load
 * takes them back for a cluster of the same shape; NW_E_FILE where they are none. Then sends go on as if nothing had
 * happened. */
size_t nw_links_state_count(const nw_links *links);
void nw_links_save(const nw_links *links, int64_t *state);
nw_status nw_links_load(nw_links *links, const int64_t *state, size_t count);

#endif
