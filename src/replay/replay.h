/*
 * Folder src/replay: reading event logs, and the driver that repeats a run from one. Whatever is recorded is written by
 * src/net; nothing here decides anything. May include: base, net.
 *
 * replay.h - a driver that repeats one part of a recorded run (event_log.h): all ranks in this process.
 *
 * Every rank is told exactly the events that it was told then, in that order and with those times, and begins its tasks
 * where it did. A message is named by its sender and how many that one had made (nw_rank.sequence), which depends on
 * nothing but what the sender was told; a rank that needs one that does not exist yet waits, and another goes on, the
 * one that is furthest behind first. So any exchange is repeated bit for bit, also where order and time enter its
 * arithmetic, provided that what it does while a task runs does not change what that task reads: here tasks are done
 * whole when they begin, as on a virtual cluster.
 *
 * Where a rank asks for something else than it did, or needs a message that nobody sends, the run has diverged from its
 * event log, and NW_E_MISMATCH names the rank, the record and what differs.
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
