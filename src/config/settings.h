/*
 * settings.h - the settings from inside: where every option's value lives, and how it gets there: layers, origins,
 * notes. Private to src/config; commands read their own struct (command_options.h).
 *
 * Each option has a slot with the text of its value, the layer that set it and its origin in words. A value of a lower
 * layer never replaces one of a higher; within a layer the last wins. So files and options may come in any order.
 */
#ifndef NW_CONFIG_SETTINGS_H
#define NW_CONFIG_SETTINGS_H

#include "config/command_options.h"
#include "config/option_table.h"
#include "config/bump.h"

#include <stddef.h>

typedef enum nw_layer {
    NW_LAYER_DEFAULT,
    NW_LAYER_DEFAULTS_SET,
    NW_LAYER_RECIPE,
    NW_LAYER_CONFIGS,
    NW_LAYER_OVERRIDE,
    NW_LAYER_COMMAND,
} nw_layer;

typedef struct nw_slot {
    nw_layer layer;
    const char *text;   /* canonical */
    const char *origin; /* "default", "recipes/x.yaml:7", ... */
} nw_slot;

enum { NW_NOTES_MOST = 32 };

struct nw_settings {
    nw_train_options run; /* other commands have some of these options too */
    nw_launch_settings launch;
    nw_bench_settings bench; /* eval, predict, data and sweep have its format, replay its steps */
    struct {
        int top;
        bool models;
        const char *graph, *split, *url, *output;
    } look; /* info, eval, predict, data: each has some */
    struct {
        const char *scale;
        nw_text_list grid; /* "lr=0.1,0.2" */
        int seeds;
        bool real, dry_run;
    } experiment; /* sweep, reproduce */
    struct {
        const char *from; /* "": the beginning */
        bool show;
    } replay;
    struct {
        const char *bandwidth, *latency, *overhead, *svg;
        int ranks;
    } plan;

    nw_bump region; /* all texts and lists */
    unsigned command;
    nw_slot slots[NW_OPTIONS_MOST];
    const char *notes[NW_NOTES_MOST];
    int note_count;
    const char *hints, *hinted_set;  /* options that only one reference code has, as typed, and whose they are */
    const char *composed_name;       /* of --configs, without suffix and ranks, or NULL */
    bool scale_with_epochs;          /* the recipe says so */
    bool by_flags;                   /* PETRA's method flags chose the algorithm */
    int recipe_epochs, recipe_batch; /* what the recipe says itself, and the defaults set; 0: nothing */
    int defaults_epochs, defaults_batch;
};

/* A row's field: where the value lives, among the options of a run or the others. */
#define NW_AT(name)     ((unsigned)offsetof(nw_settings, run.name))
#define NW_BESIDE(name) ((unsigned)offsetof(nw_settings, name))

/* Who is to blame for a value: what an error names, and how bad input of this kind ends. */
typedef struct nw_setting_source {
    nw_layer layer;
    const char *origin; /* for the slot */
    const char *where;  /* before the name in messages: "--" or "recipes/x.yaml:7:3: " */
} nw_setting_source;

/* New settings with defaults in every slot of the command. */
nw_status nw_settings_begin(nw_settings **settings, unsigned command);

/* `text` is what the user wrote: items of a list of texts are separated by newlines. `name` is how the user called the
 * option, for messages. The text is checked even where a higher layer keeps its value. */
nw_status nw_settings_set(nw_settings *settings, int index, const char *name, const char *text,
                          const nw_setting_source *source);
/* The same by what nw_option_find made of a name. */
nw_status nw_settings_set_match(nw_settings *settings, nw_option_match match, const char *name, const char *text,
                                const nw_setting_source *source);

/* Remembers an option by how it was typed, with its dashes, if that tells which reference code a line was made for. */
nw_status nw_settings_add_hint(nw_settings *settings, const char *dashes, const char *typed);

nw_status nw_settings_add_note(nw_settings *settings, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The slot of an option of this command; NULL if it has none. */
const nw_slot *nw_settings_slot(const nw_settings *settings, const char *option);

/* Applies a defaults set. */
nw_status nw_settings_apply_defaults(nw_settings *settings, const char *name);

/* What options of codecs leave unsaid (settings_codec.c). */
nw_status nw_settings_finish_codec(nw_settings *settings);
/* After all layers: --shorten and epochs, the algorithm, the run's name, notes on what has no effect. */
nw_status nw_settings_finish(nw_settings *settings);

/* Reads `text` as the option's type. `where` and `name` are for messages, `status` is what a bad text returns. Writes
 * the typed value to `field` (NULL: only checks) and the canonical text. */
nw_status nw_option_read(const nw_option *option, const char *where, const char *name, const char *text,
                         nw_status status, nw_bump *region, void *field, const char **canonical);
bool nw_text_is_bool(const char *text, bool *value);
/* A shortest text that reads back as the same number. */
void nw_number_print(double value, char text[32]);

#endif
