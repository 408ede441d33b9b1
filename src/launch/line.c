/*
 * line.c - the command line that starts the ranks.
 *
 * Open MPI ties ranks to cores by itself, one core or socket each, which leaves their threads no room: --bind-to none,
 * unless the user's own arguments say how to bind or map. It counts cores as slots, not hardware threads, and refuses
 * more ranks: on a machine of our own, outside allocations and host files, --oversubscribe lets the user decide.
 * Hydra, MPICH's mpirun, does neither.
 */
#define _GNU_SOURCE 1
#include "launch/launch.h"

#include "base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Takes over `text`; NULL is no memory. */
static nw_status take_word(nw_words *words, char *text)
{
    bool room = text && nw_grow(&words->at, (size_t)words->count + 1, sizeof *words->at);
    if (!room) free(text);
    NW_FAIL_IF(!room, NW_E_MEMORY, "no memory for the command line");
    words->at[words->count++] = text;
    words->at[words->count] = NULL;
    return NW_OK;
}

nw_status nw_words_add(nw_words *words, const char *text) { return take_word(words, strdup(text)); }

nw_status nw_words_add_format(nw_words *words, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    return take_word(words, text);
}

nw_status nw_words_add_cut(nw_words *words, const char *text)
{
    const char *at = text;
    while (*(at += strspn(at, " \t\n"))) {
        char *word = malloc(strlen(at) + 1);
        NW_FAIL_IF(!word, NW_E_MEMORY, "no memory for the command line");
        size_t length = 0;
        char quote = 0;
        for (; *at && (quote || !isspace((unsigned char)*at)); at++) {
            if (quote ? *at == quote : *at == '\'' || *at == '"')
                quote = quote ? 0 : *at;
            else
                word[length++] = *at;
        }
        word[length] = 0;
        if (quote) {
            free(word);
            return NW_FAIL(NW_E_ARGUMENT, "--launcher-args %s: a %c is opened but not closed", text, quote);
        }
        NW_TRY(take_word(words, word));
    }
    return NW_OK;
}

void nw_words_free(nw_words *words)
{
    for (int i = 0; i < words->count; i++) free(words->at[i]);
    free(words->at);
    *words = (nw_words){0};
}

nw_status nw_words_quote(const nw_words *words, char **text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
    nw_text line;
    NW_TRY(nw_text_begin(&line));
    for (int i = 0; i < words->count; i++) {
        const char *word = words->at[i];
        if (i > 0) fputc(' ', line.out);
        if (*word && word[strspn(word, plain)] == 0) {
            fputs(word, line.out);
            continue;
        }
        fputc('\'', line.out);
        for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, line.out);
        fputc('\'', line.out);
    }
    nw_status status = nw_text_end(&line);
    *text = line.text;
    return status;
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

nw_launcher nw_launch_family(const char *version)
{
    bool hydra = strcasestr(version, "hydra") || strstr(version, "MPICH") || strstr(version, "Intel(R) MPI");
    return hydra && !strstr(version, "Open MPI") ? NW_LAUNCHER_MPICH : NW_LAUNCHER_OPEN_MPI;
}

static bool says(const nw_words *words, const char *part)
{
    for (int i = 0; i < words->count; i++)
        if (strstr(words->at[i], part)) return true;
    return false;
}

static nw_status add_open_mpi(const nw_launch_spec *plan, const nw_words *own, nw_words *line)
{
    NW_TRY(nw_words_add(line, "-np"));
    NW_TRY(nw_words_add_format(line, "%d", plan->ranks));
    if (plan->hosts[0]) {
        NW_TRY(nw_words_add(line, "--hostfile"));
        NW_TRY(nw_words_add(line, plan->hosts));
    } else if (!plan->allocation && !says(own, "host") && !says(own, "oversubscribe")) {
        NW_TRY(nw_words_add(line, "--oversubscribe"));
    }
    if (!says(own, "bind-to") && !says(own, "map-by") && !says(own, "rankfile")) {
        NW_TRY(nw_words_add(line, "--bind-to"));
        NW_TRY(nw_words_add(line, "none"));
    }
    return NW_OK;
}

static nw_status add_mpich(const nw_launch_spec *plan, nw_words *line)
{
    NW_TRY(nw_words_add(line, "-n"));
    NW_TRY(nw_words_add_format(line, "%d", plan->ranks));
    if (!plan->hosts[0]) return NW_OK;
    NW_TRY(nw_words_add(line, "-f"));
    return nw_words_add(line, plan->hosts);
}

static nw_status add_starter(const nw_launch_spec *plan, const nw_words *own, nw_words *line)
{
    NW_TRY(nw_words_add(line, plan->starter));
    if (plan->launcher == NW_LAUNCHER_OPEN_MPI) NW_TRY(add_open_mpi(plan, own, line));
    if (plan->launcher == NW_LAUNCHER_MPICH) NW_TRY(add_mpich(plan, line));
    if (plan->launcher == NW_LAUNCHER_SRUN) {
        NW_FAIL_IF(plan->hosts[0], NW_E_ARGUMENT,
                   "--hosts %s is for mpirun; SLURM knows its hosts: --launcher-args \"--nodelist=...\" chooses among "
                   "them",
                   plan->hosts);
        NW_TRY(nw_words_add_format(line, "--ntasks=%d", plan->ranks));
        NW_TRY(nw_words_add(line, "--kill-on-bad-exit=1"));
    }
    for (int i = 0; i < own->count; i++) NW_TRY(nw_words_add(line, own->at[i]));
    return NW_OK;
}

nw_status nw_launch_line(const nw_launch_spec *plan, const nw_words *train, nw_words *line)
{
    if (plan->launcher != NW_LAUNCHER_DIRECT) {
        NW_CLEANUP(nw_words_free) nw_words own = {0};
        NW_TRY(nw_words_add_cut(&own, plan->launcher_args));
        NW_TRY(add_starter(plan, &own, line));
    }
    NW_TRY(nw_words_add(line, plan->program));
    NW_TRY(nw_words_add(line, "train"));
    for (int i = 0; i < train->count; i++) NW_TRY(nw_words_add(line, train->at[i]));
    return NW_OK;
}
