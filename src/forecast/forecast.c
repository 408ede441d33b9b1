/* forecast.c - what a plan answers; see forecast.h. */
#include "forecast/forecast.h"

#include <stdlib.h>

static int by_step(const void *a, const void *b)
{
    const nw_forecast_row *p = a, *q = b;
    return (p->time.step > q->time.step) - (p->time.step < q->time.step);
}

/* Codecs that add floats, and dense ones, have one way only. */
static bool has_choice(const nw_forecast_profile *p, int codec)
{
    const nw_codec_ops *ops = p->codecs[codec]->ops;
    return ops->family > NW_FAMILY_BF16 && ops->family != NW_FAMILY_CHOSEN && !ops->rounds;
}

nw_status nw_forecast_rows(const nw_forecast_profile *p, const nw_forecast_options *o, nw_forecast_row **rows,
                           int *count)
{
    nw_forecast_row *list = calloc((size_t)nw_forecast_codec_count() * 4, sizeof *list);
    NW_FAIL_IF(!list, NW_E_MEMORY, "no memory for a plan");
    *count = 0;
    for (int c = 0; c < nw_forecast_codec_count(); c++)
        for (int delay = 0; delay <= 1; delay++)
            for (int way = 0; way < (has_choice(p, c) ? 2 : 1); way++) {
                nw_collective collective = !has_choice(p, c) ? NW_COLLECTIVE_AUTO
                                           : way == 0        ? NW_COLLECTIVE_GATHER
                                                             : NW_COLLECTIVE_OWNERS;
                nw_forecast_row *row = &list[(*count)++];
                *row = (nw_forecast_row){.codec = c, .delay = delay, .collective = collective};
                NW_TRY_OR(nw_forecast_step_time(p, c, collective, delay, o->link, o->bucket_bytes, &row->time),
                          free(list));
            }
    qsort(list, (size_t)*count, sizeof *list, by_step);
    *rows = list;
    return NW_OK;
}

/* What a tensor alone costs a member: its work, and its time on the wire, which nothing hides. */
static double cost_of(const nw_forecast_tensor *t, const nw_codec *codec, size_t floats, nw_forecast_link link)
{
    double n = link.members, sent = 2 * (n - 1) / n * t->bytes, work = t->encode * (1 + 1 / n) + t->decode + t->fill;
    uint64_t k = nw_mode_entries(codec, floats);
    if (!t->dense && nw_mode_of(codec, floats, k, (uint64_t)link.members) == NW_MODE_GATHER) {
        sent = (n - 1) * t->bytes;
        work = t->encode + t->fill + (n - 1) * t->decode + t->mean;
    }
    return work + (link.bytes_per_second > 0 ? sent / link.bytes_per_second : 0);
}

int nw_forecast_best_for(const nw_forecast_profile *p, const nw_forecast_options *o, int tensor, double *saved)
{
    size_t floats = p->segments->at[tensor].count;
    double dense = cost_of(&p->tensors[0][tensor], p->codecs[0], floats, o->link), least = dense;
    int best = 0;
    bool vector = p->segments->at[tensor].dims < 2; /* few floats, whose loss costs much: batch norm, biases */
    for (int c = 1; c < nw_forecast_codec_count() && !vector; c++) {
        double cost = cost_of(&p->tensors[c][tensor], p->codecs[c], floats, o->link);
        if (p->tensors[c][tensor].dense || cost >= least) continue;
        least = cost;
        best = c;
    }
    *saved = dense - least;
    return best;
}

nw_status nw_forecast_make_map(const nw_forecast_profile *p, const nw_forecast_options *o, nw_forecast_map *map)
{
    static const int ranks[NW_FORECAST_RANKS] = {2, 4, 8, 16, 32, 64, 128, 256};
    static const double megabits[NW_FORECAST_BANDWIDTHS] = {10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000};
    for (int r = 0; r < NW_FORECAST_RANKS; r++) {
        map->ranks[r] = ranks[r];
        for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) {
            map->bits_per_second[b] = megabits[b] * 1e6;
            nw_forecast_link link = o->link;
            link.members = ranks[r];
            link.bytes_per_second = map->bits_per_second[b] / 8;
            nw_forecast_time dense, best, t;
            NW_TRY(nw_forecast_step_time(p, 0, NW_COLLECTIVE_AUTO, 0, link, o->bucket_bytes, &dense));
            best = dense;
            map->winner[r][b] = 0;
            for (int c = 1; c < nw_forecast_codec_count(); c++) {
                NW_TRY(nw_forecast_step_time(p, c, NW_COLLECTIVE_AUTO, 0, link, o->bucket_bytes, &t));
                if (t.step >= best.step || t.step * NW_FORECAST_PAYS > dense.step) continue;
                best = t;
                map->winner[r][b] = c;
            }
            map->gain[r][b] = dense.step / best.step;
        }
    }
    return NW_OK;
}
