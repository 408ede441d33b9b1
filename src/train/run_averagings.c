/*
 * run_averagings.c - what a run whose replicas average in pairs leaves of that: keys of summary.json, and exchanges.tsv, the
 * matrix of who averaged how often with whom. See run_private.h.
 */
#include "train/run_private.h"

#include "base/file.h"
#include "base/text.h"

#include <stdio.h>

void nw_run_fill_averagings(const run *r, nw_end_record *end)
{
    const nw_replicas *group = r->group;
    const nw_averagings *a = &r->result->averagings;
    int64_t halves = 0, idle = 0, again = 0;
    if (!nw_replicas_is_gossip(group)) return;
    end->graph = r->options->group.graph;
    end->chi1 = group->chi1;
    end->chi2 = group->chi2;
    if (group->consensus_count > 0) {
        end->consensus_mean = group->consensus_sum / (double)group->consensus_count;
        end->consensus_final = group->consensus;
    }
    for (int i = 0; i < a->world; i++) {
        halves += a->exchanges[i];
        idle += a->idle_ns[i];
        again += a->again[i];
    }
    if (a->world == 0) return;
    end->exchanges = halves / 2;
    end->idle_seconds = (double)idle * 1e-9;
    if (nw_assign_compresses(&group->options.codecs)) end->sent_again = again;
}

static nw_status save(const run *r)
{
    const nw_averagings *a = &r->result->averagings;
    NW_CLEANUP(nw_text_free) nw_text text = {0};
    NW_AUTOFREE char *path = NULL;
    if (a->world == 0 || !r->options->run_dir) return NW_OK;
    NW_TRY(nw_text_begin(&text));
    fprintf(text.out, "rank\tgradients\texchanges\trefused\tidle_seconds");
    for (int j = 0; j < a->world; j++) fprintf(text.out, "\twith_%d", j);
    for (int i = 0; i < a->world; i++) {
        fprintf(text.out, "\n%d\t%lld\t%lld\t%lld\t%.6f", i, (long long)a->gradients[i], (long long)a->exchanges[i],
                (long long)a->refused[i], (double)a->idle_ns[i] * 1e-9);
        for (int j = 0; j < a->world; j++) fprintf(text.out, "\t%lld", (long long)a->with[i * a->world + j]);
    }
    fprintf(text.out, "\n");
    NW_TRY(nw_text_end(&text));
    NW_TRY(nw_path_join(&path, r->options->run_dir, "exchanges.tsv"));
    return nw_file_replace(path, text.text, text.size);
}

static nw_status hash_mean(run *r)
{
    nw_params model = first(r)->net->model.params;
    NW_AUTOFREE float *mean = NULL;
    NW_NEW(mean, model.learned.floats, "the mean of all replicas");
    NW_TRY(nw_replicas_mean(r->group, mean));
    model.values = mean;
    nw_params_sha256(&model, r->result->weights_sha256);
    return NW_OK;
}

nw_status nw_run_add_averagings(run *r)
{
    if (!nw_replicas_is_gossip(r->group)) return NW_OK;
    NW_TRY(nw_replicas_averagings(r->group, &r->result->averagings));
    if (leads(r)) nw_run_tell(r, save(r));
    return hash_mean(r);
}
