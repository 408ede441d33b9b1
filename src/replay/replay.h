/*
 * Folder src/replay: reading event logs, and the driver that repeats a run from one. src/net writes the logs. Nothing
 * here decides what an exchange does. May include: base, net.
 *
 * replay.h - a driver that repeats one part of a recorded run (event_log.h): all ranks in this process.
 *
 * Every rank receives exactly the events of its log, in the same order and with the same times, and begins its tasks at
 * the same places. A message is identified by its sender and the sender's count of messages (nw_rank.sequence), which
 * depends only on the events that the sender received. If a rank needs a message that was not sent yet, it waits, and
 * the rank that is furthest behind goes on. So every exchange is repeated bit for bit, even if its arithmetic depends
 * on order and time, provided that handlers do not change what a running task reads: here tasks are computed completely
 * when they begin, as on a virtual cluster.
 *
 * If a rank requests something else than in its log, or needs a message that is never sent, the run has diverged from
 * its event log: NW_E_MISMATCH names the rank, the record and what differs.
 *
 * After the last run that the part counts, all ranks are quiescent, and the driver is over (nw_driver.over).
 */
#ifndef NW_REPLAY_REPLAY_H
#define NW_REPLAY_REPLAY_H

#include "net/driver.h"
#include "replay/recording.h"

/* The part outlives the driver. The options' recorder is not used. */
nw_status nw_replay_create(nw_driver **driver, const nw_driver_options *options, const nw_log_part *part);

#endif
