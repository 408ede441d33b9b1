/*
 * command_help.c - `nowait help`: what is made from the table of options for people and their tools.
 *
 *   nowait help COMMAND [TOPIC]        options, a screen at a time
 *   nowait help completion bash|zsh    for `source <(...)`, or a file in the shell's folder of completions
 *   nowait help man                    a manual page
 *   nowait help options                the reference in Markdown (docs/options.md)
 *   nowait help recipes                names of all recipes
 *   nowait help config [options]       what `nowait train` with these options would run, and what is wrong with it
 */
#include "cli/command.h"
#include "config/option_table.h"
#include "config/recipe.h"
#include "setup/session.h"

#include <string.h>

static const struct {
    const char *name, *argument, *summary;
    unsigned bits;
} commands[] = {
#define ROW(name, arguments, summary, bits) {#name, arguments, summary, bits},
    NW_COMMAND_MAP(ROW)
#undef ROW
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* Rows that share a name with an earlier row of the same command are one option to the user, and what this version
 * refuses is none. */
static bool is_shown(int index, unsigned bits)
{
    const nw_option *o = nw_option_at(index);
    for (int i = 0; i < index; i++)
        if ((nw_option_at(i)->commands & bits) && strcmp(nw_option_at(i)->name, o->name) == 0) return false;
    return (o->commands & bits) && o->status != NW_OPTION_LATER;
}

#define FOR_EACH_OPTION(o, bits)                   \
    for (int i_ = 0; i_ < nw_option_count(); i_++) \
        for (const nw_option *o = nw_option_at(i_); o && is_shown(i_, bits); o = NULL)

/* The words of a choice that help shows. */
static void print_words(const nw_option *o, char separator, FILE *out)
{
    char words[NW_WORDS_MOST];
    nw_option_words(o, separator, words);
    fputs(words, out);
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

static void print_bash(FILE *out)
{
    fputs("# bash completion of nowait: source <(nowait help completion bash)\n"
          "_nowait() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
          "    local words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W \"",
          out);
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "%s%s", i ? " " : "", commands[i].name);
    fputs(
        "\" -- \"$word\"))\n        return\n    fi\n    case $before in\n"
        "    --recipe) COMPREPLY=($(compgen -W \"list $(nowait help recipes 2>/dev/null)\" -- \"$word\")); return ;;\n"
        "    --help) words='",
        out);
    for (int t = 0; t < NW_TOPICS; t++) fprintf(out, "%s%s", t ? " " : "", nw_topic_name((nw_topic)t));
    fputs("' ;;\n", out);
    FOR_EACH_OPTION(o, NW_COMMAND_ALL)
        if (o->kind == NW_OPTION_CHOICE) {
            fprintf(out, "    --%s) words='", o->name);
            print_words(o, ' ', out);
            fputs("' ;;\n", out);
        }
    fputs(
        "    esac\n"
        "    if [ -n \"$words\" ]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n        return\n    fi\n"
        "    case $word in\n    -*) ;;\n    *) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n    esac\n"
        "    case $command in\n",
        out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "    %s) words='--help", commands[i].name);
        FOR_EACH_OPTION(o, commands[i].bits) fprintf(out, " --%s", o->name);
        fputs("' ;;\n", out);
    }
    fputs(
        "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o filenames -F _nowait nowait\n",
        out);
}

/* A text inside single quotes and brackets of zsh's _arguments. */
static void print_zsh_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void print_zsh(FILE *out)
{
    fputs("#compdef nowait\n# zsh completion of nowait: nowait help completion zsh > _nowait, in a folder of $fpath\n"
          "_nowait() {\n    local -a commands\n    commands=(\n",
          out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "        '%s:", commands[i].name);
        print_zsh_text(commands[i].summary, out);
        fputs("'\n", out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    case $words[2] in\n",
          out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", commands[i].name);
        FOR_EACH_OPTION(o, commands[i].bits) {
            bool flag = o->kind == NW_OPTION_FLAG || o->kind == NW_OPTION_SWITCH;
            fprintf(out, "            '--%s[", o->name);
            print_zsh_text(o->help, out);
            fputc(']', out);
            if (!flag) fprintf(out, ":%s:", o->name);
            if (o->kind == NW_OPTION_CHOICE) {
                fputc('(', out);
                print_words(o, ' ', out);
                fputc(')', out);
            } else if (o->kind == NW_OPTION_TEXT || o->kind == NW_OPTION_TEXTS) {
                fputs("_files", out);
            }
            fputs("' \\\n", out);
        }
        fputs("            '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\n_nowait \"$@\"\n", out);
}

/* ---- the manual page --------------------------------------------------------------------------------------------- */

/* Text for troff: dashes stay dashes, and nothing begins a request. */
static void print_troff(const char *text, FILE *out)
{
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

static void print_man_option(const nw_option *o, FILE *out)
{
    fputs(".TP\n", out);
    if (o->letter) fprintf(out, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", out);
    print_troff(o->name, out);
    fputs("\\fR", out);
    if (o->values) {
        fputs(" \\fI", out);
        if (o->kind == NW_OPTION_CHOICE)
            print_words(o, '|', out);
        else
            print_troff(o->values, out);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_troff(o->help, out);
    if (*o->fallback) {
        fputs(". Default: ", out);
        print_troff(o->fallback, out);
    }
    if (o->aliases) {
        fputs(". Also: ", out);
        for (const char *a = o->aliases; *a;) {
            char one[64];
            snprintf(one, sizeof one, "--%.*s", (int)strcspn(a, " "), a);
            print_troff(one, out);
            a += strcspn(a, " ");
            if (*a) fputs(", ", out), a++;
        }
    }
    fputs(".\n", out);
}

static void print_man(FILE *out)
{
    fprintf(out, ".TH NOWAIT 1 \"\" \"nowait %s\" \"User Commands\"\n", nw_version());
    fputs(
        ".SH NAME\nnowait \\- train convolutional networks on CPUs\n.SH SYNOPSIS\n.B nowait\n.I COMMAND\n"
        "[\\fIarguments\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
        "Trains, evaluates and measures convolutional networks on the CPUs of one machine. Without model, dataset and\n"
        "recipe, \\fBnowait train\\fR runs a small demonstration.\n.PP\n"
        "In names of options dashes and underscores are the same. A switch takes a bare flag, \\fB=False\\fR, a word\n"
        "(\\fBTrue\\fR), or \\fB\\-\\-no\\-\\fR before its name. Lists take spaces or commas. The last of repeated options\n"
        "wins. In YAML files a key is an option's name with underscores.\n.PP\n"
        "Where several places set an option, the last of these wins: default, \\fB\\-\\-defaults\\fR, \\fB\\-\\-recipe\\fR,\n"
        "\\fB\\-\\-configs\\fR files in order, \\fB\\-\\-configs.\\fIkey\\fR, the option itself.\n.SH COMMANDS\n",
        out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, ".TP\n\\fB%s\\fR", commands[i].name);
        if (*commands[i].argument) fprintf(out, " %s", commands[i].argument);
        fputc('\n', out);
        print_troff(commands[i].summary, out);
        fputs(".\n", out);
    }
    fputs(".SH OPTIONS\n", out);
    for (int t = 0; t < NW_TOPICS; t++) {
        fprintf(out, ".SS %s\n", nw_topic_name((nw_topic)t));
        print_troff(nw_topic_summary((nw_topic)t), out);
        fputs(".\n", out);
        FOR_EACH_OPTION(o, NW_COMMAND_ALL)
            if ((int)o->topic == t) print_man_option(o, out);
    }
    fputs(
        ".SH FILES\n.TP\n.I recipes/\npublished experiments, looked for here and beside the program\n.TP\n.I configs/\n"
        "the tree for \\fB\\-\\-configs\\fR\n.TP\n.I runs/\nwhat runs leave\n.SH ENVIRONMENT\n.TP\n.B NOWAIT_ISA\n"
        "instruction set to use: avx512, avx2, generic\n.TP\n.B NOWAIT_TRACE\nprint where a failure passed\n"
        ".SH EXIT STATUS\n0 done, 1 failed, 2 usage, 3 bad input file, 4 interrupted but resumable, 5 a peer was lost.\n",
        out);
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

static void print_cell(const char *text, FILE *out)
{
    for (; *text; text++) fprintf(out, *text == '|' ? "\\|" : "%c", *text);
}

static void print_markdown(FILE *out)
{
    fputs("# Options\n\n"
          "Made from the table of options with `nowait help options`; a test keeps both equal. How options, files and\n"
          "defaults combine is in [configuration](configuration.md).\n",
          out);
    for (int t = 0; t < NW_TOPICS; t++) {
        fprintf(out, "\n## %s\n\n%s.\n\n| option | default | meaning | also |\n|---|---|---|---|\n",
                nw_topic_name((nw_topic)t), nw_topic_summary((nw_topic)t));
        FOR_EACH_OPTION(o, NW_COMMAND_ALL) {
            if ((int)o->topic != t) continue;
            fputs("| ", out);
            if (o->letter) fprintf(out, "`-%c` ", o->letter);
            fprintf(out, "`--%s", o->name);
            char words[NW_WORDS_MOST];
            nw_option_words(o, '|', words);
            if (*words) fputc(' ', out);
            print_cell(words, out);
            fprintf(out, "` | %s%s%s | ", *o->fallback ? "`" : "", o->fallback, *o->fallback ? "`" : "");
            print_cell(o->help, out);
            fputs(" | ", out);
            for (const char *a = o->aliases ? o->aliases : ""; *a;) {
                fprintf(out, "`--%.*s`", (int)strcspn(a, " "), a);
                a += strcspn(a, " ");
                if (*a) fputc(*a++, out);
            }
            fputs(" |\n", out);
        }
    }
    fputs("\n## Flags that stand for a value\n\n| flag | means |\n|---|---|\n", out);
    for (int i = 0; i < nw_translation_count(); i++) {
        const nw_translation *x = nw_translation_at(i);
        fprintf(out, "| `--%s` | `--%s %s`: %s |\n", x->flag, x->option, x->when_true, x->help);
    }
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

static nw_status show_recipes(void)
{
    NW_CLEANUP(nw_bump_free) nw_bump region = {0};
    nw_text_list names = {0};
    NW_TRY(nw_installed_names("recipes", &region, &names));
    for (int i = 0; i < names.count; i++) printf("%s\n", names.at[i]);
    return NW_OK;
}

static nw_status show_config(int argc, char **argv)
{
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_session_parse(NW_COMMAND_TRAIN, argc, argv, &settings, &positional));
    return nw_train_show(nw_train_options_of(settings));
}

static nw_status show_completion(int argc, char **argv)
{
    NW_FAIL_IF(argc < 1 || (strcmp(argv[0], "bash") != 0 && strcmp(argv[0], "zsh") != 0), NW_E_ARGUMENT,
               "say for which shell: 'nowait help completion bash' or 'nowait help completion zsh'");
    if (strcmp(argv[0], "bash") == 0)
        print_bash(stdout);
    else
        print_zsh(stdout);
    return NW_OK;
}

static nw_status show_uses(void)
{
    fputs("\n"
          "  help COMMAND [TOPIC]       options, a topic at a time\n"
          "  help config [options]      what 'nowait train' with these options would run, and what is wrong with it\n"
          "  help options               all options as Markdown (docs/options.md)\n"
          "  help recipes               the names of all recipes\n"
          "  help completion bash|zsh   a completion script for the shell\n"
          "  help man                   a manual page\n",
          stdout);
    return NW_OK;
}

nw_status nw_command_help(int argc, char **argv)
{
    const char *names[COMMANDS + 5] = {"completion", "man", "options", "recipes", "config"};
    const char *what = argc > 0 ? argv[0] : "";
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) what = "help";
    if (strcmp(what, "completion") == 0) return show_completion(argc - 1, argv + 1);
    if (strcmp(what, "recipes") == 0) return show_recipes();
    if (strcmp(what, "config") == 0) return show_config(argc - 1, argv + 1);
    if (strcmp(what, "man") == 0) {
        print_man(stdout);
        return NW_OK;
    }
    if (strcmp(what, "options") == 0) {
        print_markdown(stdout);
        return NW_OK;
    }
    for (int i = 0; i < COMMANDS; i++) {
        names[i + 5] = commands[i].name;
        if (strcmp(what, commands[i].name) != 0) continue;
        if (argc < 2) printf("usage: nowait %s %s [options]   %s\n", what, commands[i].argument, commands[i].summary);
        if (!commands[i].bits) return show_uses(); /* help itself has no options */
        return nw_options_help_topic(commands[i].bits, argc > 1 ? argv[1] : NULL, stdout);
    }
    return NW_FAIL(NW_E_ARGUMENT, "there is no help on '%s'%s", what,
                   nw_suggest(what, names, COMMANDS + 5, "'nowait --help' lists the commands").text);
}
