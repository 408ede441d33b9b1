/* option_help.c - help made from the table: one screen per topic. */
#include "config/option_table.h"

#include "base/suggest.h"

#include <string.h>

enum { LEFT = 34 }; /* columns of names and values */

/* Help shows what works. */
static bool is_shown(const nw_option *o, unsigned command)
{
    return (o->commands & command) && o->status != NW_OPTION_LATER;
}

static void print_option(const nw_option *o, FILE *out)
{
    char left[NW_WORDS_MOST + 64], values[NW_WORDS_MOST], letter[5] = "";
    nw_option_words(o, '|', values);
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, *values ? " " : "", values);
    /* Choices too long for the left column get a line of their own. */
    bool moved = strlen(left) > LEFT;
    if (moved) snprintf(left, sizeof left, "%s--%s %s", letter, o->name, o->kind == NW_OPTION_CHOICE ? "WORD" : "");
    fprintf(out, "  %-*s %s", LEFT, left, o->help);
    if (o->kind != NW_OPTION_FLAG && *o->fallback) fprintf(out, " [%s]", o->fallback);
    if (o->kind == NW_OPTION_FLAG && strcmp(o->fallback, "true") == 0) fprintf(out, " [on]");
    fputc('\n', out);
    if (moved && o->kind == NW_OPTION_CHOICE) fprintf(out, "      %s\n", values);
}

static bool has_topic(unsigned command, nw_topic topic)
{
    for (int i = 0; i < nw_option_count(); i++)
        if (is_shown(nw_option_at(i), command) && nw_option_at(i)->topic == topic) return true;
    return false;
}

static void print_overview(unsigned command, FILE *out)
{
    fputs("Main options (--help TOPIC shows the others):\n", out);
    for (int i = 0; i < nw_option_count(); i++)
        if ((nw_option_at(i)->commands & command) && nw_option_at(i)->status == NW_OPTION_MAIN)
            print_option(nw_option_at(i), out);
    fputs("Topics:", out);
    for (int t = 0; t < NW_TOPICS; t++)
        if (has_topic(command, (nw_topic)t)) fprintf(out, " %s", nw_topic_name((nw_topic)t));
    fputc('\n', out);
}

static void print_topic(unsigned command, nw_topic topic, FILE *out)
{
    fprintf(out, "%s: %s\n", nw_topic_name(topic), nw_topic_summary(topic));
    for (int i = 0; i < nw_option_count(); i++)
        if (is_shown(nw_option_at(i), command) && nw_option_at(i)->topic == topic) print_option(nw_option_at(i), out);
    for (int i = 0; i < nw_translation_count(); i++) {
        const nw_translation *t = nw_translation_at(i);
        int index = nw_option_find(t->option, command).index;
        if (index < 0 || nw_option_at(index)->topic != topic) continue;
        char left[64];
        snprintf(left, sizeof left, "--%s", t->flag);
        fprintf(out, "  %-*s %s: --%s %s\n", LEFT, left, t->help, t->option, t->when_true);
    }
}

nw_status nw_options_help_topic(unsigned command, const char *topic, FILE *out)
{
    const char *names[NW_TOPICS];
    int count = 0;
    if (!topic || !*topic) {
        print_overview(command, out);
        return NW_OK;
    }
    if (strcmp(topic, "compression") == 0) topic = nw_topic_name(NW_TOPIC_CODEC); /* as the documentation calls it */
    for (int t = 0; t < NW_TOPICS; t++) {
        if (!has_topic(command, (nw_topic)t)) continue;
        if (strcmp(topic, nw_topic_name((nw_topic)t)) == 0) {
            print_topic(command, (nw_topic)t, out);
            return NW_OK;
        }
        names[count++] = nw_topic_name((nw_topic)t);
    }
    return NW_FAIL(NW_E_ARGUMENT, "there is no topic '%s'%s", topic,
                   nw_suggest(topic, names, count, "--help lists all").text);
}

void nw_options_help(unsigned command, FILE *out)
{
    for (int i = 0; i < nw_option_count(); i++)
        if (is_shown(nw_option_at(i), command) && nw_option_at(i)->commands != NW_COMMAND_ALL)
            print_option(nw_option_at(i), out);
    fputs("  of every command:", out);
    for (int i = 0; i < nw_option_count(); i++)
        if (nw_option_at(i)->commands == NW_COMMAND_ALL) fprintf(out, " --%s", nw_option_at(i)->name);
    fputc('\n', out);
}
