/* options.c - the table of options and what is made from it; see options.h. */
#include "cli/options.h"

#include "base/suggest.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum option_kind { FLAG, INT, INT64, TEXT, CHOICE } option_kind;

typedef struct option {
    const char *name, *value_name, *fallback; /* fallback: the default, as the user would write it */
    option_kind kind;
    unsigned commands;
    size_t offset;
    double least, most;
    const char *help;
} option;

#define BENCH     (NW_COMMAND_BENCH_TRAIN | NW_COMMAND_BENCH_CONV)
#define AT(field) offsetof(nw_settings, field)

static const option table[] = {
    {"model", "NAME", "resnet18", TEXT, BENCH, AT(model), 0, 0, "which network; 'nowait info --models' lists them"},
    {"batch-size", "N", "128", INT, BENCH, AT(batch_size), 1, 1 << 20, "images of a step"},
    {"precision", "f32|bf16|auto", "auto", CHOICE, BENCH, AT(precision), 0, 0,
     "of activations; auto is bf16 where AMX is usable"},
    {"threads", "T", "0", INT, BENCH | NW_COMMAND_INFO, AT(threads), 0, 4096, "0 means all CPUs this process may use"},
    {"width", "W", "0", INT, BENCH | NW_COMMAND_INFO, AT(width), 0, 8192,
     "channels of the first stage, the others in proportion; 0 is the model's own"},
    {"image-size", "S", "0", INT, BENCH | NW_COMMAND_INFO, AT(image_size), 0, 4096,
     "height and width of the images; 0 is what the model was published for"},
    {"classes", "K", "10", INT, BENCH | NW_COMMAND_INFO, AT(classes), 2, 1 << 20, "number of classes"},
    {"steps", "N", "10", INT, NW_COMMAND_BENCH_TRAIN, AT(steps), 1, 1 << 30, "timed steps, after two that are not"},
    {"repeats", "N", "5", INT, NW_COMMAND_BENCH_CONV, AT(repeats), 1, 1 << 20,
     "rounds over all layers; the best of each counts"},
    {"fused", NULL, "false", FLAG, NW_COMMAND_BENCH_CONV, AT(fused), 0, 0,
     "with what training fuses in: normalise, statistics, gates"},
    {"profile", NULL, "false", FLAG, NW_COMMAND_BENCH_TRAIN, AT(profile), 0, 0,
     "also print the share of each kind of work"},
    {"seed", "N", "0", INT64, NW_COMMAND_BENCH_TRAIN, AT(seed), 0, 9e18, "of weights and data"},
    {"format", "table|json", "table", CHOICE, BENCH, AT(format), 0, 0, "of the result on stdout"},
    {"stem", "auto|small|imagenet", "auto", CHOICE, BENCH | NW_COMMAND_INFO, AT(stem), 0, 0,
     "of ResNets: small is 3 x 3, imagenet 7 x 7 with stride 2 and pooling"},
    {"models", NULL, "false", FLAG, NW_COMMAND_INFO, AT(models), 0, 0,
     "list the models and the schemes of initial values"},
    {"graph", "FILE.svg", "", TEXT, NW_COMMAND_INFO, AT(graph), 0, 0, "also draw the model"},
};
enum { OPTIONS = sizeof table / sizeof table[0] };

/* Compares option names; '_' is '-', and a '=' ends the text. */
static bool same_name(const char *text, const char *name)
{
    for (; *name; text++, name++)
        if (*text != *name && !(*text == '_' && *name == '-')) return false;
    return *text == 0 || *text == '=';
}

static const option *find(const char *text, unsigned command)
{
    for (int i = 0; i < OPTIONS; i++)
        if ((table[i].commands & command) && same_name(text, table[i].name)) return &table[i];
    return NULL;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const words[2][4] = {{"false", "no", "0", "off"}, {"true", "yes", "1", "on"}};
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(text, words[v][i]) == 0) {
                *value = v == 1;
                return true;
            }
    return false;
}

/* True if text is one of the words of "a|b|c". */
static bool is_choice(const char *text, const char *choices)
{
    size_t length = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (strncmp(c, text, length) == 0 && (c[length] == 0 || c[length] == '|') && length > 0) return true;
    return false;
}

static nw_status set_value(const option *o, const char *text, nw_settings *settings)
{
    void *at = (char *)settings + o->offset;
    if (o->kind == FLAG) {
        NW_FAIL_IF(!parse_bool(text, at), NW_E_ARGUMENT, "--%s takes true or false, not '%s'", o->name, text);
    } else if (o->kind == TEXT || o->kind == CHOICE) {
        NW_FAIL_IF(o->kind == CHOICE && !is_choice(text, o->value_name), NW_E_ARGUMENT, "--%s is %s, not '%s'", o->name,
                   o->value_name, text);
        *(const char **)at = text;
    } else {
        char *end;
        errno = 0;
        long long value = strtoll(text, &end, 10);
        NW_FAIL_IF(end == text || *end, NW_E_ARGUMENT, "--%s takes a whole number, not '%s'", o->name, text);
        NW_FAIL_IF(errno || (double)value < o->least || (double)value > o->most, NW_E_ARGUMENT,
                   "--%s is %s; it must be %.0f to %.0f", o->name, text, o->least, o->most);
        if (o->kind == INT)
            *(int *)at = (int)value;
        else
            *(int64_t *)at = value;
    }
    return NW_OK;
}

static nw_status unknown(const char *text, unsigned command)
{
    const char *names[OPTIONS];
    char wrong[64];
    int count = 0;
    for (int i = 0; i < OPTIONS; i++)
        if (table[i].commands & command) names[count++] = table[i].name;
    snprintf(wrong, sizeof wrong, "%.*s", (int)strcspn(text, "="), text);
    return NW_FAIL(NW_E_ARGUMENT, "there is no option --%s here; the nearest is --%s, and --help lists all", wrong,
                   nw_suggest(wrong, names, count));
}

/* One option at argv[*i]; moves *i past what it used. */
static nw_status parse_one(unsigned command, int argc, char **argv, int *i, nw_settings *settings)
{
    const char *text = argv[*i] + 2, *equals = strchr(text, '=');
    const option *o = find(text, command);
    if (!o && strncmp(text, "no-", 3) == 0) {
        o = find(text + 3, command);
        if (o && o->kind == FLAG && !equals) return set_value(o, "false", settings);
        o = NULL;
    }
    if (!o) return unknown(text, command);
    if (equals) return set_value(o, equals + 1, settings);
    if (o->kind == FLAG) {
        bool ignored;
        if (*i + 1 < argc && parse_bool(argv[*i + 1], &ignored)) return set_value(o, argv[++*i], settings);
        return set_value(o, "true", settings);
    }
    NW_FAIL_IF(*i + 1 >= argc, NW_E_ARGUMENT, "--%s needs a value: %s", o->name, o->value_name);
    return set_value(o, argv[++*i], settings);
}

nw_status nw_options_parse(unsigned command, int argc, char **argv, nw_settings *settings, int *positional)
{
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < OPTIONS; i++) NW_TRY(set_value(&table[i], table[i].fallback, settings));
    *positional = 0;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && argv[i][2])
            NW_TRY(parse_one(command, argc, argv, &i, settings));
        else if (argv[i][0] == '-' && argv[i][1])
            return NW_FAIL(NW_E_ARGUMENT, "'%s': options are written with two dashes; --help lists them", argv[i]);
        else
            argv[(*positional)++] = argv[i];
    }
    return NW_OK;
}

void nw_options_help(unsigned command, FILE *out)
{
    for (int i = 0; i < OPTIONS; i++) {
        const option *o = &table[i];
        if (!(o->commands & command)) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value_name ? " " : "", o->value_name ? o->value_name : "");
        fprintf(out, "  %-26s %s", left, o->help);
        if (o->kind != FLAG && *o->fallback) fprintf(out, " [%s]", o->fallback);
        fputc('\n', out);
    }
}

nw_precision nw_settings_precision(const nw_settings *s)
{
    return strcmp(s->precision, "f32") == 0    ? NW_PRECISION_F32
           : strcmp(s->precision, "bf16") == 0 ? NW_PRECISION_BF16
                                               : NW_PRECISION_AUTO;
}
