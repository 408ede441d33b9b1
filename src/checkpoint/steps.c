/*
 * steps.c - the directory `checkpoints` of a run: its entries, and incomplete directories that killed writers left.
 *
 * Only names that are a step number, or a dot and a step number, were written by nowait; nothing else is read or
 * changed.
 */
#include "checkpoint/steps.h"

#include "base/number.h"

#include <stdlib.h>
#include <string.h>

static int highest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Whether `name` names a step and is a directory. */
static nw_status is_step(const char *directory, const char *name, int64_t *step, bool *yes)
{
    NW_AUTOFREE char *path = NULL;
    *yes = false;
    if (!nw_number_of_name(name, step)) return NW_OK;
    NW_TRY(nw_path_join(&path, directory, name));
    *yes = nw_file_is_directory(path);
    return NW_OK;
}

nw_status nw_steps_list(nw_steps *steps, const char *directory)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    *steps = (nw_steps){0};
    NW_TRY(nw_directory_list(&names, directory));
    steps->at = malloc((size_t)(names.count + 1) * sizeof *steps->at);
    NW_FAIL_IF(!steps->at, NW_E_MEMORY, "no memory for the list of checkpoints in '%s'", directory);
    for (int i = 0; i < names.count; i++) {
        bool yes;
        NW_TRY(is_step(directory, names.at[i], &steps->at[steps->count], &yes));
        steps->count += yes;
    }
    qsort(steps->at, (size_t)steps->count, sizeof *steps->at, highest_first);
    return NW_OK;
}

void nw_steps_free(nw_steps *steps)
{
    free(steps->at);
    *steps = (nw_steps){0};
}

static nw_status clean_for(const char *directory, const char *name)
{
    int64_t step;
    NW_AUTOFREE char *target = NULL;
    char digits[32];
    size_t length = name[0] == '.' ? strspn(name + 1, "0123456789") : 0;
    if (length == 0 || length >= sizeof digits || name[1 + length] != '.') return NW_OK;
    memcpy(digits, name + 1, length);
    digits[length] = '\0';
    if (!nw_number_of_name(digits, &step)) return NW_OK;
    NW_TRY(nw_path_join(&target, directory, digits));
    return nw_directory_clean(target);
}

nw_status nw_steps_clean(const char *directory)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_TRY(nw_directory_list(&names, directory));
    for (int i = 0; i < names.count; i++) NW_TRY(clean_for(directory, names.at[i]));
    return NW_OK;
}

nw_status nw_checkpoint_read_manifest(nw_manifest *manifest, const char *directory)
{
    NW_AUTOFREE char *path = NULL, *text = NULL;
    size_t size = 0;
    *manifest = (nw_manifest){0};
    NW_TRY(nw_path_join(&path, directory, NW_CHECKPOINT_MANIFEST));
    NW_TRY(nw_file_read(path, NW_MANIFEST_BYTES, &text, &size));
    return nw_manifest_parse(manifest, text, size, path);
}
