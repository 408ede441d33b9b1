/*
 * results.h - what --path-logs leaves of a run that is done: a row of results.csv and, where members exchange in pairs,
 * com_logs/ID.txt, as ACiD's program writes them. The row has
 *
 *   every option of train     by its key in config.yaml
 *   id                        year, month, day, hour, minute, second and a number, joined by '_'; of com_logs, too
 *   worker_0, worker_1, ...   "gradients / averagings" of each worker, where they are counted
 *   total_time                "m min s s"
 *   n_workers, n_nodes, device
 *   test_correct              "correct / images", of the last evaluation
 *   test_accuracy             percent
 */
#ifndef NW_SETUP_RESULTS_H
#define NW_SETUP_RESULTS_H

#include "config/command_options.h"
#include "setup/world.h"
#include "train/run.h"

/* On rank 0, after nw_run_train; does nothing without --path-logs. */
nw_status nw_results_of_run(const nw_train_options *options, const nw_world *world, const nw_dataset *dataset,
                            const nw_run_result *result);

#endif
