/* fuzz_paper.c - bytes as a paper; the runs of what is accepted are planned at every scale. */
#include "experiment/paper.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(const nw_experiment *e, const char *scale, bool real)
{
    nw_common_settings all = {.run_dir = "", .data_dir = "./data"};
    nw_reproduce_options options = {.all = &all, .scale = scale, .seeds = 1, .real = real};
    nw_trials trials = {.seeds = 1};
    if (nw_experiment_plan(e, &options, &trials) == NW_OK)
        for (int t = 0; t < trials.count; t++)
            if (strchr(trials.at[t].name, '/') || (!*trials.at[t].name && !e->recipe)) abort();
    nw_trials_free(&trials);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_paper paper;
    if (nw_paper_parse(&paper, "fuzz", "fuzz.yaml", data, size) == NW_OK)
        for (int i = 0; i < paper.count && i < 16; i++) {
            const nw_experiment *e = &paper.at[i];
            if (e->runs < 1) abort();
            plan(e, "tiny", false);
            plan(e, "paper", e->real.blocks != NULL);
        }
    nw_paper_free(&paper);
    return 0;
}
