/*
 * checkpoint_steps.c - the directory `checkpoints` of a run: its entries, and what killed writers left between them.
 *
 * Only names that are step numbers, or begin with a dot and one, are ours; nothing else there is read or touched.
 */
#include "train/checkpoint_steps.h"

#include <stdlib.h>
#include <string.h>

bool nw_step_of_name(const char *name, int64_t *step)
{
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 18 || name[digits] != '\0' || (name[0] == '0' && digits > 1)) return false;
    *step = strtoll(name, NULL, 10);
    return true;
}

static int highest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Whether `name` names a step and is a directory. */
static nw_status is_step(const char *directory, const char *name, int64_t *step, bool *yes)
{
    char *path;
    *yes = false;
    if (!nw_step_of_name(name, step)) return NW_OK;
    NW_TRY(nw_path_join(&path, directory, name));
    *yes = nw_file_is_directory(path);
    free(path);
    return NW_OK;
}

nw_status nw_steps_list(nw_steps *steps, const char *directory)
{
    nw_names names;
    *steps = (nw_steps){0};
    NW_TRY(nw_directory_list(&names, directory));
    nw_status status = NW_OK;
    steps->at = malloc((size_t)(names.count + 1) * sizeof *steps->at);
    if (!steps->at) status = NW_FAIL(NW_E_MEMORY, "no memory for the list of checkpoints in '%s'", directory);
    for (int i = 0; i < names.count && status == NW_OK; i++) {
        bool yes;
        status = is_step(directory, names.at[i], &steps->at[steps->count], &yes);
        if (status == NW_OK && yes) steps->count++;
    }
    nw_names_free(&names);
    if (status != NW_OK) nw_steps_free(steps);
    if (steps->count > 1) qsort(steps->at, (size_t)steps->count, sizeof *steps->at, highest_first);
    return status;
}

void nw_steps_free(nw_steps *steps)
{
    free(steps->at);
    *steps = (nw_steps){0};
}

static nw_status clean_for(const char *directory, const char *name)
{
    int64_t step;
    char digits[32], *target;
    size_t length = name[0] == '.' ? strspn(name + 1, "0123456789") : 0;
    if (length == 0 || length >= sizeof digits || name[1 + length] != '.') return NW_OK;
    memcpy(digits, name + 1, length);
    digits[length] = '\0';
    if (!nw_step_of_name(digits, &step)) return NW_OK;
    NW_TRY(nw_path_join(&target, directory, digits));
    nw_status status = nw_directory_clean(target);
    free(target);
    return status;
}

nw_status nw_steps_clean(const char *directory)
{
    nw_names names;
    NW_TRY(nw_directory_list(&names, directory));
    nw_status status = NW_OK;
    for (int i = 0; i < names.count && status == NW_OK; i++) status = clean_for(directory, names.at[i]);
    nw_names_free(&names);
    return status;
}

nw_status nw_checkpoint_read_manifest(nw_manifest *manifest, const char *directory)
{
    char *path, *text = NULL;
    size_t size = 0;
    *manifest = (nw_manifest){0};
    NW_TRY(nw_path_join(&path, directory, NW_CHECKPOINT_MANIFEST));
    nw_status status = nw_file_read(path, NW_MANIFEST_BYTES, &text, &size);
    if (status == NW_OK) status = nw_manifest_parse(manifest, text, size, path);
    free(text);
    free(path);
    return status;
}
