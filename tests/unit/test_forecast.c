/*
 * test_forecast.c - predicted step times against sums that are made by hand, and against what must hold for any numbers:
 * no step is shorter than its work, or than its wire; faster networks and cheaper codecs never make a step longer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "forecast/predict.h"
#include "net/message.h"

#include <math.h>

#define NEAR(a, b) assert_true(fabs((double)(a) - (double)(b)) <= 1e-9 * (1 + fabs((double)(b))))

/* One bucket that is final at the end of the pass: nothing overlaps. */
static nw_forecast_step one_bucket(const nw_forecast_bucket *b, int members, double bytes_per_second)
{
    return (nw_forecast_step){.buckets = b,
                              .count = 1,
                              .pass = 10,
                              .update = 1,
                              .add = 1e-3,
                              .members = members,
                              .bytes_per_second = bytes_per_second,
                              .latency = 0.25,
                              .overhead = 0.125};
}

static void test_gather_of_one_bucket(void **state)
{
    nw_forecast_bucket b = {.final = 1,
                            .mode = NW_MODE_GATHER,
                            .floats = 1000,
                            .bytes = 936,
                            .encode = 2,
                            .decode = 0.5,
                            .fill = 0.25,
                            .mean = 0.125};
    (void)state;
    /* A message takes 1000 / 1000 + 0.125. Encoded at 12; the first comes at 12 + 1.125 + 0.25, when the own one
     * is written and it is added (0.75 s); the second 1.125 later, the third again; each is added in 0.5, and the sum divided
     * in 0.125; the update takes 1. */
    nw_forecast_step s = one_bucket(&b, 4, 1000);
    nw_forecast_time t = nw_forecast_predict(&s);
    NEAR(t.step, 12 + 3 * 1.125 + 0.25 + 0.5 + 0.125 + 1);
    NEAR(t.sent, 3000);
    NEAR(t.wire, 3 * 1.125);
    NEAR(t.encode, 2);
    NEAR(t.decode, 0.25 + 3 * 0.5 + 0.125);
    s.members = 1; /* alone: it is encoded, and decoded */
    NEAR(nw_forecast_predict(&s).step, 10 + 2 + 0.25 + 0.125 + 1);
}

static void test_owners_of_one_bucket(void **state)
{
    nw_forecast_bucket b = {.final = 1,
                            .mode = NW_MODE_OWNERS,
                            .floats = 1000,
                            .bytes = 1872,
                            .encode = 2,
                            .decode = 1,
                            .fill = 0.5,
                            .mean = 0.25};
    (void)state;
    /* Two members: half of it, 936 bytes and a header, goes to the other; one half is written and one added (0.75 s), the sum
     * divided (0.125), the mean encoded in half the time, sent back, and written (0.25). */
    nw_forecast_step s = one_bucket(&b, 2, 1000);
    nw_forecast_time t = nw_forecast_predict(&s);
    NEAR(t.step, 12 + 1.125 + 0.25 + 0.75 + 0.125 + 1 + 1.125 + 0.25 + 0.25 + 1);
    NEAR(t.sent, 2000);
    NEAR(t.encode, 3);
    NEAR(t.decode, 0.75 + 0.125 + 0.25);
}

static void test_rounds_of_floats(void **state)
{
    nw_forecast_bucket b = {
        .final = 1, .mode = NW_MODE_SUMMED, .floats = 1000, .encode = 2, .rounds = 2, .round_bytes = {1872, 872}};
    (void)state;
    nw_forecast_step s = one_bucket(&b, 2, 1000);
    double add[2] = {1e-3 * 1872 / 4 / 2, 1e-3 * 872 / 4 / 2}, wire[2] = {1 + 0.125 + 0.25, 0.5 + 0.125 + 0.25};
    double round = 0;
    for (int r = 0; r < 2; r++) round += 1 + wire[r] + 2 * add[r] + wire[r] + add[r];
    NEAR(nw_forecast_predict(&s).step, 10 + round + 1);
}

/* What is final early travels while the pass goes on; with delay 1 also what is final late. */
static void test_overlap(void **state)
{
    nw_forecast_bucket b[2] = {
        {.final = 0.5, .mode = NW_MODE_GATHER, .floats = 10, .bytes = 936, .encode = 0, .decode = 0},
        {.final = 1, .mode = NW_MODE_GATHER, .floats = 10, .bytes = 936, .encode = 0, .decode = 0}};
    (void)state;
    nw_forecast_step s = one_bucket(b, 2, 1000);
    s.count = 2;
    NEAR(nw_forecast_predict(&s).step, 10 + 1.125 + 0.25 + 1); /* only the second is waited for */
    s.delay = 1;
    NEAR(nw_forecast_predict(&s).step, 11); /* none is */
    s.bytes_per_second = 100;               /* ten seconds each: the wire is all that counts */
    NEAR(nw_forecast_predict(&s).step, 2 * 10.125);
}

static void test_any_numbers(void **state)
{
    nw_rng rng = nw_rng_make(5, NW_PURPOSE_TEST, 0, 0);
    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        nw_forecast_bucket b[6];
        int count = 1 + (int)nw_rng_below(&rng, 6);
        for (int i = 0; i < count; i++)
            b[i] = (nw_forecast_bucket){.final = (i + 1.0) / count,
                                        .mode = (nw_mode)nw_rng_below(&rng, 3),
                                        .floats = 1 + nw_rng_below(&rng, 1 << 20),
                                        .bytes = 16 + nw_rng_below(&rng, 1 << 20),
                                        .encode = 1e-3 * nw_rng_uniform(&rng),
                                        .decode = 1e-3 * nw_rng_uniform(&rng),
                                        .fill = 1e-3 * nw_rng_uniform(&rng),
                                        .mean = 1e-3 * nw_rng_uniform(&rng),
                                        .rounds = 1 + (int)nw_rng_below(&rng, 2),
                                        .round_bytes = {4096, 128}};
        nw_forecast_step s = {.buckets = b,
                              .count = count,
                              .pass = 0.1 * nw_rng_uniform(&rng),
                              .update = 1e-3,
                              .add = 1e-9,
                              .members = 1 + (int)nw_rng_below(&rng, 9),
                              .delay = (int)nw_rng_below(&rng, 2),
                              .bytes_per_second = 1e7,
                              .latency = 1e-4,
                              .overhead = 1e-5};
        nw_forecast_time t = nw_forecast_predict(&s);
        assert_true(t.step >= s.pass + s.update + t.encode + t.decode - 1e-9);
        assert_true(t.step >= 0.9 * t.wire); /* with a delay, what is sent last in the steps that count */
        s.bytes_per_second = 1e8;
        assert_true(nw_forecast_predict(&s).step <= t.step * (1 + 1e-3) + 1e-3);
        s.bytes_per_second = 0;
        s.latency = s.overhead = 0;
        t = nw_forecast_predict(&s);
        NEAR(t.step, s.pass + s.update + t.encode + t.decode);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_of_one_bucket), cmocka_unit_test(test_owners_of_one_bucket),
        cmocka_unit_test(test_rounds_of_floats), cmocka_unit_test(test_overlap), cmocka_unit_test(test_any_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
