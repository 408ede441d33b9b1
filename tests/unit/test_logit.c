/*
 * test_logit.c - logistic regression in shared memory: its arithmetic against plain loops, a serial run bit for bit, and
 * runs of several threads, which must do the same number of updates and find the same minimum. `make test-threads` runs
 * it under the thread sanitizer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/machine.h"
#include "base/rng.h"
#include "reference/logit.h"
#include "train/logit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **unused __attribute__((unused)))

/* ---- data ---------------------------------------------------------------------------------------------------------- */

enum { ROWS = 250, FEATURES = 61, ENTRIES = 8 };

typedef struct data {
    nw_sparse sparse;
    double *dense;
} data;

/* Rows of some entries each, with labels of a linear rule that is wrong for one row in ten. */
static data make_data(int64_t rows, int32_t features, int entries)
{
    data d = {.dense = calloc((size_t)(rows * features), sizeof(double))};
    nw_sparse *s = &d.sparse;
    s->begin = calloc((size_t)rows + 1, sizeof *s->begin);
    s->label = calloc((size_t)rows, 1);
    s->index = calloc((size_t)(rows * entries), sizeof *s->index);
    s->value = calloc((size_t)(rows * entries), sizeof *s->value);
    s->features = features;
    for (int64_t r = 0; r < rows; r++) {
        nw_rng rng = nw_rng_make(7, NW_PURPOSE_TEST, (uint64_t)r, 0);
        double *x = d.dense + r * features, score = 0;
        for (int k = 0; k < entries; k++) x[nw_rng_below(&rng, (uint32_t)features)] = (double)nw_rng_normal(&rng);
        for (int32_t i = 0; i < features; i++) {
            if (x[i] == 0) continue;
            s->index[s->entries] = i;
            s->value[s->entries++] = x[i];
            score += x[i] * (i % 2 ? 1.5 : -1) / (1 + i % 5);
        }
        bool wrong = nw_rng_below(&rng, 10) == 0;
        s->label[r] = (score > 0) != wrong ? 1 : -1;
        s->begin[++s->rows] = s->entries;
        int64_t length = s->begin[r + 1] - s->begin[r];
        if (length > s->longest) s->longest = length;
    }
    return d;
}

static void free_data(data *d)
{
    nw_sparse_free(&d->sparse);
    free(d->dense);
}

static nw_logit_options options_for(const data *d, int threads, int masters)
{
    nw_logit_options o = {.data = &d->sparse,
                          .features = d->sparse.features,
                          .batch_size = 16,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .seed = 3,
                          .threads = threads,
                          .masters = masters,
                          .schedule = nw_schedule_options_default()};
    o.schedule.name = "inverse-sqrt";
    o.schedule.lr = 1;
    o.schedule.lr_max = 0.05;
    o.schedule.milestone_count = 0;
    return o;
}

static nw_ref_logit twin_of(const data *d, const nw_logit_options *o)
{
    double b = o->sum ? 1 : o->batch_size;
    return (nw_ref_logit){.rows = (size_t)d->sparse.rows,
                          .features = (size_t)d->sparse.features,
                          .x = d->dense,
                          .labels = d->sparse.label,
                          .intercept = o->intercept,
                          .sum = o->sum,
                          .beta1 = o->beta1,
                          .beta2 = o->beta2,
                          .decay = o->weight_decay,
                          .least = 1e-11 / (b * b)};
}

/* ---- arithmetic ---------------------------------------------------------------------------------------------------- */

TEST(test_scalars)
{
    assert_true(fabs(nw_logit_loss(0) - log(2)) < 1e-15);
    assert_true(nw_logit_loss(800) == 0 && nw_logit_loss(-800) == 800);
    assert_true(nw_logit_pull(0) == 0.5 && nw_logit_pull(-800) == 1 && nw_logit_pull(800) >= 0);
    assert_true(nw_logit_pull(800) < 1e-300);
    for (double t = -30; t <= 30; t += 0.37) {
        double h = 1e-5, slope = (nw_logit_loss(t + h) - nw_logit_loss(t - h)) / (2 * h);
        assert_true(fabs(slope + nw_logit_pull(t)) < 1e-9);
        assert_true(fabs(nw_logit_pull(t) + nw_logit_pull(-t) - 1) < 1e-15);
    }
}

/* Against the twin bit for bit, and against differences of the loss. */
static void check_gradient(bool intercept, bool sum)
{
    data d = make_data(40, 17, 5);
    nw_logit_options o = options_for(&d, 1, 1);
    o.intercept = intercept;
    o.sum = sum;
    nw_ref_logit twin = twin_of(&d, &o);
    size_t count = 17 + (size_t)intercept;
    double w[18], want[18], got[18] = {0}, value[18], sums[18];
    uint32_t mark[18] = {0}, batch[] = {3, 39, 0, 11, 12, 3};
    int32_t index[18];
    nw_shared_double shared[18];
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < count; i++) {
        w[i] = (double)nw_rng_normal(&rng);
        atomic_init(&shared[i], w[i]);
    }
    nw_logit_sums scratch = {sums, mark, UINT32_MAX - 1}; /* the marks begin anew at the second call */
    nw_logit_gradient g = {.index = index, .value = value};
    for (int again = 0; again < 3; again++)
        nw_logit_gradient_of(&d.sparse, 17, intercept, shared, batch, 6, sum ? 1.0 : 1.0 / 6, &scratch, &g);
    for (int64_t k = 0; k < g.count; k++) {
        assert_true(got[g.index[k]] == 0);
        got[g.index[k]] = g.value[k];
    }
    double loss = nw_ref_logit_gradient(&twin, w, batch, 6, want);
    for (size_t i = 0; i < count; i++) assert_true(got[i] == want[i]);
    assert_int_equal(g.tally.rows, 6);
    assert_true(fabs(nw_logit_tally_loss(&g.tally) * (sum ? 6 : 1) - loss) < 1e-12);
    for (size_t i = 0; i < count; i++) {
        double ignored[18], h = 1e-5, kept = w[i];
        w[i] = kept + h;
        double above = nw_ref_logit_gradient(&twin, w, batch, 6, ignored);
        w[i] = kept - h;
        double below = nw_ref_logit_gradient(&twin, w, batch, 6, ignored);
        w[i] = kept;
        assert_true(fabs((above - below) / (2 * h) - got[i]) < 1e-8);
    }
    free_data(&d);
}

TEST(test_gradient)
{
    check_gradient(false, false);
    check_gradient(true, false);
    check_gradient(true, true);
}

/* More than a block, no multiple of a vector, zeros to be skipped. */
TEST(test_update)
{
    enum { N = 1031 };
    nw_ref_logit twin = {.features = N, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.01, .least = 1e-11};
    nw_logit_rule rule = {.beta1 = 0.9, .beta2 = 0.99, .decay = 0.01, .least = 1e-11};
    static double g[N], w[2][N], m[2][N], v[2][N], u[2][N];
    static nw_shared_double shared[N];
    for (int t = 0; t < 20; t++) {
        nw_rng rng = nw_rng_make(2, NW_PURPOSE_TEST, (uint64_t)t, 0);
        for (int i = 0; i < N; i++) {
            g[i] = i % 3 == 0 && i > 30 ? 0 : (double)nw_rng_normal(&rng);
            if (i % 7 == 1) g[i] *= 1e-8; /* stays below the guard */
            if (t == 0 && i % 5) w[0][i] = w[1][i] = i % 3 ? (double)nw_rng_normal(&rng) : 0;
        }
        rule.alpha = 0.1 / (t + 1);
        nw_ref_logit_step(&twin, rule.alpha, g, w[0], m[0], v[0], u[0]);
        nw_logit_update(&rule, N, g, w[1], m[1], v[1], u[1], shared);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
        assert_memory_equal(m[0], m[1], sizeof m[0]);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
        assert_memory_equal(u[0], u[1], sizeof u[0]);
        for (int i = 0; i < N; i++) assert_true(atomic_load(&shared[i]) == w[1][i]);
    }
}

/* ---- serial runs --------------------------------------------------------------------------------------------------- */

/* The rows of a batch, from the definition. */
static size_t batch_of(const data *d, const nw_logit_options *o, int64_t batches, int64_t step, uint32_t *rows)
{
    size_t count = 0, n = (size_t)d->sparse.rows, b = (size_t)o->batch_size;
    uint32_t order[ROWS];
    if (o->groups) {
        nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SHUFFLE, (uint64_t)step, 1);
        size_t group = nw_rng_below(&rng, (uint32_t)batches), rest = n % b,
               first = group * b + (group < rest ? group : rest);
        for (size_t i = 0; i < b + (group < rest); i++) rows[count++] = (uint32_t)(first + i);
        return count;
    }
    nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SHUFFLE, (uint64_t)(step / batches), 0);
    nw_rng_shuffle(&rng, order, (uint32_t)n);
    for (size_t i = (size_t)(step % batches) * b; i < n && count < b; i++) rows[count++] = order[i];
    return count;
}

/* Every step of some epochs is the twin's, bit for bit. */
static void check_serial(void (*change)(nw_logit_options *))
{
    data d = make_data(ROWS, FEATURES, ENTRIES);
    nw_logit_options o = options_for(&d, 1, 1);
    if (change) change(&o);
    nw_ref_logit twin = twin_of(&d, &o);
    nw_logit *l;
    nw_logit_state state;
    assert_int_equal(nw_logit_create(&l, &o), NW_OK);
    double w[FEATURES + 1] = {0}, m[FEATURES + 1] = {0}, v[FEATURES + 1] = {0}, u[FEATURES + 1] = {0}, g[FEATURES + 1];
    nw_logit_keep(l, &state);
    memcpy(w, state.w, sizeof(double) * (size_t)state.count);
    int64_t batches = nw_logit_batches(l);
    for (int64_t step = 0; step < 3 * batches; step++) {
        uint32_t rows[ROWS];
        size_t count = batch_of(&d, &o, batches, step, rows);
        double alpha = fmin(o.schedule.lr_max, o.schedule.lr / sqrt((double)step + 1));
        nw_ref_logit_gradient(&twin, w, rows, count, g);
        nw_ref_logit_step(&twin, alpha, g, w, m, v, u);
        nw_logit_advance(l, step + 1, NULL);
        nw_logit_keep(l, &state);
        assert_int_equal(state.step, step + 1);
        assert_true(nw_logit_rate(l) == alpha);
        assert_memory_equal(state.w, w, sizeof(double) * (size_t)state.count);
        assert_memory_equal(state.u, u, sizeof(double) * (size_t)state.count);
    }
    assert_int_equal(state.delays.count, 3 * batches);
    assert_int_equal(state.delays.max, 0);
    if (!o.groups) assert_int_equal(state.epoch.rows, o.drop_last ? ROWS / 16 * 16 : ROWS);
    nw_logit_free(l);
    free_data(&d);
}

static void with_everything(nw_logit_options *o)
{
    o->intercept = o->normal_start = o->drop_last = true;
    o->weight_decay = 0.01;
}
static void with_groups(nw_logit_options *o)
{
    o->groups = o->sum = true;
    o->batch_size = 30;
}

TEST(test_serial)
{
    check_serial(NULL);
    check_serial(with_everything);
}

/* 250 = 8 x 30 + 10 leaves more rows than groups. */
TEST(test_groups)
{
    data d = make_data(ROWS, FEATURES, ENTRIES);
    nw_logit_options o = options_for(&d, 1, 1);
    nw_logit *l;
    with_groups(&o);
    assert_int_equal(nw_logit_create(&l, &o), NW_OK);
    assert_int_equal(nw_logit_batches(l), 8); /* the rest is spread: 31 or 32 rows each */
    nw_logit_state state;
    for (int64_t step = 1; step <= 8; step++) {
        nw_logit_advance(l, step, NULL);
        nw_logit_keep(l, &state);
        assert_in_range(state.epoch.rows, 31 * step, 32 * step);
    }
    nw_logit_free(l);
    free_data(&d);
}

static void with_small_rest(nw_logit_options *o)
{
    o->groups = o->sum = true;
    o->batch_size = 17;
}
TEST(test_serial_groups) { check_serial(with_small_rest); }

/* AMSGrad does not see the scale of gradients, and the guard is scaled with them: the mean of 16 rows takes the path of
 * their sum, bit for bit, since a power of two rounds nothing. */
TEST(test_sum_and_mean)
{
    data d = make_data(240, FEATURES, ENTRIES);
    nw_logit_state state[2];
    nw_logit *l[2];
    for (int i = 0; i < 2; i++) {
        nw_logit_options o = options_for(&d, 1, 1);
        o.sum = i == 1;
        assert_int_equal(nw_logit_create(&l[i], &o), NW_OK);
        nw_logit_advance(l[i], 15, NULL);
        nw_logit_keep(l[i], &state[i]);
    }
    assert_memory_equal(state[0].w, state[1].w, FEATURES * sizeof(double));
    for (int i = 0; i < 2; i++) nw_logit_free(l[i]);
    free_data(&d);
}

/* A run that goes on in another trainer, in the middle of an epoch, is the run that was not interrupted. */
TEST(test_restart)
{
    data d = make_data(ROWS, FEATURES, ENTRIES);
    nw_logit_options o = options_for(&d, 1, 1);
    nw_logit *l[2];
    nw_logit_state a, b;
    for (int i = 0; i < 2; i++) assert_int_equal(nw_logit_create(&l[i], &o), NW_OK);
    nw_logit_advance(l[0], 16, NULL);
    nw_logit_advance(l[0], 23, NULL);
    nw_logit_keep(l[0], &a);
    nw_logit_keep(l[1], &b);
    double *from[] = {a.w, a.m, a.v, a.u}, *to[] = {b.w, b.m, b.v, b.u};
    for (int i = 0; i < 4; i++) memcpy(to[i], from[i], FEATURES * sizeof(double));
    nw_logit_restart(l[1], &a);
    for (int i = 0; i < 2; i++) {
        nw_logit_advance(l[i], 40, NULL); /* no further than the epoch */
        nw_logit_advance(l[i], 40, NULL);
    }
    nw_logit_keep(l[0], &a);
    nw_logit_keep(l[1], &b);
    assert_int_equal(a.step, 40);
    assert_int_equal(b.step, 40);
    assert_memory_equal(a.w, b.w, FEATURES * sizeof(double));
    assert_true(a.epoch.loss == b.epoch.loss && a.epoch.correct == b.epoch.correct);
    assert_int_equal(b.delays.count, 40);
    for (int i = 0; i < 2; i++) nw_logit_free(l[i]);
    free_data(&d);
}

TEST(test_refused)
{
    data d = make_data(ROWS, FEATURES, ENTRIES);
    nw_logit *l;
    nw_logit_options o = options_for(&d, 2, 3);
    assert_int_equal(nw_logit_create(&l, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "--servers"));
    o = options_for(&d, 1, 1);
    o.features = FEATURES - 1;
    assert_int_equal(nw_logit_create(&l, &o), NW_E_ARGUMENT);
    o = options_for(&d, 1, 1);
    o.features = NW_SPARSE_FEATURES;
    o.threads = 1024; /* more than a terabyte of sums */
    if (nw_machine_available_memory() > 0) {
        assert_int_equal(nw_logit_create(&l, &o), NW_E_MEMORY);
        assert_null(l);
    }
    free_data(&d);
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static double train_with(const data *d, int threads, int masters, int epochs, nw_histogram *delays)
{
    nw_logit_options o = options_for(d, threads, masters);
    nw_logit *l;
    nw_logit_state state;
    o.weight_decay = 1e-3; /* one minimum */
    o.features += 3;       /* test rows may have more */
    o.intercept = true;
    assert_int_equal(nw_logit_create(&l, &o), NW_OK);
    for (int e = 1; e <= epochs; e++) {
        nw_logit_advance(l, INT64_MAX, NULL);
        nw_logit_keep(l, &state);
        assert_int_equal(state.step, e * nw_logit_batches(l)); /* no update is missing, none too many */
        assert_int_equal(state.epoch.rows, d->sparse.rows);    /* every row once */
    }
    nw_logit_tally tally = nw_logit_evaluate(&d->sparse, o.features, true, state.w);
    for (int64_t i = d->sparse.features; i < o.features; i++) assert_true(state.w[i] == 0);
    *delays = state.delays;
    assert_int_equal(delays->count, state.step);
    assert_true(delays->max < nw_logit_batches(l)); /* nothing is under way between two epochs */
    nw_logit_free(l);
    return nw_logit_tally_loss(&tally);
}

TEST(test_threads)
{
    data d = make_data(600, FEATURES, ENTRIES);
    nw_histogram delays;
    double serial = train_with(&d, 1, 1, 60, &delays);
    assert_int_equal(delays.max, 0);
    assert_true(serial < 0.45); /* it learns: log 2 is 0.69 */
    const int shapes[][2] = {{2, 1}, {3, 1}, {4, 1}, {2, 2}, {4, 2}, {4, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double loss = train_with(&d, shapes[i][0], shapes[i][1], 60, &delays);
        if (!(fabs(loss / serial - 1) < 0.01))
            fail_msg("loss %g with %d threads, %g with one", loss, shapes[i][0], serial);
    }
    free_data(&d);
}

/* More masters than cache lines of parameters: some own nothing, and the run is as long. */
TEST(test_many_masters)
{
    data d = make_data(100, 9, 3);
    nw_histogram delays;
    assert_true(train_with(&d, 6, 5, 20, &delays) < 0.69);
    free_data(&d);
}

/* Asked to stop, it finishes what is under way; what was taken is applied. */
TEST(test_stop)
{
    data d = make_data(ROWS, FEATURES, ENTRIES);
    for (int threads = 1; threads <= 3; threads++) {
        nw_logit_options o = options_for(&d, threads, 1);
        nw_logit *l;
        nw_logit_state state;
        volatile sig_atomic_t stop = 1;
        assert_int_equal(nw_logit_create(&l, &o), NW_OK);
        nw_logit_advance(l, INT64_MAX, &stop);
        nw_logit_keep(l, &state);
        assert_in_range(state.step, 0, nw_logit_batches(l));
        if (threads == 1) assert_int_equal(state.step, 0);
        assert_int_equal(state.delays.count, state.step);
        stop = 0;
        while (state.step < 2 * nw_logit_batches(l)) {
            int64_t before = state.step;
            nw_logit_advance(l, INT64_MAX, &stop);
            nw_logit_keep(l, &state);
            assert_true(state.step > before);
        }
        assert_int_equal(state.epoch.rows, ROWS);
        nw_logit_free(l);
    }
    free_data(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),      cmocka_unit_test(test_gradient),     cmocka_unit_test(test_update),
        cmocka_unit_test(test_serial),       cmocka_unit_test(test_groups),       cmocka_unit_test(test_serial_groups),
        cmocka_unit_test(test_sum_and_mean), cmocka_unit_test(test_restart),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_many_masters), cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
