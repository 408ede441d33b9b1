/*
 * plan_gossip.h - from settings to averaging in pairs: graph, rates, momentum.
 */
#ifndef NW_SETUP_PLAN_GOSSIP_H
#define NW_SETUP_PLAN_GOSSIP_H

#include "config/command_options.h"
#include "train/replicas.h"

/* Refuses what makes no sense, in a sentence; also such options without --exchange gossip. */
nw_status nw_plan_check_gossip(const nw_train_options *options);
/* The options of the exchange, without the graph, and the name of that. */
nw_gossip_options nw_plan_averaging(const nw_train_options *options, const char **graph);
/* Fills in graph and exchange.gossip. A graph that the world cannot have is refused. */
nw_status nw_plan_gossip(const nw_train_options *options, nw_replicas_options *group);
/* ", gossip on a cycle graph, ...", for a line at the start. */
void nw_plan_gossip_print(const nw_train_options *options, FILE *out);

#endif
