/*
 * option_table.h - what the table says of an option. Private to the files that make something from it.
 *
 * Rows are unique by (name, command): two rows may share a name if no command takes both. An option without field has
 * no place in nw_settings; its text is checked and kept all the same (nw_settings_value).
 */
#ifndef NW_CONFIG_OPTION_TABLE_H
#define NW_CONFIG_OPTION_TABLE_H

#include "base/suggest.h"
#include "config/options.h"

typedef enum nw_option_kind {
    NW_OPTION_FLAG,    /* bool */
    NW_OPTION_SWITCH,  /* int: nw_switch */
    NW_OPTION_INT,     /* int */
    NW_OPTION_INT64,   /* int64_t */
    NW_OPTION_NUMBER,  /* double */
    NW_OPTION_TEXT,    /* const char * */
    NW_OPTION_CHOICE,  /* const char *, one of `values` */
    NW_OPTION_INTS,    /* nw_int_list */
    NW_OPTION_NUMBERS, /* nw_number_list */
    NW_OPTION_TEXTS,   /* nw_text_list */
    NW_OPTION_KNOTS,   /* nw_knots, "0:0,5:0.4" */
} nw_option_kind;

typedef enum nw_option_status {
    NW_OPTION_MAIN,    /* acts, and is shown on the first screen of help */
    NW_OPTION_LIVE,    /* acts */
    NW_OPTION_LATER,   /* understood; nw_settings_check refuses anything but its default */
    NW_OPTION_IGNORED, /* of other machines: understood, without effect, said in a note */
} nw_option_status;

/* X(identifier, name, summary) */
#define NW_TOPIC_MAP(X)                                                                 \
    X(RUN, "run", "which run, and the files that it writes")                            \
    X(MODEL, "model", "the network and its initial weights")                            \
    X(DATA, "data", "the dataset and its augmentation")                                 \
    X(TRAINING, "training", "length, evaluation, loss")                                 \
    X(OPTIMIZER, "optimizer", "how gradients become updates")                           \
    X(SCHEDULE, "schedule", "the learning rate over time")                              \
    X(CHECKPOINT, "checkpoint", "what is saved, and how a run is resumed")              \
    X(GRADIENT, "gradient", "how one replica computes gradients: backprop, PETRA, ...") \
    X(EXCHANGE, "exchange", "how replicas agree")                                       \
    X(SERVER, "server", "the parameter server, and artificial delays")                  \
    X(CODEC, "codec", "how gradients are compressed between replicas")                  \
    X(DGC, "dgc", "deep gradient compression: warm-up, momentum, sampled thresholds")   \
    X(MEASURE, "measure", "benchmarks, evaluation, many runs")                          \
    X(LAUNCH, "launch", "starting jobs of several ranks, and restarting them")          \
    X(ELSEWHERE, "elsewhere", "options of other programs that have no effect here")

typedef enum nw_topic {
#define NW_TOPIC_ENUM(identifier, name, summary) NW_TOPIC_##identifier,
    NW_TOPIC_MAP(NW_TOPIC_ENUM)
#undef NW_TOPIC_ENUM
        NW_TOPICS
} nw_topic;

enum { NW_NO_FIELD = 0xffff, NW_OPTIONS_MOST = 320 };

typedef struct nw_option {
    const char *name;
    const char *aliases; /* other spellings, separated by spaces; or NULL */
    char letter;         /* the short form, or 0 */
    nw_option_kind kind;
    const char *values;   /* what help shows; for a choice its words: "a|b=other spelling of b|~c"; c is refused */
    const char *fallback; /* the default, as the user would write it */
    unsigned field;       /* offset in nw_settings (NW_AT of settings.h), or NW_NO_FIELD */
    double least, most;   /* of numbers and of each number of a list */
    unsigned commands;
    nw_topic topic;
    nw_option_status status;
    const char *help;
} nw_option;

/* The words of a choice that this version has, first spellings only; what other kinds show, as it is. */
enum { NW_WORDS_MOST = 256 };
void nw_option_words(const nw_option *option, char separator, char text[NW_WORDS_MOST]);
/* Finds a word in "a|b=c|~d", by any of its spellings: where it begins, without '~'; NULL: there is none. */
const char *nw_choice_find(const char *choices, const char *text);

/* All rows: those that act, then those of option_table_exchange.c. An option keeps its index while the program runs. */
int nw_option_count(void);
const nw_option *nw_option_at(int index);
extern const nw_option nw_option_rows[], nw_option_more_rows[];
extern const int nw_option_row_count, nw_option_more_count;

const char *nw_topic_name(nw_topic topic);
const char *nw_topic_summary(nw_topic topic);

/* A flag of a reference code that says in other words what an option says: --no-bn-wd is --decay-filter no-norm. */
typedef struct nw_translation {
    const char *flag, *option, *when_true, *when_false;
    const char *help;
} nw_translation;

int nw_translation_count(void);
const nw_translation *nw_translation_at(int index);

/* What a name (behind the dashes, or a YAML key) means to a command. A '=' ends the name. */
typedef struct nw_option_match {
    int index;                         /* of the option; -1: unknown */
    bool inverted;                     /* --no-x */
    const nw_translation *translation; /* or NULL; then index is the option that it sets */
} nw_option_match;

nw_option_match nw_option_find(const char *text, unsigned command);
nw_option_match nw_option_find_letter(char letter, unsigned command);
/* The nearest name to a misspelt one, as the end of a sentence; of a key of a file with '_'. */
nw_suggestion nw_option_nearest(const char *wrong, unsigned command);
nw_suggestion nw_option_nearest_key(const char *wrong, unsigned command);

/* Defaults sets: petra, apam, acid, layerwise, dgc. */
typedef struct nw_default {
    const char *option, *value;
} nw_default;

/* NULL if there is no such set. */
const nw_default *nw_defaults_find(const char *name, int *count);
/* What a set says of one dataset beside that; NULL: nothing. */
const nw_default *nw_defaults_of_dataset(const char *name, const char *dataset);
/* The set of the one program that has an option of this spelling; NULL: ours, or several have it. */
const char *nw_defaults_of_spelling(const char *typed);
/* What a word of an option means in a set's program; NULL: what it means here. */
const char *nw_defaults_meaning(const char *name, const char *option, const char *word);

#endif
