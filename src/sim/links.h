/*
 * links.h - the network of a virtual cluster with its queues: it computes when a message arrives.
 *
 * The route of a message of `bytes` from rank a on node A to rank b on node B, sent at `now`, is a list of resources
 * with a bandwidth B_r each (those without limit are left out):
 *   1. the pair (a, b), with the smallest bandwidth of the whole route; other pairs do not use it
 *   2. its link, if all pairs that use this link share it
 *   3. the NIC of A, outwards; the trunk of A's switch, upwards; the trunk of B's switch, downwards; the NIC of B,
 *      inwards: only where A and B differ, trunks only where the switches differ
 *
 *   s_r     = bytes / B_r, for the pair and A's NIC plus the link's overhead         the time for which r is occupied
 *   start_1 = first time >= now at which the link is up and the pair's previous message is through
 *   start_r = begin of the first gap of r, of length s_r, at or after start_(r-1)
 *   end_r   = max(start_r + s_r, end_(r-1))            cut-through: the head moves on while the tail still arrives
 *   arrival = end_last + latency * jitter, but not before the pair's previous message
 *
 * So a single message needs bytes / (smallest bandwidth) + latency. On a copied link bytes take no time here, because
 * the receiving rank copies them (nw_cluster_copy_ns). Nothing moves on a link that is down (faults.h); on a slow link
 * times are multiplied by its factor. Limits of the model: queues are first come, first served, in the order of the
 * calls. A short message may use a gap before a reserved time, but flows do not share a resource fairly at the same
 * time. Switches buffer without limit and lose nothing. There is no congestion control.
 *
 * Times of calls must not decrease. Messages of one pair arrive in the order in which they were sent. The state is
 * data: the times for which resources are reserved (nw_links_save).
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

/* Sends a message at time `now`; returns the time of its arrival, NW_NEVER if the link stays down. `sequence` is its
 * number among the messages of (from, to), from which its jitter is drawn. A message to the sender itself arrives at
 * once. Allocates nothing. */
int64_t nw_links_send(nw_links *links, int from, int to, size_t bytes, int64_t now, uint64_t sequence);

/* The queues as nw_links_state_count integers, for checkpoints. They can be loaded for a cluster of the same shape;
 * NW_E_FILE: the numbers are invalid. */
size_t nw_links_state_count(const nw_links *links);
void nw_links_save(const nw_links *links, int64_t *state);
nw_status nw_links_load(nw_links *links, const int64_t *state, size_t count);

#endif
