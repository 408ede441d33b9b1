/*
 * peak.h - the peak that percentages refer to: the micro-kernel on random operands that stay in the first-level cache.
 *
 * All taps point at the same 32 images x PEAK_C channels and the same panel, so that a long reduction runs from L1 with
 * hardly any stores. Random, not zero: tiles full of zeros run faster.
 */

enum { PEAK_C = 64, PEAK_TAPS = 512 };

static void peak_task(void *context, int index, int worker)
{
    int iterations = *(const int *)context;
    _Alignas(64) mul_t a[32 * PEAK_C], b[PEAK_C * TILE];
    _Alignas(64) float tile[32 * TILE];
    tap_t taps[PEAK_TAPS];
    nw_rng rng = nw_rng_make(0, NW_PURPOSE_TEST, (uint64_t)index, 0);
    (void)worker;
    for (int i = 0; i < 32 * PEAK_C; i++) x_put(a, (size_t)i, nw_rng_normal(&rng), MUL_TYPE);
    for (int i = 0; i < PEAK_C * TILE; i++) x_put(b, (size_t)i, nw_rng_normal(&rng), MUL_TYPE);
    for (int t = 0; t < PEAK_TAPS; t++) taps[t] = (tap_t){a, 0};
    micro_begin(32);
    for (int i = 0; i < iterations; i++) {
        multiply(taps, PEAK_TAPS, PEAK_C, PEAK_C, b, 32, TILE, tile);
        __asm__ volatile("" ::"r"(tile) : "memory"); /* each result is wanted */
    }
    micro_end();
}

/* Runs the loop on every thread; returns the floating-point operations of all. */
static double peak(nw_exec *exec, int iterations)
{
    int threads = nw_pool_threads(exec->pool);
    nw_pool_run(exec->pool, threads, peak_task, &iterations);
    return 2.0 * threads * iterations * 32.0 * TILE * PEAK_C * PEAK_TAPS;
}
