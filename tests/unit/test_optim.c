/*
 * test_optim.c - optimizers for every table of kernels: against golden trajectories and plain twins, over any threads
 * and ranges, and resumed.
 */
#include "support/optim_fixture.h"

#include "reference/reference.h"

/* ---- golden trajectories ----------------------------------------------------------------------------------------- */

typedef struct golden_case {
    const recipe *recipe;
    const golden_tensor *want; /* after steps 1, 10, 50 */
} golden_case;

static uint64_t golden_body(const fx_run *run, void *context)
{
    const golden_case *f = context;
    static const int kept[] = {1, 10, GOLDEN_STEPS};
    problem p;
    if (is_repetition(run)) return 0;
    open_problem(&p, run, &f->recipe->options, golden_layout, COUNT(golden_layout));
    assert_int_equal(p.params.learned.floats, GOLDEN_COUNT);
    golden_start(&p.params);
    for (int t = 0, k = 0; t < GOLDEN_STEPS; t++) {
        golden_step(&p, f->recipe, t);
        if (t + 1 != kept[k]) continue;
        /* 50 roundings of f32, some of which momentum multiplies by 10. */
        double distance = golden_distance(p.params.values, f->want->data + k * GOLDEN_COUNT, GOLDEN_COUNT);
        if (distance > (k == 0 ? 1.5e-7 : 1e-6)) fx_fail("step %d differs by %g", t + 1, distance);
        k++;
    }
    assert_int_equal(*nw_optimizer_steps(p.optimizer), GOLDEN_STEPS);
    uint64_t hash = hash_problem(&p);
    close_problem(&p);
    return hash;
}

static void test_golden(void **state)
{
    (void)state;
    golden_file *file = golden_load(GOLDEN_PATH("optim.nwg"));
    assert_non_null(file);
    for (int i = 0; i < COUNT(recipes); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/params", recipes[i].golden);
        golden_case f = {&recipes[i], golden_find(file, name)};
        assert_non_null(f.want);
        assert_int_equal(f.want->count, 3 * GOLDEN_COUNT);
        fx_describe("golden %s", recipes[i].golden);
        for_runs(golden_body, &f);
        fx_release(0);
    }
    golden_free(file);
}

/* ---- against twins ----------------------------------------------------------------------------------------------- */

/* One step of the twin of a rule over one segment. */
static void twin_step(const nw_optimizer_options *o, double lr, double decay, int t, size_t count, float *w,
                      const float *g, float *const s[3])
{
    nw_ref_sgd sgd = {lr, o->momentum, o->dampening, decay, o->nesterov};
    nw_ref_moments moments = {lr, o->beta1, o->beta2, o->eps, decay, -HUGE_VAL, HUGE_VAL};
    if (strcmp(o->name, "sgd") == 0) {
        nw_ref_sgd_step_f(&sgd, count, t == 1, w, g, s[0]);
    } else if (strcmp(o->name, "dgc-sgd") == 0) {
        nw_ref_dgc_sgd_step_f(&sgd, count, t == 1, w, g, s[0]);
    } else if (strcmp(o->name, "lars") == 0) {
        nw_ref_lars lars = {lr, decay, o->lars_trust, o->lars_eps, o->lars_clip};
        nw_ref_lars_gradient_f(&lars, count, w, g, s[1]);
        sgd.weight_decay = 0;
        nw_ref_sgd_step_f(&sgd, count, t == 1, w, s[1], s[0]);
    } else if (strcmp(o->name, "adam") == 0) {
        nw_ref_adam_step_f(&moments, count, t, w, g, s[0], s[1], o->amsgrad ? s[2] : NULL);
    } else if (strcmp(o->name, "apam") == 0) {
        nw_ref_apam_step_f(&moments, count, t, w, g, s[0], s[1], o->amsgrad ? s[2] : NULL);
    } else {
        if (o->box) {
            moments.low = o->box_low;
            moments.high = o->box_high;
        }
        nw_ref_apam_paper_step_f(&moments, count, w, g, s[0], s[1], s[2]);
    }
}

static uint64_t twin_body(const fx_run *run, void *context)
{
    const recipe *r = context;
    const nw_optimizer_options *o = &r->options;
    enum { STEPS = 3 };
    problem p;
    if (is_repetition(run)) return 0;
    open_problem(&p, run, o, odd_layout, COUNT(odd_layout));
    size_t count = p.params.learned.floats;
    golden_fill(p.params.values, count, 500, 0, 0.2);
    float *want = fx_alloc(count * sizeof *want, "the twin's values"), *s[3];
    memcpy(want, p.params.values, count * sizeof *want);
    for (int i = 0; i < 3; i++) s[i] = memset(fx_alloc(count * sizeof *want, "the twin's state"), 0, count * 4);
    for (int t = 1; t <= STEPS; t++) {
        golden_fill(p.params.gradients, count, (uint64_t)(500 + t), 0, 1.5);
        must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, r->lr, 1));
        for (int i = 0; i < COUNT(odd_layout); i++) {
            const nw_segment *segment = &p.params.learned.at[i];
            size_t at = segment->offset;
            float *const part[3] = {s[0] + at, s[1] + at, s[2] + at};
            twin_step(o, r->lr, odd_layout[i].decays[o->decay_filter] ? o->weight_decay : 0, t, segment->count,
                      want + at, p.params.gradients + at, part);
        }
    }
    for (size_t i = 0; i < count; i++)
        fx_near("w", (int)i, (double)p.params.values[i], (double)want[i], 4e-7 * (fabs((double)want[i]) + 10 * r->lr));
    for (int i = 0; i < nw_optimizer_states(p.optimizer); i++) {
        const float *got = nw_optimizer_state_at(p.optimizer, i).data;
        double size = 0; /* sums may cancel in single elements */
        for (size_t j = 0; j < count; j++) size += (double)s[i][j] * (double)s[i][j] / (double)count;
        for (size_t j = 0; j < count; j++)
            fx_near(nw_optimizer_state_at(p.optimizer, i).name, (int)j, (double)got[j], (double)s[i][j],
                    5e-7 * (fabs((double)s[i][j]) + sqrt(size)));
    }
    uint64_t hash = hash_problem(&p);
    close_problem(&p);
    return hash;
}

/* Rules without norms over everything; those are covered by the golden values. */
static bool has_twin(const recipe *r) { return r->options.clip_norm == 0 && r->options.clip_value == 0; }

static void test_twins(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(recipes); i++) {
        recipe r = recipes[i];
        if (!has_twin(&r)) continue;
        r.options.decay_filter = (nw_decay_filter)(i % 4); /* each filter with several rules */
        r.scale = 1;
        fx_describe("%s over filter %d", r.golden, (int)r.options.decay_filter);
        for_runs(twin_body, &r);
        fx_release(0);
    }
    /* not of PyTorch, which refuses it; PETRA's code does not */
    static const recipe others[] = {
        {"nesterov with dampening",
         {.name = "sgd", .momentum = 0.9, .dampening = 0.3, .nesterov = true, .weight_decay = 0.02},
         0.05,
         1},
        {"lars with both",
         {.name = "lars", .momentum = 0.9, .dampening = 0.3, .nesterov = true, .lars_trust = 0.02, .lars_eps = 1e-8},
         0.05,
         1}};
    for (int i = 0; i < COUNT(others); i++) {
        recipe r = others[i];
        fx_describe("%s", r.golden);
        for_runs(twin_body, &r);
        fx_release(0);
    }
}

static uint64_t squares_body(const fx_run *run, void *context)
{
    enum { MOST = 300 };
    float x[MOST + 1];
    uint64_t hash = FX_HASH_START;
    (void)context;
    golden_fill(x, MOST + 1, 510, 0, 3);
    for (size_t count = 0; count <= MOST; count++) {
        double want = 0, got = run->kernels->squares(x + 1, count);
        for (size_t i = 1; i <= count; i++) want += (double)x[i] * (double)x[i];
        fx_near("sum of squares", (int)count, got, want, 1e-14 * want);
        hash = fx_hash(hash, &got, sizeof got);
    }
    return hash;
}

static void test_squares(void **state)
{
    (void)state;
    fx_describe("squares");
    for_runs(squares_body, NULL);
}

/* ---- ranges, resuming -------------------------------------------------------------------------------------------- */

/* Makes the steps [from, to) on random gradients; with cuts, each step in ranges that end there. */
static void run_steps(problem *p, const recipe *r, int from, int to, const size_t *cuts, int cut_count)
{
    for (int t = from; t < to; t++) {
        golden_fill(p->params.gradients, p->params.learned.floats, (uint64_t)(521 + t), 0, 1.5);
        if (!cuts) {
            must(nw_optimizer_step(p->optimizer, &p->exec, &p->params, r->lr, r->scale));
            continue;
        }
        size_t at = 0;
        for (int i = 0; i <= cut_count; i++) {
            size_t end = i < cut_count ? cuts[i] : p->params.learned.floats;
            must(nw_optimizer_step_range(p->optimizer, &p->exec, &p->params, r->lr, r->scale, (uint64_t)t + 1, at,
                                         end - at));
            at = end;
        }
    }
}

static uint64_t ranges_body(const fx_run *run, void *context)
{
    const recipe *r = context;
    enum { STEPS = 3 };
    if (is_repetition(run)) return 0;
    problem whole, cut;
    open_problem(&whole, run, &r->options, odd_layout, COUNT(odd_layout));
    open_problem(&cut, run, &r->options, odd_layout, COUNT(odd_layout));
    const nw_segment *big = &whole.params.learned.at[4];
    const size_t anywhere[] = {0, 1, 8, 139, 140, 141, big->offset + 65536 + 3, big->offset + 65536 + 4},
                 between[] = {whole.params.learned.at[1].offset, big->offset, big->offset + big->count};
    bool by_segment = strcmp(r->options.name, "lars") == 0;
    draw_values(&whole);
    draw_values(&cut);
    run_steps(&whole, r, 0, STEPS, NULL, 0);
    run_steps(&cut, r, 0, STEPS, by_segment ? between : anywhere, by_segment ? COUNT(between) : COUNT(anywhere));
    uint64_t hash = hash_problem(&whole);
    if (hash_problem(&cut) != hash) fx_fail("ranges give other bits than the whole");
    close_problem(&whole);
    close_problem(&cut);
    return hash;
}

static void test_ranges(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(recipes); i++) {
        if (recipes[i].options.clip_norm > 0) continue;
        recipe r = recipes[i];
        fx_describe("ranges of %s", r.golden);
        for_runs(ranges_body, &r);
        fx_release(0);
    }
}

static void test_resume(void **state)
{
    (void)state;
    enum { HALF = 3, STEPS = 6 };
    fx_run run = any_run();
    for (int i = 0; i < COUNT(recipes); i++) {
        const recipe *r = &recipes[i];
        problem whole, first, second;
        fx_describe("resuming %s", r->golden);
        open_problem(&whole, &run, &r->options, odd_layout, COUNT(odd_layout));
        open_problem(&first, &run, &r->options, odd_layout, COUNT(odd_layout));
        open_problem(&second, &run, &r->options, odd_layout, COUNT(odd_layout));
        size_t bytes = whole.params.learned.floats * sizeof(float);
        draw_values(&whole);
        draw_values(&first);
        run_steps(&whole, r, 0, STEPS, NULL, 0);
        run_steps(&first, r, 0, HALF, NULL, 0);
        memcpy(second.params.values, first.params.values, bytes);
        for (int k = 0; k < nw_optimizer_states(first.optimizer); k++) {
            nw_optimizer_state from = nw_optimizer_state_at(first.optimizer, k),
                               to = nw_optimizer_state_at(second.optimizer, k);
            assert_string_equal(from.name, to.name);
            memcpy(to.data, from.data, bytes);
        }
        *nw_optimizer_steps(second.optimizer) = *nw_optimizer_steps(first.optimizer);
        run_steps(&second, r, HALF, STEPS, NULL, 0);
        if (hash_problem(&second) != hash_problem(&whole)) fx_fail("resuming changes the bits");
        close_problem(&whole);
        close_problem(&first);
        close_problem(&second);
        fx_release(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_twins),  cmocka_unit_test(test_squares),
        cmocka_unit_test(test_ranges), cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
