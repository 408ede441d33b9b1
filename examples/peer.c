/* peer.c - a program that computes gradients itself, on several ranks: mpirun -np 4 example_peer --exchange allreduce */
#include <nowait.h>
#include <stdio.h>
#include <string.h>

enum { N = 6, STEPS = 1000 };
static float w[N], g[N];

/* Of a fit of w to 0, 1, 2, ..., by samples of which each rank has its own: products with w and with these agree. */
static void compute_gradient(int rank, int step)
{
    float error = 0, sample[N];
    for (int i = 0; i < N; i++) sample[i] = (float)((i + 1) * (step + 5 * rank + 2) * (step + i) % 7 - 3);
    for (int i = 0; i < N; i++) error += (w[i] - (float)i) * sample[i];
    for (int i = 0; i < N; i++) g[i] = error * sample[i];
}

static int fails(nw_status status)
{
    if (status != NW_OK) fprintf(stderr, "peer: %s\n", nw_error_message());
    return status != NW_OK;
}

int main(int argc, char **argv)
{
    char options[1000] = "--lr 0.02 --momentum 0 --weight-decay 0";
    nw_peer *peer;
    const nw_parameter_info tensor = {.name = "w", .dims = 1, .shape = {N}};
    for (int i = 1; i < argc; i++) strncat(strcat(options, " "), argv[i], 100);
    if (fails(nw_peer_create(&peer, &tensor, 1, options, true))) return 1;
    int failed = fails(nw_peer_begin(peer, w));
    for (int step = 0; step < STEPS && !failed && !nw_peer_is_over(peer); step++) {
        compute_gradient(nw_peer_rank(peer), step);
        failed = fails(nw_peer_update(peer, g, w));
    }
    failed = failed || fails(nw_peer_finish(peer, w, NULL));
    if (!failed && nw_peer_rank(peer) == 0) printf("w = ..., %.2f, %.2f, %.2f\n", w[3], w[4], w[5]);
    nw_peer_free(peer);
    return failed;
}
