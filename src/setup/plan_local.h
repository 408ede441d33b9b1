/*
 * plan_local.h - from settings to outer steps: --exchange local and the options that are its own.
 */
#ifndef NW_SETUP_PLAN_LOCAL_H
#define NW_SETUP_PLAN_LOCAL_H

#include "config/command_options.h"
#include "train/replicas.h"

/* The part of the exchange's options that is about outer steps. */
void nw_plan_outer(const nw_train_options *settings, nw_exchange_options *exchange);
/* The rule of outer steps; without name, where there are none. */
void nw_plan_outer_rule(const nw_train_options *settings, nw_replica_options *replica);
/* Refuses what makes no sense, in a sentence. */
nw_status nw_plan_check_outer(const nw_train_options *settings);

#endif
