/* peer.c - a program that computes gradients itself, on several ranks: mpirun -np 4 build/example_peer --exchange allreduce */
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000, STEPS = 200, SAMPLES = 8 };
static float w[N], g[N];

/* The gradient of a fit of w to w*[i] = sin-like numbers, seen through samples that only this rank has. */
static void compute_gradient(int rank, int step)
{
    for (int i = 0; i < N; i++) g[i] = 0;
    for (int s = 0; s < SAMPLES; s++)
        for (int i = (step * SAMPLES + s + rank) % 3; i < N; i += 3)
            g[i] += (w[i] - (float)(i % 17) / 17 - 0.1f * (float)(rank % 2 ? 1 : -1)) / SAMPLES;
}

static int check(nw_status status)
{
    if (status != NW_OK) fprintf(stderr, "peer: %s\n", nw_error_message());
    return status != NW_OK;
}

int main(int argc, char **argv)
{
    char options[1000] = "";
    nw_peer *peer;
    const nw_parameter_info tensor = {.name = "w", .dims = 1, .shape = {N}};
    for (int i = 1; i < argc; i++) strcat(strcat(options, argv[i]), " ");
    if (check(nw_peer_create(&peer, &tensor, 1, options, true))) return 1;
    int failed = check(nw_peer_begin(peer, w));
    for (int step = 0; step < STEPS && !failed && !nw_peer_is_over(peer); step++) {
        compute_gradient(nw_peer_rank(peer), step);
        failed = check(nw_peer_update(peer, g, w));
    }
    if (!failed) failed = check(nw_peer_finish(peer, w, NULL));
    if (!failed && nw_peer_rank(peer) == 0) printf("w[0] %.3f w[16] %.3f\n", (double)w[0], (double)w[16]);
    nw_peer_free(peer);
    return failed;
}
