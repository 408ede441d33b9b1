/*
 * command_data.c - `nowait data`: fetch a dataset, tell what is in it, or convert it to one nowait-raw file. The work
 * is in src/data; here are the words.
 */
#include "cli/command.h"
#include "cli/options.h"

#include "base/suggest.h"
#include "data/bytes.h"
#include "data/facts.h"
#include "data/fetch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void usage(void)
{
    printf("usage: nowait data fetch DATASET [options]    download it, check its digest, unpack it\n"
           "       nowait data info DATASET [options]     splits, classes, sizes, mean and deviation as measured\n"
           "       nowait data import DATASET [options]   convert it to DATASET.nwraw, which opens at once\n\n");
    nw_options_help(NW_COMMAND_DATA, stdout);
    printf("\ndatasets:\n");
    for (int i = 0; i < nw_dataset_kinds(); i++)
        printf("  %-14s %s\n", nw_dataset_kind_name(i), nw_dataset_kind_summary(i));
    printf("\nNOWAIT_MIRROR in the environment has the same meaning as --url.\n");
}

/* One live line on a terminal; elsewhere a line for every tenth of a file. */
typedef struct talk {
    char file[256];
    int tenths;
} talk;

static bool say_progress(void *context, const char *file, int64_t done, int64_t total)
{
    talk *t = context;
    bool same = strncmp(t->file, file, sizeof t->file - 1) == 0;
    int tenths = total > 0 ? (int)(10 * done / total) : 0;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s%s", file, total > 0 ? "" : " ...");
        if (total > 0) fprintf(stderr, " %.1f of %.1f MB ", (double)done / 1e6, (double)total / 1e6);
        if (total > 0 && done == total) fputc('\n', stderr);
    } else if (!same) {
        fprintf(stderr, "%s\n", file);
    } else if (tenths > t->tenths) {
        fprintf(stderr, "%s: %d %% of %.1f MB\n", file, 10 * tenths, (double)total / 1e6);
    }
    if (!same) snprintf(t->file, sizeof t->file, "%s", file);
    t->tenths = tenths;
    return true;
}

static nw_status fetch(const char *name, const nw_settings *s)
{
    talk t = {0};
    bool already;
    nw_fetch_options o = {
        .name = name, .dir = s->data_dir, .url = s->url, .progress = say_progress, .progress_context = &t};
    NW_TRY(nw_data_fetch(&o, &already));
    printf("%s is %s in %s\n", name, already ? "already" : "now", s->data_dir);
    return NW_OK;
}

static void print_split(const nw_dataset *d, const nw_data_facts *f, nw_split split)
{
    static const char *const names[NW_SPLITS] = {"train", "valid", "test"};
    int64_t least = INT64_MAX, most = 0;
    for (int c = 0; c < d->classes; c++) {
        int64_t n = f->per_class[split][c];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    if (d->split[split].count == 0)
        printf("%-11s none\n", names[split]);
    else if (least == most)
        printf("%-11s %lld images, %lld a class\n", names[split], (long long)d->split[split].count, (long long)most);
    else
        printf("%-11s %lld images, %lld to %lld a class\n", names[split], (long long)d->split[split].count,
               (long long)least, (long long)most);
}

static void print_numbers(const char *what, const double *values, int count)
{
    printf("%-11s", what);
    for (int c = 0; c < count; c++) printf(" %.4f", values[c]);
    putchar('\n');
}

static void print_facts(const nw_dataset *d, const nw_data_facts *f)
{
    enum { MOST_LINES = 100 };
    double mean[4], deviation[4];
    for (int c = 0; c < 4; c++) {
        mean[c] = d->mean[c];
        deviation[c] = d->deviation[c];
    }
    printf("dataset     %s\nsource      %s\nclasses     %d\n", d->name, d->source, d->classes);
    if (f->least_height == f->most_height && f->least_width == f->most_width)
        printf("image       %d x %d x %d\n", d->channels, f->most_height, f->most_width);
    else
        printf("image       %d channels, height %d to %d, width %d to %d\n", d->channels, f->least_height,
               f->most_height, f->least_width, f->most_width);
    for (int s = 0; s < NW_SPLITS; s++) print_split(d, f, (nw_split)s);
    printf("measured on %lld images, on the scale 0 to 1:\n", (long long)f->measured);
    print_numbers("mean", f->mean, d->channels);
    print_numbers("deviation", f->deviation, d->channels);
    printf("as normalised by default:\n");
    print_numbers("mean", mean, d->channels);
    print_numbers("deviation", deviation, d->channels);
    printf("%-8s %8s %8s %8s  %s\n", "class", "train", "valid", "test", "name");
    for (int c = 0; c < d->classes && c < MOST_LINES; c++)
        printf("%-8d %8lld %8lld %8lld  %s\n", c, (long long)f->per_class[0][c], (long long)f->per_class[1][c],
               (long long)f->per_class[2][c], d->class_names ? d->class_names[c] : "-");
    if (d->classes > MOST_LINES) printf("and %d more\n", d->classes - MOST_LINES);
}

static nw_status info(const char *name, const nw_settings *s)
{
    nw_dataset *d;
    nw_data_facts facts;
    nw_dataset_options o = {.name = name, .dir = s->data_dir};
    NW_TRY(nw_dataset_open(&d, &o));
    nw_status status = nw_data_measure(&facts, d);
    if (status == NW_OK) {
        print_facts(d, &facts);
        nw_data_facts_free(&facts);
    }
    nw_dataset_close(d);
    return status;
}

static nw_status import(const char *name, const nw_settings *s)
{
    nw_dataset *d;
    char path[NW_PATH_SIZE], file[64];
    nw_dataset_options o = {.name = name, .dir = s->data_dir, .published = true};
    snprintf(file, sizeof file, "%.40s.nwraw", name);
    NW_TRY(nw_path_put(path, s->data_dir, file));
    NW_TRY(nw_dataset_open(&d, &o));
    nw_status status = nw_data_import(d, path);
    if (status == NW_OK) printf("%s is now in %s\n", name, path);
    nw_dataset_close(d);
    return status;
}

nw_status nw_command_data(int argc, char **argv)
{
    static const struct {
        const char *name;
        nw_status (*run)(const char *dataset, const nw_settings *settings);
    } verbs[] = {{"fetch", fetch}, {"info", info}, {"import", import}};
    const char *names[] = {"fetch", "info", "import"};
    nw_settings settings;
    int positional;
    if (nw_wants_help(argc, argv)) {
        usage();
        return NW_OK;
    }
    nw_status status = nw_options_parse(NW_COMMAND_DATA, argc, argv, &settings, &positional);
    if (status == NW_OK && positional != 2)
        status =
            NW_FAIL(NW_E_ARGUMENT, "say what to do and with which dataset: 'nowait data fetch|info|import DATASET'; "
                                   "--help lists them");
    int verb = 0;
    while (status == NW_OK && verb < 3 && strcmp(argv[0], verbs[verb].name) != 0) verb++;
    if (status == NW_OK && verb == 3)
        status = NW_FAIL(NW_E_ARGUMENT, "there is no 'nowait data %s'; the nearest is '%s'", argv[0],
                         nw_suggest(argv[0], names, 3));
    if (status == NW_OK) status = verbs[verb].run(argv[1], &settings);
    nw_settings_free(&settings);
    return status;
}
