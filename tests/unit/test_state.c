/*
 * test_state.c - lists of state: what becomes of each tensor in a world of another size, by its rule; what is missing
 * or of another type; members of which nothing was saved; lists that another rank sent; and memory that ends.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "net/driver.h"
#include "support/state_store.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

/* Calls to the allocator that still succeed; the program is linked so that these stand before the C library's. */
static int64_t left = INT64_MAX;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return left-- > 0 ? __real_malloc(bytes) : NULL; }
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes) { return left-- > 0 ? __real_realloc(old, bytes) : NULL; }

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void assert_says(const char *part)
{
    if (!strstr(nw_error_message(), part)) fail_msg("expected '%s' in: %s", part, nw_error_message());
}

/* ---- members with a bit of everything ---- */

enum { FLOATS = 12, MEMBERS = 6 };

typedef struct member {
    int64_t count;   /* KEPT: how many floats of `kept` are listed, so that the list depends on it */
    float kept[4];   /* KEPT */
    float range[12]; /* RANGE: elements first .. end are its own */
    size_t first, end;
    float error[3]; /* DELIVERED, in means */
    double loss;    /* DELIVERED */
    int64_t images;
    float owed[2]; /* DELIVERED, in sums */
    double like;   /* LIKE */
    uint8_t marks[2][3];
    float estimate, mean; /* FOLLOWS, and what it follows: KEPT */
    int64_t own;          /* OWN */
    float spare[2];
    int64_t refused; /* REFUSED */
    bool refuses, has_spare, is_optional;
    int loaded;
} member;

static void list(void *whose, nw_state *s)
{
    member *m = whose;
    int64_t three = 3, two = 2, one = 1, shape[] = {2, 3};
    nw_state_integer(s, "count", NW_STATE_KEPT, &m->count);
    nw_state_tensor(s, "kept", NW_STATE_KEPT, NW_STATE_F32, 1, &m->count, m->kept);
    if (m->end > m->first)
        nw_state_vector(s, "range", NW_STATE_RANGE, m->range + m->first, m->first, m->end - m->first);
    nw_state_tensor(s, "error", NW_STATE_DELIVERED, NW_STATE_F32, 1, &three, m->error);
    if (s->count > 0) s->at[s->count - 1].mean = true;
    nw_state_real(s, "loss", NW_STATE_DELIVERED, &m->loss);
    nw_state_integer(s, "images", NW_STATE_DELIVERED, &m->images);
    nw_state_tensor(s, "owed", NW_STATE_DELIVERED, NW_STATE_F32, 1, &two, m->owed);
    nw_state_real(s, "like", NW_STATE_LIKE, &m->like);
    nw_state_tensor(s, "marks", NW_STATE_LIKE, NW_STATE_U8, 2, shape, m->marks);
    nw_state_tensor(s, "estimate", NW_STATE_KEPT, NW_STATE_F32, 1, &one, &m->mean);
    nw_state_tensor(s, "estimate", NW_STATE_FOLLOWS, NW_STATE_F32, 1, &one, &m->estimate);
    nw_state_integer(s, "own", NW_STATE_OWN, &m->own);
    if (m->has_spare) nw_state_tensor(s, "spare", NW_STATE_OWN, NW_STATE_F32, 1, &two, m->spare);
    if (m->refuses) nw_state_integer(s, "refused", NW_STATE_REFUSED, &m->refused);
    nw_state_entry *marks = nw_state_find(s, "marks");
    if (marks) marks->optional = m->is_optional;
}

static nw_status loaded(void *whose)
{
    member *m = whose;
    m->loaded++;
    NW_FAIL_IF(m->count < 0 || m->count > 4, NW_E_FILE, "%lld floats cannot be kept", (long long)m->count);
    return NW_OK;
}

static nw_state_owner owner_of(member *m) { return (nw_state_owner){m, list, loaded}; }

/* The ranges of `members`, in order, one of them empty where there are many. */
static void cut(member *m, int me, int members)
{
    int owners = members > 4 ? members - 1 : members; /* the last has none */
    m->first = me < owners ? (size_t)(FLOATS * me / owners) : 0;
    m->end = me < owners ? (size_t)(FLOATS * (me + 1) / owners) : 0;
}

static member make(int me, int members)
{
    member m = {.count = 4, .kept = {1, 2, 3, 4}, .loss = me + 0.5, .images = 10 + me, .like = me, .own = me % 2};
    m.estimate = (float)me;
    m.mean = 0.25f;
    cut(&m, me, members);
    for (size_t i = m.first; i < m.end; i++) m.range[i] = 100.0f + (float)i;
    for (int i = 0; i < 3; i++) m.error[i] = (float)(me + 1) * (float)(1 << i);
    for (int i = 0; i < 2; i++) m.owed[i] = (float)(me * 4 + i);
    memset(m.marks, me + 1, sizeof m.marks);
    return m;
}

static void save_world(state_store *store, int members)
{
    for (int j = 0; j < members; j++) {
        member m = make(j, members);
        store_add(store, owner_of(&m));
    }
}

/* ---- the rules ---- */

static void check_delivered(const member *now, int from, int to)
{
    double before[6] = {0}, after[6] = {0};
    for (int j = 0; j < from; j++) {
        member m = make(j, from);
        for (int i = 0; i < 3; i++) before[i] += (double)m.error[i] / from; /* what a mean over all would give */
        before[3] += m.loss;
        before[4] += (double)m.images;
        before[5] += (double)m.owed[1];
    }
    for (int j = 0; j < to; j++) {
        for (int i = 0; i < 3; i++) after[i] += (double)now[j].error[i] / to;
        after[3] += now[j].loss;
        after[4] += (double)now[j].images;
        after[5] += (double)now[j].owed[1];
    }
    for (int i = 0; i < 6; i++)
        if (before[i] - after[i] > 1e-5 * before[i] || after[i] - before[i] > 1e-5 * before[i])
            fail_msg("from %d to %d members, sum %d was %g and is %g", from, to, i, before[i], after[i]);
}

static void change_world(int from, int to)
{
    state_store store = {0};
    member now[MEMBERS];
    char lost[256] = "";
    save_world(&store, from);
    for (int j = 0; j < to; j++) {
        member m = {.own = 77, .error = {9, 9, 9}, .loss = 9, .images = 9, .owed = {9, 9}};
        cut(&m, j, to);
        ok(store_load(&store, owner_of(&m), j, to, lost));
        assert_int_equal(m.loaded, 1);
        assert_int_equal(m.count, 4);
        for (int i = 0; i < 4; i++) assert_true(m.kept[i] == (float)(i + 1)); /* though nothing was kept before */
        for (size_t i = 0; i < FLOATS; i++)
            assert_true(m.range[i] == (i >= m.first && i < m.end ? 100.0f + (float)i : 0.0f));
        assert_true(m.like == j % from);
        assert_true(m.marks[0][0] == j % from + 1 && m.marks[1][2] == j % from + 1);
        assert_int_equal(m.own, from == to ? j % 2 : 77);
        assert_true(m.mean == 0.25f && m.estimate == (from == to ? (float)j : 0.25f));
        if (from == to) assert_true(m.loss == j + 0.5 && m.error[0] == (float)(j + 1));
        if (j >= from) assert_true(m.loss == 0 && m.images == 0 && m.error[2] == 0.0f);
        now[j] = m;
    }
    check_delivered(now, from, to);
    assert_string_equal(lost, from == to || from == 1 ? "" : "own"); /* the only one had none */
    store_clear(&store);
}

TEST(test_every_rule_in_every_world)
{
    for (int from = 1; from <= MEMBERS; from++)
        for (int to = 1; to <= MEMBERS; to++) change_world(from, to);
}

/* Exactly, and in which place: with means, times M / N. */
TEST(test_what_is_delivered_goes_to_its_place)
{
    state_store store = {0};
    save_world(&store, 3);
    member m = {0};
    ok(store_load(&store, owner_of(&m), 0, 2, NULL));
    assert_true(m.error[1] == (1 + 3) * 2 * (2.0f / 3) && m.loss == 0.5 + 2.5 && m.images == 10 + 12);
    assert_true(m.owed[0] == 0.0f + 8.0f);
    ok(store_load(&store, owner_of(&m), 1, 2, NULL));
    assert_true(m.error[1] == 2 * 2 * (2.0f / 3) && m.loss == 1.5 && m.images == 11 && m.owed[0] == 4.0f);
    store_clear(&store);
}

TEST(test_what_cannot_be_continued_is_refused)
{
    state_store store = {0};
    for (int j = 0; j < 2; j++) {
        member m = make(j, 2);
        m.refuses = true;
        m.refused = j + 5;
        store_add(&store, owner_of(&m));
    }
    member m = {.refuses = true};
    ok(store_load(&store, owner_of(&m), 1, 2, NULL));
    assert_int_equal(m.refused, 6);
    assert_int_equal(store_load(&store, owner_of(&m), 0, 3, NULL), NW_E_ARGUMENT);
    assert_says("refused was saved by 2 ranks, and cannot be continued by 3");
    store_clear(&store);
}

/* Each once, however many members lose it; tensors where they are listed, numbers where they were not 0. */
TEST(test_what_is_lost_is_named)
{
    state_store store = {0};
    char lost[256] = "";
    save_world(&store, 4);
    for (int j = 0; j < 3; j++) {
        member m = {.has_spare = true, .spare = {3, 4}};
        ok(store_load(&store, owner_of(&m), j, 3, lost));
        assert_true(m.spare[0] == 3.0f && m.spare[1] == 4.0f && m.own == 0);
    }
    assert_string_equal(lost, "own, spare");
    nw_state_lose(lost, sizeof lost, "are");
    nw_state_lose(lost, sizeof lost, "ow");
    nw_state_lose(lost, sizeof lost, "spare");
    assert_string_equal(lost, "own, spare, are, ow");
    nw_state_lose(lost, 26, "another"); /* which there is no room for */
    assert_string_equal(lost, "own, spare, are, ow");
    store_clear(&store);
}

/* ---- what is missing, or of another kind ---- */

static bool only_even(void *context, int which)
{
    (void)context;
    return which % 2 == 0;
}

/* Members 1 and 3 of 4 had been dropped: those begin as those before them, without what was their own. */
TEST(test_members_of_which_nothing_was_saved)
{
    state_store store = {0};
    nw_state_source source = {&store, 4, store_read, only_even, NULL};
    double loss = 0;
    save_world(&store, 4);
    for (int j = 0; j < 4; j++) {
        member m = {.own = 77};
        char lost[64] = "";
        nw_state_owner owner = owner_of(&m);
        ok(nw_state_load(&owner, &source, j, 4, lost, sizeof lost));
        assert_true(m.like == j - j % 2);
        assert_int_equal(m.own, j % 2 ? 77 : 0);
        assert_string_equal(lost, "");
        loss += m.loss;
    }
    assert_true(loss == 0.5 + 2.5);
    member m = {.refuses = true};
    nw_state_owner owner = owner_of(&m);
    assert_int_equal(nw_state_load(&owner, &source, 3, 4, (char[8]){0}, 8), NW_E_ARGUMENT);
    store_clear(&store);
}

static bool skip_like(void *context, const nw_state_entry *e)
{
    (void)context;
    return e->rule == NW_STATE_LIKE || e->rule == NW_STATE_REFUSED;
}

TEST(test_what_is_skipped_stays)
{
    state_store store = {0};
    nw_state_source source = {&store, 2, store_read, NULL, skip_like};
    save_world(&store, 2);
    member m = {.like = 3.25, .refuses = true, .refused = 8};
    nw_state_owner owner = owner_of(&m);
    ok(nw_state_load(&owner, &source, 0, 3, (char[8]){0}, 8));
    assert_true(m.like == 3.25 && m.refused == 8 && m.count == 4);
    store_clear(&store);
}

TEST(test_missing_tensors)
{
    state_store store = {0};
    save_world(&store, 2);
    for (int j = 0; j < 2; j++) *nw_state_find(&store.at[j], "marks")->name = 'x';
    member m = {0};
    assert_int_equal(store_load(&store, owner_of(&m), 0, 2, NULL), NW_E_FILE);
    assert_says("the checkpoint lacks marks; give the options of the run that wrote it");
    m = (member){.is_optional = true, .marks = {{7}}};
    ok(store_load(&store, owner_of(&m), 0, 2, NULL));
    assert_int_equal(m.marks[0][0], 7);
    *nw_state_find(&store.at[1], "owed")->name = 'x'; /* of one of those who would be added */
    ok(store_load(&store, owner_of(&m), 0, 3, NULL));
    assert_int_equal(store_load(&store, owner_of(&m), 1, 3, NULL), NW_E_FILE);
    assert_says("owed");
    *nw_state_find(&store.at[0], "count")->name = 'x'; /* numbers are first */
    m.loaded = 0;
    assert_int_equal(store_load(&store, owner_of(&m), 0, 2, NULL), NW_E_FILE);
    assert_int_equal(m.loaded, 0);
    store_clear(&store);
}

TEST(test_other_types_and_numbers_that_make_no_sense)
{
    state_store store = {0};
    save_world(&store, 2);
    member m = {0};
    nw_state_find(&store.at[0], "marks")->type = NW_STATE_F32;
    assert_int_equal(store_load(&store, owner_of(&m), 0, 2, NULL), NW_E_FILE);
    *(int64_t *)nw_state_find(&store.at[0], "count")->data = 5;
    m = (member){0};
    assert_int_equal(store_load(&store, owner_of(&m), 0, 2, NULL), NW_E_FILE);
    assert_says("5 floats cannot be kept");
    assert_true(m.kept[0] == 0.0f); /* before the tensors that depend on it */
    store_clear(&store);
}

static void list_bytes(void *whose, nw_state *s)
{
    nw_state_entry e = {.name = "x", .rule = NW_STATE_DELIVERED, .type = NW_STATE_I64, .mean = true, .data = whose};
    nw_state_add(s, e);
}

TEST(test_means_of_integers_are_not_delivered)
{
    state_store store = {0};
    int64_t x = 3;
    nw_state_owner owner = {&x, list_bytes, loaded};
    store_add(&store, owner);
    assert_int_equal(store_load(&store, owner, 0, 2, NULL), NW_E_INTERNAL);
    store_clear(&store);
}

/* ---- ranks ---- */

static void list_toy(nw_machine *m, nw_state *s) { nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates); }
static nw_status toy_loaded(nw_machine *m)
{
    NW_FAIL_IF(m->updates == 13, NW_E_FILE, "no machine makes 13 updates");
    return NW_OK;
}

TEST(test_a_rank_lists_machine_worker_and_time)
{
    static const nw_machine_ops ops = {.name = "toy", .state = list_toy, .loaded = toy_loaded};
    static const nw_worker_ops work = {.state = list, .loaded = loaded};
    nw_machine machine = {.ops = &ops, .updates = 5}, other = {.ops = &ops};
    member m = make(0, 1), n = {0};
    nw_rank rank = {.machine = &machine, .worker = &m, .work = &work, .elapsed_ns = 123456789};
    nw_rank again = {.machine = &other, .worker = &n, .work = &work};
    state_store store = {0};
    cut(&n, 0, 1);
    store_add(&store, nw_rank_state(&rank));
    assert_non_null(nw_state_find(&store.at[0], "exchange.updates"));
    ok(store_load(&store, nw_rank_state(&again), 0, 1, NULL));
    assert_true(other.updates == 5 && n.loaded == 1 && n.like == m.like && again.elapsed_ns == 123456789);
    char lost[256] = "";
    again.elapsed_ns = 0;
    ok(store_load(&store, nw_rank_state(&again), 1, 2, lost));
    assert_int_equal(again.elapsed_ns, 0);
    assert_string_equal(lost, "elapsed_ns");
    *(int64_t *)nw_state_find(&store.at[0], "exchange.updates")->data = 13;
    assert_int_equal(store_load(&store, nw_rank_state(&again), 0, 1, NULL), NW_E_FILE);
    assert_says("13 updates");
    *(int64_t *)nw_state_find(&store.at[0], "exchange.updates")->data = 12;
    *(int64_t *)nw_state_find(&store.at[0], "elapsed_ns")->data = -1;
    assert_int_equal(store_load(&store, nw_rank_state(&again), 0, 1, NULL), NW_E_FILE);
    assert_says("-1 ns");
    store_clear(&store);
}

/* ---- lists that another rank sent ---- */

TEST(test_entries_that_make_no_sense)
{
    enum { PARAMETERS = 100, STATISTICS = 10 };
    const nw_state_entry number = {.name = "n", .rule = NW_STATE_LIKE, .type = NW_STATE_F64};
    const nw_state_entry tensor = {
        .name = "t", .rule = NW_STATE_OWN, .type = NW_STATE_I64, .dims = 4, .shape = {2, 3, 0, 5}};
    const nw_state_entry vector = {.name = "v",
                                   .rule = NW_STATE_RANGE,
                                   .type = NW_STATE_F32,
                                   .dims = 1,
                                   .shape = {40},
                                   .along = NW_ALONG_PARAMETERS,
                                   .first = 60};
    nw_state_entry e[24];
    int n = 0;
    ok(nw_state_check(&number, 3, PARAMETERS, STATISTICS));
    ok(nw_state_check(&tensor, 3, PARAMETERS, STATISTICS));
    ok(nw_state_check(&vector, 3, PARAMETERS, STATISTICS));
#define WRONG(base, change) (e[n] = (base), e[n].change, n++)
    WRONG(number, name[0] = 0);
    WRONG(number, name[0] = ' ');
    WRONG(number, name[0] = (char)0xc3);
    e[n] = number;
    memset(e[n++].name, 'x', NW_STATE_NAME); /* without an end */
    WRONG(number, rule = (nw_state_rule)(NW_STATE_REFUSED + 1));
    WRONG(number, rule = (nw_state_rule)-1);
    WRONG(number, type = (nw_state_type)4);
    WRONG(number, dims = -1);
    WRONG(number, dims = NW_STATE_DIMS + 1);
    WRONG(number, along = (nw_state_along)3);
    WRONG(number, rule = NW_STATE_RANGE); /* of what? */
    WRONG(number, along = NW_ALONG_STATISTICS);
    WRONG(tensor, shape[1] = -1);
    WRONG(tensor, shape[3] = -1); /* behind a dimension of 0 */
    WRONG(tensor, shape[2] = INT64_MAX);
    WRONG(tensor, shape[2] = INT64_MAX / 240 + 1);
    WRONG(vector, first = 61);
    WRONG(vector, first = SIZE_MAX);
    WRONG(vector, first = SIZE_MAX - 39);
    WRONG(vector, shape[0] = 41);
    WRONG(vector, shape[0] = -1);
    WRONG(vector, type = NW_STATE_F64);
    WRONG(vector, dims = 2);
    WRONG(vector, along = NW_ALONG_STATISTICS);
    assert_true(n <= 24);
    for (int i = 0; i < n; i++)
        if (nw_state_check(&e[i], 3, PARAMETERS, STATISTICS) != NW_E_MESSAGE)
            fail_msg("entry %d is accepted", i);
        else
            assert_says("rank 3 lists ");
}

/* ---- memory ---- */

TEST(test_memory_ends)
{
    state_store store = {0};
    int failed = 0;
    save_world(&store, 3);
    for (int64_t allowed = 0;; allowed++) {
        member m = {0};
        cut(&m, 0, 2);
        left = allowed;
        nw_status status = store_load(&store, owner_of(&m), 0, 2, NULL);
        left = INT64_MAX;
        if (status == NW_OK) break;
        assert_int_equal(status, NW_E_MEMORY);
        failed++;
    }
    assert_true(failed >= 4); /* two lists, and sums of tensors and of numbers */
    store_clear(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_in_every_world),
        cmocka_unit_test(test_what_is_delivered_goes_to_its_place),
        cmocka_unit_test(test_what_cannot_be_continued_is_refused),
        cmocka_unit_test(test_what_is_lost_is_named),
        cmocka_unit_test(test_members_of_which_nothing_was_saved),
        cmocka_unit_test(test_what_is_skipped_stays),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_other_types_and_numbers_that_make_no_sense),
        cmocka_unit_test(test_means_of_integers_are_not_delivered),
        cmocka_unit_test(test_a_rank_lists_machine_worker_and_time),
        cmocka_unit_test(test_entries_that_make_no_sense),
        cmocka_unit_test(test_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
