/* consensus_twin.c - see consensus_twin.h. */
#include "support/consensus_twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void consensus_mix(double *x, double *other, int floats, double eta, double dt)
{
    double e = exp(-2 * eta * dt);
    for (int k = 0; k < floats; k++) {
        double a = x[k], b = other[k];
        x[k] = ((1 + e) * a + (1 - e) * b) / 2;
        other[k] = ((1 - e) * a + (1 + e) * b) / 2;
    }
}

void consensus_meet(double *xi, double *other_i, double *xj, double *other_j, int floats, double alpha)
{
    for (int k = 0; k < floats; k++) {
        double m = xi[k] - xj[k];
        xi[k] -= m / 2;
        xj[k] += m / 2;
        other_i[k] -= alpha * m;
        other_j[k] += alpha * m;
    }
}

static double *row(const consensus_twin *twin, double *of, int member)
{
    return of + (size_t)member * (size_t)twin->options.floats;
}

static double wait_for(consensus_twin *twin)
{
    double uniform = (nw_rng_u32(&twin->rng) + 0.5) / 4294967296.0;
    return -log(uniform) * 2 / (twin->options.rate * twin->options.n);
}

void consensus_begin(consensus_twin *twin, const consensus_options *options)
{
    *twin = (consensus_twin){.options = *options, .alpha = 0.5};
    double chi1, chi2;
    if (nw_graph_make(&twin->graph, options->graph, options->n, options->seed) != NW_OK ||
        (options->momentum && nw_graph_constants(twin->graph, options->rate, &chi1, &chi2) != NW_OK)) {
        fprintf(stderr, "consensus twin: %s\n", nw_error_message());
        abort();
    }
    if (options->momentum) {
        twin->eta = options->eta > 0 ? options->eta : 1 / (2 * sqrt(chi1 * chi2));
        twin->alpha = options->alpha > 0 ? options->alpha : sqrt(chi1 / chi2) / 2;
    }
    size_t count = (size_t)options->n * (size_t)options->floats;
    twin->x = calloc(count, sizeof *twin->x);
    twin->other = calloc(count, sizeof *twin->other);
    twin->mixed = calloc((size_t)options->n, sizeof *twin->mixed);
    if (!twin->x || !twin->other || !twin->mixed) abort();
    twin->rng = nw_rng_make(options->seed, NW_PURPOSE_TEST, (uint64_t)options->n, 1);
    for (size_t k = 0; k < count; k++) {
        twin->x[k] = (double)nw_rng_normal(&twin->rng);
        twin->other[k] = twin->x[k] + options->initial_apart * (double)nw_rng_normal(&twin->rng);
    }
    twin->next = wait_for(twin);
}

void consensus_end(consensus_twin *twin)
{
    nw_graph_free(twin->graph);
    free(twin->x);
    free(twin->other);
    free(twin->mixed);
}

static void mix_until(consensus_twin *twin, int member, double time)
{
    consensus_mix(row(twin, twin->x, member), row(twin, twin->other, member), twin->options.floats, twin->eta,
                  time - twin->mixed[member]);
    twin->mixed[member] = time;
}

void consensus_run(consensus_twin *twin, double until)
{
    for (; twin->next < until; twin->next += wait_for(twin)) {
        int i = (int)nw_rng_below(&twin->rng, (uint32_t)twin->options.n);
        int j = nw_graph_draw(twin->graph, i, nw_rng_uniform(&twin->rng));
        mix_until(twin, i, twin->next);
        mix_until(twin, j, twin->next);
        consensus_meet(row(twin, twin->x, i), row(twin, twin->other, i), row(twin, twin->x, j),
                       row(twin, twin->other, j), twin->options.floats, twin->alpha);
        twin->meetings++;
    }
    for (int i = 0; i < twin->options.n; i++) mix_until(twin, i, until);
    twin->now = until;
}

double consensus_distance(const consensus_twin *twin)
{
    int n = twin->options.n, floats = twin->options.floats;
    double sum = 0;
    for (int k = 0; k < floats; k++) {
        double mean = 0;
        for (int i = 0; i < n; i++) mean += row(twin, twin->x, i)[k] / n;
        for (int i = 0; i < n; i++) sum += pow(row(twin, twin->x, i)[k] - mean, 2);
    }
    return sum;
}

double consensus_measure(const consensus_options *options, double time, int seeds)
{
    double logs = 0;
    for (int s = 0; s < seeds; s++) {
        consensus_options o = *options;
        o.seed += (uint64_t)s;
        consensus_twin twin;
        consensus_begin(&twin, &o);
        double before = consensus_distance(&twin);
        consensus_run(&twin, time);
        logs += log(consensus_distance(&twin) / before) / seeds;
        consensus_end(&twin);
    }
    return exp(logs);
}
