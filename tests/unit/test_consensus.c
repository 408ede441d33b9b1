/*
 * test_consensus.c - how fast averaging in pairs agrees, with continuous momentum and without, and what it keeps: the
 * doubles of support/consensus_twin.c against the formulas and the published speeds.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/consensus_twin.h"

#include <math.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static void near(double is, double wanted, double by)
{
    if (!(fabs(is - wanted) <= by)) fail_msg("%.17g, not %.17g", is, wanted);
}

/* exp(dt [-eta eta; eta -eta]) by its series. */
static void series(double x[2], double eta, double dt)
{
    double term[2] = {x[0], x[1]};
    for (int k = 1; k < 60; k++) {
        double down = eta * dt / k * (term[1] - term[0]);
        term[0] = down;
        term[1] = -down;
        x[0] += term[0];
        x[1] += term[1];
    }
}

TEST(test_mixing)
{
    static const double times[] = {0, 1e-9, 0.01, 0.5, 1, 3, 7};
    for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
        double x = 1.25, other = -0.5, wanted[2] = {x, other};
        series(wanted, 0.35, times[k]);
        consensus_mix(&x, &other, 1, 0.35, times[k]);
        near(x, wanted[0], 1e-14);
        near(other, wanted[1], 1e-14);
        near(x + other, 0.75, 1e-15);
        if (times[k] == 0) assert_true(x == 1.25 && other == -0.5);
    }
    double x = 1.25, other = -0.5, y = 1.25, other_y = -0.5;
    consensus_mix(&x, &other, 1, 0.35, 1000); /* both the mean */
    near(x, 0.375, 1e-15);
    near(other, 0.375, 1e-15);
    x = 1.25, other = -0.5;
    consensus_mix(&x, &other, 1, 0.35, 0.75); /* in two parts */
    consensus_mix(&y, &other_y, 1, 0.35, 0.5);
    consensus_mix(&y, &other_y, 1, 0.35, 0.25);
    near(x, y, 1e-15);
    near(other, other_y, 1e-15);
}

static double sum_of(const double *of, int n, int floats, int k)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += of[i * floats + k];
    return sum;
}

TEST(test_what_is_kept)
{
    static const char *const graphs[] = {"cycle", "complete", "exponential", "torus", "star"};
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        enum { N = 12, FLOATS = 3 };
        consensus_options o = {
            .graph = graphs[g], .n = N, .floats = FLOATS, .rate = 1.5, .momentum = true, .initial_apart = 1, .seed = 3};
        consensus_twin twin;
        consensus_begin(&twin, &o);
        double both[FLOATS];
        for (int k = 0; k < FLOATS; k++) both[k] = sum_of(twin.x, N, FLOATS, k) + sum_of(twin.other, N, FLOATS, k);
        consensus_run(&twin, 20);
        for (int k = 0; k < FLOATS; k++)
            near(sum_of(twin.x, N, FLOATS, k) + sum_of(twin.other, N, FLOATS, k), both[k], 1e-12);
        /* An exchange keeps both sums, wherever the members are. */
        double x = sum_of(twin.x, N, FLOATS, 1), other = sum_of(twin.other, N, FLOATS, 1);
        consensus_meet(twin.x, twin.other, twin.x + 5 * FLOATS, twin.other + 5 * FLOATS, FLOATS, twin.alpha);
        near(sum_of(twin.x, N, FLOATS, 1), x, 1e-13);
        near(sum_of(twin.other, N, FLOATS, 1), other, 1e-13);
        /* Meetings: (n / 2) * rate a unit of time. */
        near((double)twin.meetings, 20 * 1.5 * N / 2, 5 * sqrt(20 * 1.5 * N / 2));
        consensus_end(&twin);
    }
}

static void reaches(const char *graph, int n, double time, bool momentum, double least, double most)
{
    consensus_options o = {.graph = graph, .n = n, .floats = 32, .rate = 1, .momentum = momentum, .seed = 1};
    double distance = consensus_measure(&o, time, 10);
    print_message("%s of %d, t = %g, momentum %d: %.2e\n", graph, n, time, momentum, distance);
    if (!(distance >= least && distance <= most))
        fail_msg("%s of %d: %.2e is not between %g and %g", graph, n, distance, least, most);
}

TEST(test_published_speeds)
{
    reaches("cycle", 8, 40, false, 1e-6, 2e-5);
    reaches("cycle", 8, 40, true, 1e-10, 2e-7);
    reaches("cycle", 16, 80, false, 2e-4, 8e-4);
    reaches("cycle", 16, 80, true, 1e-9, 1e-7);
    reaches("cycle", 32, 240, false, 3.5e-4, 1.4e-3);
    reaches("cycle", 32, 240, true, 1e-13, 2e-11);
}

/* Twice the rate is twice the time; a better connected graph agrees sooner. */
TEST(test_rates_and_graphs)
{
    consensus_options slow = {.graph = "cycle", .n = 16, .floats = 16, .rate = 1, .momentum = true, .seed = 5},
                      fast = slow;
    fast.rate = 2;
    double a = consensus_measure(&slow, 40, 10), b = consensus_measure(&fast, 20, 10);
    near(log(a) / log(b), 1, 1e-9); /* the same meetings, at half the times */
    consensus_options cycle = slow, dense = slow;
    dense.graph = "exponential";
    assert_true(consensus_measure(&dense, 20, 10) < consensus_measure(&cycle, 20, 10) / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixing),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_published_speeds),
        cmocka_unit_test(test_rates_and_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
