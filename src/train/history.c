/*
 * history.c - see history.h.
 *
 * A table of 2 D places says, for version v at place v mod 2 D, which update reads it last and where it is held. Before
 * update t all updates up to t + D - 1 have been foreseen. No later one can read version t or an older one, so it is
 * known at this moment whether they are needed. Foreseen readers belong to versions t - D + 1 to t + D - 2: that is why
 * the table has 2 D places. A place is never cleared: a last reader below v was an earlier version's.
 *
 * In a checkpoint each version held is a vector "version.<v>", and "delays" is the histogram of delays so far. Which
 * versions are needed follows from the options and the number of updates.
 */
#include "train/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

typedef struct place {
    int64_t last_reader; /* -1: none yet */
    float *data;         /* NULL: not held */
} place;

struct nw_history {
    nw_delay_options options;
    size_t floats;
    int64_t update; /* the next one */
    place *places;
    float **spare; /* vectors that hold nothing */
    int spare_count, vectors;
    nw_histogram delays;
};

static int64_t models_of(const nw_history *h) { return h->options.models > 1 ? h->options.models : 1; }
static place *place_of(const nw_history *h, int64_t version) { return &h->places[version % (2 * models_of(h))]; }
static bool is_needed(const nw_history *h, int64_t version)
{
    return place_of(h, version)->last_reader >= h->update && place_of(h, version)->last_reader > version;
}
/* The oldest version that any update from the next one on could read. */
static int64_t oldest(const nw_history *h) { return h->update >= models_of(h) ? h->update - models_of(h) + 1 : 0; }

/* Readers of the newest version need no copy of it. */
static void note_reader(nw_history *h, int64_t update)
{
    int64_t delay = nw_delay_at(&h->options, update);
    if (delay > 0) place_of(h, update - delay)->last_reader = update;
}

static void release(nw_history *h, place *p)
{
    if (!p->data) return;
    h->spare[h->spare_count++] = p->data;
    p->data = NULL;
}

static nw_status take_spare(nw_history *h, int64_t version)
{
    if (h->spare_count == 0) {
        size_t bytes = (h->floats * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        float *vector = aligned_alloc(ALIGNMENT, bytes);
        NW_FAIL_IF(!vector, NW_E_MEMORY,
                   "no memory for earlier parameters beside the %d vectors of %zu bytes that are held; a smaller "
                   "--max-delay needs fewer",
                   h->vectors, bytes);
        h->spare[h->spare_count++] = vector;
        h->vectors++;
    }
    place_of(h, version)->data = h->spare[--h->spare_count];
    return NW_OK;
}

/* Forgets all versions, and foresees what will be read from `update` on. */
static void begin_at(nw_history *h, int64_t update)
{
    for (int64_t i = 0; i < 2 * models_of(h); i++) {
        release(h, &h->places[i]);
        h->places[i].last_reader = -1;
    }
    h->update = update;
    h->delays = (nw_histogram){0};
    for (int64_t i = 0; i < models_of(h); i++) note_reader(h, update + i);
}

nw_status nw_history_create(nw_history **out, const nw_delay_options *options, size_t floats)
{
    *out = NULL;
    NW_TRY(nw_delay_check(options));
    nw_history *h = calloc(1, sizeof *h);
    NW_FAIL_IF(!h, NW_E_MEMORY, "no memory for a table of earlier parameters");
    h->options = *options;
    h->floats = floats;
    h->places = calloc(2 * (size_t)models_of(h), sizeof *h->places);
    h->spare = calloc((size_t)models_of(h), sizeof *h->spare);
    if (!h->places || !h->spare) {
        nw_history_free(h);
        return NW_FAIL(NW_E_MEMORY, "no memory for a table of %d earlier parameters", options->models);
    }
    begin_at(h, 0);
    *out = h;
    return NW_OK;
}

void nw_history_free(nw_history *h)
{
    if (!h) return;
    for (int64_t i = 0; h->places && h->spare && i < 2 * models_of(h); i++) release(h, &h->places[i]);
    for (int i = 0; i < h->spare_count; i++) free(h->spare[i]);
    free(h->places);
    free(h->spare);
    free(h);
}

int64_t nw_history_delay(const nw_history *h) { return nw_delay_at(&h->options, h->update); }

float *nw_history_read(const nw_history *h)
{
    int64_t delay = nw_history_delay(h);
    return delay > 0 ? place_of(h, h->update - delay)->data : NULL;
}

nw_status nw_history_keep(nw_history *h, const float *newest)
{
    int64_t delay = nw_history_delay(h), now = h->update;
    place *read = place_of(h, now - delay);
    if (delay > 0 && read->last_reader == now) release(h, read); /* first, so that its vector can be used again */
    if (place_of(h, now)->last_reader > now) {
        NW_TRY(take_spare(h, now));
        memcpy(place_of(h, now)->data, newest, h->floats * sizeof *newest);
    }
    nw_histogram_add(&h->delays, delay);
    h->update++;
    note_reader(h, now + models_of(h));
    return NW_OK;
}

const nw_histogram *nw_history_delays(const nw_history *h) { return &h->delays; }

/* ---- saving and loading ------------------------------------------------------------------------------------------ */

void nw_history_state(nw_history *h, nw_state *s, nw_state_rule rule)
{
    nw_state_add(s, (nw_state_entry){.name = "delays",
                                     .rule = rule,
                                     .type = NW_STATE_I64,
                                     .dims = 1,
                                     .shape = {NW_HISTOGRAM_INTEGERS},
                                     .data = &h->delays,
                                     .optional = true}); /* a run without delays has none */
    for (int64_t v = oldest(h); v < h->update; v++) {
        nw_state_entry e = {.rule = rule,
                            .type = NW_STATE_F32,
                            .dims = 1,
                            .shape = {(int64_t)h->floats},
                            .data = place_of(h, v)->data,
                            .along = NW_ALONG_PARAMETERS,
                            .remedy = "give --max-delay, --delay-law and --seed as in the run that wrote it, or start "
                                      "a new run from its weights with --init"};
        snprintf(e.name, sizeof e.name, "version.%lld", (long long)v);
        if (is_needed(h, v)) nw_state_add(s, e);
    }
}

nw_status nw_history_go_to(nw_history *h, int64_t update)
{
    NW_FAIL_IF(update < 0 || update > INT64_MAX / 4, NW_E_FILE,
               "the checkpoint claims %lld updates, which is impossible; use an earlier one", (long long)update);
    begin_at(h, update);
    for (int64_t v = oldest(h); v < update; v++)
        if (is_needed(h, v)) NW_TRY(take_spare(h, v));
    return NW_OK;
}
