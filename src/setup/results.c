/* results.c - see results.h. */
#include "setup/results.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/text.h"
#include "config/option_table.h"
#include "observe/results.h"

#include <math.h>
#include <time.h>

enum { IDS = 101 }; /* of one second */

static nw_status put_options(nw_result_row *row, const nw_settings *s)
{
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        char key[64];
        if (!(o->commands & NW_COMMAND_TRAIN) || o->status == NW_OPTION_IGNORED) continue;
        snprintf(key, sizeof key, "%s", o->name);
        for (char *c = key; *c; c++)
            if (*c == '-') *c = '_';
        NW_TRY(nw_result_row_put(row, key, "%s", nw_settings_value(s, o->name)));
    }
    return NW_OK;
}

/* One that no run of this folder has. */
static nw_status find_id(const char *dir, char *id, size_t size)
{
    time_t now = time(NULL);
    struct tm t;
    localtime_r(&now, &t);
    for (int i = 0, first = (int)((uint64_t)nw_now_ns() % IDS); i < IDS; i++) {
        NW_AUTOFREE char *path = NULL;
        snprintf(id, size, "%d_%d_%d_%d_%d_%d_%d", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min,
                 t.tm_sec, (first + i) % IDS);
        NW_TRY(nw_text_print(&path, "%s/com_logs/%s.txt", dir, id));
        if (!nw_file_is_regular(path)) return NW_OK;
    }
    return NW_OK; /* a hundred runs that ended in this second: the last one's log is replaced */
}

static nw_status put_results(nw_result_row *row, const nw_world *w, const nw_dataset *d, const nw_run_result *r)
{
    char cpu[128];
    int64_t images = d->split[NW_SPLIT_TEST].count, seconds = llround(r->end.total_seconds);
    nw_machine_cpu_name(cpu, sizeof cpu);
    NW_TRY(
        nw_result_row_put(row, "total_time", "%lld min %lld s", (long long)(seconds / 60), (long long)(seconds % 60)));
    NW_TRY(nw_result_row_put(row, "n_workers", "%d", w->size));
    NW_TRY(nw_result_row_put(row, "n_nodes", "%d", w->nodes));
    NW_TRY(nw_result_row_put(row, "device", "%s", cpu));
    if (!isfinite(r->last.test_top1)) return NW_OK;
    NW_TRY(nw_result_row_put(row, "test_correct", "%lld / %lld", llround(r->last.test_top1 * (double)images / 100),
                             (long long)images));
    return nw_result_row_put(row, "test_accuracy", "%.2f", r->last.test_top1);
}

/* The workers' numbers, and who averaged with whom. */
static nw_status put_averagings(nw_result_row *row, const char *dir, const char *id, const nw_averagings *a)
{
    for (int i = 0; i < a->world; i++) {
        char column[32];
        snprintf(column, sizeof column, "worker_%d", i);
        NW_TRY(nw_result_row_put(row, column, "%lld / %lld", (long long)a->gradients[i], (long long)a->exchanges[i]));
    }
    return a->world > 0 ? nw_results_save_exchanges(dir, id, a->with, a->world) : NW_OK;
}

nw_status nw_results_of_run(const nw_train_options *o, const nw_world *w, const nw_dataset *d, const nw_run_result *r)
{
    NW_CLEANUP(nw_result_row_free) nw_result_row row = {0};
    const char *dir = o->job.path_logs;
    char id[96];
    if (!*dir || r->nothing_to_do) return NW_OK;
    NW_TRY(find_id(dir, id, sizeof id));
    NW_TRY(put_options(&row, o->settings));
    NW_TRY(nw_result_row_put(&row, "id", "%s", id));
    NW_TRY(put_results(&row, w, d, r));
    NW_TRY(put_averagings(&row, dir, id, &r->averagings));
    return nw_results_add(dir, &row);
}
