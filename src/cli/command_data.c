/*
 * command_data.c - `nowait data`: fetch a dataset, tell what is in it, or convert it to one nowait-raw file. The work
 * is in src/data; here are the words.
 */
#include "cli/command.h"
#include "setup/download.h"
#include "config/command_options.h"

#include "base/json.h"
#include "base/suggest.h"
#include "data/bytes.h"
#include "data/facts.h"
#include "data/fetch.h"

#include <stdio.h>
#include <string.h>

static void usage(void)
{
    printf("usage: nowait data fetch DATASET [options]    download it, check its digest, unpack it\n"
           "       nowait data info DATASET [options]     splits, classes, sizes, measured mean and deviation\n"
           "       nowait data import DATASET [options]   convert it to DATASET.nwraw, which opens faster\n\n");
    nw_options_help(NW_COMMAND_DATA, stdout);
    printf("\ndatasets:\n");
    for (int i = 0; i < nw_dataset_kinds(); i++)
        printf("  %-14s %s\n", nw_dataset_kind_name(i), nw_dataset_kind_summary(i));
    printf("\nThe environment variable NOWAIT_MIRROR has the same meaning as --url.\n");
}

static nw_status fetch(const char *name, const nw_data_options *s)
{
    nw_download_talk talk = {0};
    bool already;
    nw_fetch_options o = {.name = name,
                          .dir = s->all->data_dir,
                          .url = s->url,
                          .progress = s->all->quiet ? NULL : nw_download_print,
                          .progress_context = &talk};
    NW_TRY(nw_data_fetch(&o, &already));
    printf("%s is %s in %s\n", name, already ? "already" : "now", s->all->data_dir);
    return NW_OK;
}

static const char *const split_names[NW_SPLITS] = {"train", "valid", "test"};

static void print_split(const nw_dataset *d, const nw_data_facts *f, nw_split split)
{
    int64_t least = INT64_MAX, most = 0;
    for (int c = 0; c < d->classes; c++) {
        int64_t n = f->per_class[split][c];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    if (d->split[split].count == 0)
        printf("%-11s none\n", split_names[split]);
    else if (least == most)
        printf("%-11s %lld images, %lld a class\n", split_names[split], (long long)d->split[split].count,
               (long long)most);
    else
        printf("%-11s %lld images, %lld to %lld a class\n", split_names[split], (long long)d->split[split].count,
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

static void json_numbers(nw_json *json, const char *key, const double *values, int count)
{
    nw_json_put_array(json, key);
    for (int c = 0; c < count; c++) nw_json_double(json, values[c]);
    nw_json_array_end(json);
}

static void json_facts(const nw_dataset *d, const nw_data_facts *f)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "dataset", d->name);
    nw_json_put_string(&json, "source", d->source);
    nw_json_put_int(&json, "classes", d->classes);
    nw_json_put_int(&json, "channels", d->channels);
    const char *const sizes[] = {"least_height", "most_height", "least_width", "most_width"};
    const int pixels[] = {f->least_height, f->most_height, f->least_width, f->most_width};
    for (int i = 0; i < 4; i++) nw_json_put_int(&json, sizes[i], pixels[i]);
    for (int s = 0; s < NW_SPLITS; s++) {
        nw_json_put_object(&json, split_names[s]);
        nw_json_put_int(&json, "images", d->split[s].count);
        nw_json_put_array(&json, "per_class");
        for (int c = 0; c < d->classes; c++) nw_json_int(&json, f->per_class[s][c]);
        nw_json_array_end(&json);
        nw_json_object_end(&json);
    }
    nw_json_put_int(&json, "measured_images", f->measured);
    json_numbers(&json, "mean", f->mean, d->channels);
    json_numbers(&json, "deviation", f->deviation, d->channels);
    if (d->class_names) {
        nw_json_put_array(&json, "class_names");
        for (int c = 0; c < d->classes; c++) nw_json_string(&json, d->class_names[c]);
        nw_json_array_end(&json);
    } else {
        nw_json_put_string(&json, "class_names", NULL);
    }
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static nw_dataset_options options_of(const char *name, const nw_data_options *s)
{
    return (nw_dataset_options){.name = name,
                                .dir = s->all->data_dir,
                                .val_ratio = s->val_ratio,
                                .classes = s->classes,
                                .limit = s->limit,
                                .seed = (uint64_t)s->all->seed};
}

static nw_status info(const char *name, const nw_data_options *s)
{
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *d = NULL;
    NW_CLEANUP(nw_data_facts_free) nw_data_facts facts = {0};
    nw_dataset_options o = options_of(name, s);
    NW_TRY(nw_dataset_open(&d, &o));
    NW_TRY(nw_data_measure(&facts, d));
    if (strcmp(s->format, "json") == 0)
        json_facts(d, &facts);
    else
        print_facts(d, &facts);
    return NW_OK;
}

static nw_status import(const char *name, const nw_data_options *s)
{
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *d = NULL;
    char path[NW_PATH_SIZE], file[64];
    nw_dataset_options o = options_of(name, s);
    o.published = true;
    snprintf(file, sizeof file, "%.40s.nwraw", name);
    NW_TRY(nw_path_put(path, s->all->data_dir, file));
    const char *to = s->output[0] ? s->output : path;
    NW_TRY(nw_dataset_open(&d, &o));
    NW_TRY(nw_data_import(d, to));
    printf("%s is now in %s\n", name, to);
    return NW_OK;
}

nw_status nw_command_data(int argc, char **argv)
{
    static nw_status (*const run[])(const char *dataset, const nw_data_options *options) = {fetch, info, import};
    const char *names[] = {"fetch", "info", "import"};
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional, verb = 0;
    if (nw_wants_help(argc, argv)) {
        usage();
        return NW_OK;
    }
    NW_TRY(nw_options_parse(NW_COMMAND_DATA, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional != 2, NW_E_ARGUMENT,
               "say what to do and with which dataset: 'nowait data fetch|info|import DATASET'; --help lists them");
    while (verb < 3 && strcmp(argv[0], names[verb])) verb++;
    NW_FAIL_IF(verb == 3, NW_E_ARGUMENT, "there is no 'nowait data %s'%s", argv[0],
               nw_suggest(argv[0], names, 3, "--help lists them").text);
    nw_data_options options = nw_data_options_of(settings);
    return run[verb](argv[1], &options);
}
