/*
 * test_schedule.c - learning rates against published values of the recipes they come from, and bad options.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "optim/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static nw_schedule make(const nw_schedule_options *options)
{
    nw_schedule s;
    if (nw_schedule_make(&s, options) != NW_OK) fail_msg("%s", nw_error_message());
    return s;
}

/* `digits`: how many of the value are known. */
static void near(const nw_schedule *s, int64_t q, double want, int digits)
{
    double got = nw_schedule_lr(s, q);
    if (!(fabs(got - want) <= 0.501 * pow(10, 1 - digits) * pow(10, floor(log10(want == 0 ? 1e-300 : want)))))
        fail_msg("%s at batch %lld: %.10g instead of %.10g", s->options.name, (long long)q, got, want);
}

static void exact(const nw_schedule *s, int64_t q, double want) { near(s, q, want, 14); }

static nw_schedule_options options(const char *name, int64_t batches)
{
    nw_schedule_options o = nw_schedule_options_default();
    o.name = name;
    o.batches_per_epoch = batches;
    return o;
}

/* ---- PETRA ------------------------------------------------------------------------------------------------------- */

/* The CIFAR recipe: batches of 64, two accumulated, Goyal's scaling. */
static void test_petra_steplr(void **state)
{
    (void)state;
    static const int milestones[] = {150, 225};
    enum { N = 782 };
    nw_schedule_options o = options("steplr", N);
    o.epochs = 300;
    o.batch_size = 64;
    o.accumulation_steps = 2;
    o.goyal_lr_scaling = true;
    o.warmup_epochs = 5;
    o.milestones = milestones;
    o.milestone_count = 2;
    nw_schedule s = make(&o);
    assert_string_equal(s.warning, "");
    exact(&s, 225 * N, 5e-4); /* out of order: nothing is remembered */
    near(&s, 0, 1.278772e-5, 7);
    near(&s, 1955, 2.501279e-2, 7);
    exact(&s, 3909, 5e-2);
    exact(&s, 3910, 5e-2);
    exact(&s, 149 * N, 0.05);
    exact(&s, 150 * N - 1, 0.05);
    exact(&s, 150 * N, 0.005);
    exact(&s, 225 * N - 1, 0.005);
    o.goyal_lr_scaling = false;
    o.lr_scaling = true; /* lr k */
    s = make(&o);
    exact(&s, 5 * N, 0.2);
    o.lr_scaling = false;
    s = make(&o);
    exact(&s, 5 * N, 0.1);
}

static void test_petra_polynomial_and_cosine(void **state)
{
    (void)state;
    enum { N = 10 };
    nw_schedule_options o = options("polynomial", N);
    o.warmup_epochs = 5;
    o.compat = true;
    nw_schedule s = make(&o);
    near(&s, 5 * N, 9.790582e-2, 7);
    near(&s, 50 * N, 2.660388e-2, 7);
    near(&s, 98 * N, 1.108033e-5, 7);
    exact(&s, 99 * N, 0);
    exact(&s, 140 * N, 0);
    o.compat = false;
    s = make(&o);
    exact(&s, 5 * N, 0.1);
    exact(&s, 99 * N + 9, 0.1 / 95 / 95);
    o.name = "cosine";
    s = make(&o);
    exact(&s, 5 * N, 0.1);
    near(&s, 50 * N, 5.490086e-2, 7);
    near(&s, 50 * N + 9, 5.490086e-2, 7);
    near(&s, 99 * N, 1.070538e-4, 7);
    exact(&s, 102 * N, 0);
}

static void test_goyal(void **state)
{
    (void)state;
    static const struct {
        int accumulation;
        double middle, after;
    } known[] = {{32, 0.45, 0.8}, {1, 0.0625, 0.025}};
    enum { N = 100 };
    for (int i = 0; i < COUNT(known); i++) {
        nw_schedule_options o = options("goyal", N);
        o.batch_size = 64;
        o.accumulation_steps = known[i].accumulation;
        nw_schedule s = make(&o);
        exact(&s, 0, 0.1);
        exact(&s, 5 * N / 2, known[i].middle);
        exact(&s, 5 * N, known[i].after);
        exact(&s, 30 * N - 1, known[i].after);
        exact(&s, 30 * N, known[i].after * 0.1);
        exact(&s, 90 * N, known[i].after * 0.1 * 0.1 * 0.1);
        o.name = "goyal_original"; /* 30, 60 and 80 % */
        s = make(&o);
        exact(&s, 5 * N, known[i].after);
        exact(&s, 80 * N - 1, known[i].after * 0.1 * 0.1);
        exact(&s, 80 * N, known[i].after * 0.1 * 0.1 * 0.1);
        o.cifar_milestones = true;
        s = make(&o);
        exact(&s, 50 * N - 1, known[i].after);
        exact(&s, 75 * N, known[i].after * 0.1 * 0.1);
    }
}

static void test_fractional_warmup(void **state)
{
    (void)state;
    enum { N = 7 };
    nw_schedule_options o = options("polynomial", N);
    o.warmup_epochs = 1.5; /* 10.5 batches */
    o.epochs = 4;
    nw_schedule s = make(&o);
    exact(&s, 0, 0.1 / 10.5);
    exact(&s, 9, 1.0 / 10.5);
    exact(&s, 10, 0.1);      /* the ramp never passes its end */
    exact(&s, 11, 0.1);      /* epoch 1 began before the warm-up ended */
    exact(&s, 2 * N, 0.064); /* (1 - 0.5 / 2.5)^2 */
    o.warmup_epochs = 6;     /* longer than the run */
    s = make(&o);
    assert_non_null(strstr(s.warning, "leaves none"));
    exact(&s, 20, 0.05);
    assert_true(isfinite(nw_schedule_lr(&s, 100)));
}

/* ---- DGC --------------------------------------------------------------------------------------------------------- */

static void test_dgc(void **state)
{
    (void)state;
    static const int milestones[] = {30, 60, 80};
    enum { N = 98, WORKERS = 8, W = 5, E = 200 };
    nw_schedule_options o = options("cosine-annealing", N);
    o.epochs = E;
    o.replicas = WORKERS;
    o.replica_scaling = true;
    o.lr_scaling = true;
    o.accumulation_steps = 2; /* 0.1 x 2 x 8 */
    o.warmup_epochs = W;
    o.warmup_from = 1.0 / WORKERS;
    o.warmup = NW_WARMUP_STEP_START;
    nw_schedule s = make(&o);
    assert_string_equal(s.warning, "");
    for (int q = 0; q < W * N; q++) {
        double e = (double)(q / 2 * 2) / N; /* both batches of an update have its rate */
        exact(&s, q, 1.6 * (e * (WORKERS - 1) / W + 1) / WORKERS);
    }
    exact(&s, W * N, 1.6);
    for (int epoch = W; epoch < E; epoch += 13) {
        near(&s, epoch * N, 1.6 * (1 + cos(acos(-1) * (epoch - W) / 195)) / 2, 12);
        assert_true(nw_schedule_lr(&s, epoch * N) == nw_schedule_lr(&s, epoch * N + N - 1));
    }
    exact(&s, E * N, 0);
    exact(&s, 2 * E * N, 0); /* it does not rise again */
    o.per_step = true;
    s = make(&o);
    near(&s, W * N + 10, 1.6 * (1 + cos(acos(-1) * 10 / 195 / N)) / 2, 12);
    o.t_max = 100; /* one that was asked for does, as PyTorch's */
    s = make(&o);
    assert_non_null(strstr(s.warning, "rises again"));
    exact(&s, (W + 100) * N, 0);
    exact(&s, (W + 200) * N, 1.6);

    o = options("steplr", N); /* relative milestones {30,60,80} - W are these absolute ones */
    o.milestones = milestones;
    o.milestone_count = 3;
    o.warmup_epochs = W;
    s = make(&o);
    exact(&s, 30 * N - 1, 0.1);
    exact(&s, 80 * N, 0.1 * 0.1 * 0.1 * 0.1);
}

/* ---- cifar10-fast ------------------------------------------------------------------------------------------------ */

static void test_piecewise_linear(void **state)
{
    (void)state;
    static const double knots[] = {0, 0, 5, 0.4, 24, 0}, later[] = {0, 0, 2, 1, 8, 0.1};
    enum { N = 97 };
    nw_schedule_options o = options("piecewise-linear", N);
    o.epochs = 24;
    o.lr = 1;
    o.knots = knots;
    o.knot_count = 3;
    nw_schedule s = make(&o);
    near(&s, 0, 0.000824742, 6); /* step 1 has q = 0 */
    exact(&s, 96, 0.08);
    exact(&s, 484, 0.4);
    near(&s, 485, 0.399783, 6);
    exact(&s, 2327, 0);
    exact(&s, 5000, 0);
    o.lr = 1.0 / 512;
    s = make(&o);
    exact(&s, 484, 0.4 / 512);
    o.lr = 1;
    o.knots = later;
    s = make(&o);
    exact(&s, 2 * N - 1, 1);
    exact(&s, 5 * N - 1, 0.55);
    exact(&s, 10 * N - 1, 0.1); /* level after the last knot */
    o.knot_count = 1;
    s = make(&o);
    exact(&s, 3, 0);
}

/* ---- ACiD and APAM ----------------------------------------------------------------------------------------------- */

static void test_acid(void **state)
{
    (void)state;
    enum { N = 50000 / 128, E = 300, WORKERS = 32, T = 116992 };
    nw_schedule_options o = options("acid", N);
    o.epochs = E;
    o.replicas = WORKERS;
    o.shared = true;
    o.use_linear_scaling = true;
    o.cifar_milestones = true;
    nw_schedule s = make(&o);
    assert_int_equal(s.total, T);
    assert_int_equal(s.total / WORKERS, 3656);
    exact(&s, 0, 0.1);
    int warm = 5 * (T / E); /* 1945 gradients of all: 60.8 steps */
    exact(&s, 30, 0.1 * (1 + 30.0 * WORKERS / warm * 15));
    assert_true(nw_schedule_lr(&s, 60) < 1.6);
    exact(&s, 61, 1.6);
    exact(&s, T / 2 / WORKERS - 1, 1.6);
    exact(&s, T / 2 / WORKERS, 0.16);
    exact(&s, 3 * (T / WORKERS) / 4 - 1, 0.16);
    near(&s, 3 * (T / WORKERS) / 4, 0.016, 12);
    near(&s, 100000, 0.016, 12); /* the last stage has no end */
    o.cifar_milestones = false;
    s = make(&o);
    near(&s, 8 * (T / WORKERS) / 10 + 1, 0.0016, 12);

    o.use_linear_scaling = false;
    o.cifar_milestones = true;
    o.factor = 0.5;
    s = make(&o);
    exact(&s, 0, 0.1);
    exact(&s, T / 2 / WORKERS, 0.05);
    o.compat = true; /* the code compares local steps with the global count */
    s = make(&o);
    exact(&s, T / 2 / WORKERS, 0.1);
    exact(&s, T / 2, 0.05);

    o = options("acid", N / 2); /* where N is each replica's own, an epoch has twice as many gradients */
    o.epochs = 10;
    o.replicas = 2;
    s = make(&o);
    assert_int_equal(s.total, 10 * (N / 2) * 2);
    exact(&s, 3 * (N / 2) - 1, 0.1);
    exact(&s, 3 * (N / 2), 0.1 * 0.1);
}

/* Where replicas share the batches of an epoch, every schedule counts those of all. */
static void test_shared(void **state)
{
    (void)state;
    static const double knots[] = {0, 0, 5, 1, 10, 0};
    static const char *const names[] = {"steplr", "polynomial", "cosine", "cosine-annealing", "piecewise-linear"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        nw_schedule_options o = options(names[i], 40), all = options(names[i], 10);
        o.warmup_epochs = all.warmup_epochs = i < 4 ? 2 : 0;
        o.knots = all.knots = knots;
        o.knot_count = all.knot_count = 3;
        o.epochs = all.epochs = 10;
        o.replicas = all.replicas = 4;
        o.shared = true;
        nw_schedule shared = make(&o), own = make(&all);
        for (int q = 0; q < 100; q++) exact(&shared, q, nw_schedule_lr(&own, q));
    }
    nw_schedule_options o = options("inverse-sqrt", 40);
    o.replicas = 4;
    o.shared = true;
    nw_schedule s = make(&o);
    exact(&s, 3, 0.05);
}

static void test_inverse_sqrt_and_constant(void **state)
{
    (void)state;
    nw_schedule_options o = options("inverse-sqrt", 10);
    o.lr = 10;
    o.lr_max = 0.01;
    nw_schedule s = make(&o);
    exact(&s, 0, 0.01);
    exact(&s, 999999, 0.01);
    exact(&s, 3999999, 0.005);
    o.lr_max = 0;
    s = make(&o);
    exact(&s, 0, 10);
    exact(&s, 3, 5);
    o.name = "constant";
    o.warmup_epochs = 1;
    s = make(&o);
    exact(&s, 4, 5);
    exact(&s, 123456, 10);
}

/* ---- warnings and refusals --------------------------------------------------------------------------------------- */

static void test_warnings(void **state)
{
    (void)state;
    nw_schedule_options o = options("goyal", 10);
    o.goyal_lr_scaling = true;
    o.lr_scaling = true;
    o.use_linear_scaling = true;
    o.warmup_epochs = 2;
    nw_schedule s = make(&o);
    assert_non_null(strstr(s.warning, "scaled twice"));
    assert_non_null(strstr(s.warning, "wins over"));
    assert_non_null(strstr(s.warning, "belongs to the schedule acid"));
    assert_non_null(strstr(s.warning, "warm-up of 2 epochs is ignored"));
    assert_true(strlen(s.warning) < sizeof s.warning - 1);
    exact(&s, 0, 0.1 * 128 / 256);
    o = options("goyal", 10);
    s = make(&o);
    assert_string_equal(s.warning, "");
}

static void refuse(nw_schedule_options o, nw_status status, const char *says)
{
    nw_schedule s;
    assert_int_equal(nw_schedule_make(&s, &o), status);
    if (!strstr(nw_error_message(), says)) fail_msg("'%s' does not say '%s'", nw_error_message(), says);
}

#define REFUSE(field, value, says)                      \
    do {                                                \
        nw_schedule_options o_ = options("steplr", 10); \
        o_.field = (value);                             \
        refuse(o_, NW_E_ARGUMENT, says);                \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    static const int falling[] = {30, 20}, negative[] = {-1, 2, 3};
    static const double still[] = {0, 1, 0, 2}, minus[] = {0, -1};
    refuse(options("cosin", 10), NW_E_UNKNOWN, "nearest is 'cosine'");
    refuse(options(NULL, 10), NW_E_ARGUMENT, "no schedule is named");
    REFUSE(lr, NAN, "learning rate is nan");
    REFUSE(lr, -1, "learning rate is -1");
    REFUSE(batches_per_epoch, 0, "0 batches");
    REFUSE(batches_per_epoch, INT64_MAX, "too many");
    REFUSE(epochs, 0, "0 epochs");
    REFUSE(batch_size, 0, "at least 1");
    REFUSE(accumulation_steps, -1, "at least 1");
    REFUSE(replicas, 0, "at least 1");
    REFUSE(warmup_epochs, -1, "takes -1 epochs");
    REFUSE(warmup_from, -1, "begins at -1");
    REFUSE(factor, 0, "factor is 0");
    REFUSE(t_max, -1, "half period");
    REFUSE(lr_max, -1, "largest learning rate");
    REFUSE(milestone_count, 65, "65 milestones");
    REFUSE(milestones, negative, "milestone 1 is epoch -1");
    nw_schedule_options o = options("steplr", 10);
    o.milestones = falling;
    o.milestone_count = 2;
    refuse(o, NW_E_ARGUMENT, "milestone 2 is epoch 20");
    o = options("piecewise-linear", 10);
    refuse(o, NW_E_ARGUMENT, "needs knots");
    o.knots = still;
    o.knot_count = 2;
    refuse(o, NW_E_ARGUMENT, "knot 2 is at epoch 0");
    o.knots = minus;
    o.knot_count = 1;
    refuse(o, NW_E_ARGUMENT, "knot 1 has rate -1");
    o.knot_count = 65;
    refuse(o, NW_E_ARGUMENT, "65 knots");
    o = options("acid", 1);
    o.epochs = 3;
    o.replicas = 8;
    o.shared = true;
    refuse(o, NW_E_ARGUMENT, "too few for 8 replicas");
    static const char *const all[] = {"constant",         "steplr", "polynomial",     "cosine", "cosine-annealing",
                                      "piecewise-linear", "goyal",  "goyal-original", "acid",   "inverse-sqrt"};
    for (int i = 0; i < COUNT(all); i++) {
        o = options(all[i], 10);
        o.knots = still;
        o.knot_count = 1;
        nw_schedule s = make(&o);
        for (int q = 0; q < 2000; q++) assert_true(nw_schedule_lr(&s, q) >= 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_petra_steplr),
        cmocka_unit_test(test_petra_polynomial_and_cosine),
        cmocka_unit_test(test_goyal),
        cmocka_unit_test(test_fractional_warmup),
        cmocka_unit_test(test_dgc),
        cmocka_unit_test(test_piecewise_linear),
        cmocka_unit_test(test_acid),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_inverse_sqrt_and_constant),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
