/* fuzz_paper.c - bytes as a paper; the runs of what is accepted are planned at every scale. */
#include "config/settings.h"
#include "experiment/paper.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(const nw_experiment *e, const char *scale, bool real)
{
    nw_settings settings;
    nw_trials trials = {.settings = &settings};
    if (nw_settings_begin(&settings, NW_COMMAND_REPRODUCE) != NW_OK) abort();
    settings.experiment.scale = scale;
    settings.experiment.real = real;
    if (nw_experiment_plan(e, &trials) == NW_OK)
        for (int t = 0; t < trials.count; t++)
            if (strchr(trials.at[t].name, '/') || (!*trials.at[t].name && !e->recipe)) abort();
    nw_trials_free(&trials);
    nw_settings_free(&settings);
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
