/*
 * test_roles.c - roles.h, by all small worlds: every rank has one role, rows and columns divide the ranks among them,
 * groups ascend, and everybody finds itself in its own.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "net/roles.h"

enum { MOST = 64 };
#define TEST(name) static void name(void **state __attribute__((unused)))

static void check_group(nw_group group, int rank)
{
    for (int i = 1; i < group.count; i++) assert_true(group.ranks[i - 1] < group.ranks[i]);
    assert_true(group.me >= 0 && group.me < group.count);
    assert_int_equal(group.ranks[group.me], rank);
    assert_int_equal(nw_group_find(&group, rank), group.me);
}

/* All members of a group have the same one. */
static void check_agreed(const nw_roles *r, nw_group (*find)(const nw_roles *, int), nw_group group)
{
    for (int i = 0; i < group.count; i++) {
        nw_group theirs = find(r, group.ranks[i]);
        assert_int_equal(theirs.count, group.count);
        assert_int_equal(theirs.me, i);
        assert_memory_equal(theirs.ranks, group.ranks, (size_t)group.count * sizeof *group.ranks);
    }
}

static void check_rank(const nw_roles *r, int rank)
{
    nw_duty duty = nw_roles_of(r, rank);
    nw_group row = nw_roles_row(r, rank), column = nw_roles_column(r, rank);
    assert_int_equal((duty.server >= 0) + (duty.replica >= 0) + (duty.evaluator >= 0), 1);
    assert_int_equal(duty.stage >= 0, duty.evaluator < 0);
    assert_int_equal(row.count, duty.replica >= 0 ? r->stages : 0);
    assert_int_equal(column.count, duty.stage >= 0 ? r->servers / r->stages + r->replicas : 0);
    if (row.count > 0) {
        check_group(row, rank);
        check_agreed(r, nw_roles_row, row);
        for (int i = 0; i < row.count; i++) {
            nw_duty other = nw_roles_of(r, row.ranks[i]);
            assert_true(other.replica == duty.replica && other.stage == i);
        }
    }
    if (column.count > 0) {
        check_group(column, rank);
        check_agreed(r, nw_roles_column, column);
        for (int i = 0, servers = r->servers / r->stages; i < column.count; i++) {
            nw_duty other = nw_roles_of(r, column.ranks[i]);
            assert_int_equal(other.stage, duty.stage);
            assert_int_equal(other.replica, i < servers ? -1 : i - servers);
        }
    }
}

static void check_world(int servers, int replicas, int stages, int evaluators)
{
    nw_roles r;
    int computing[MOST][MOST] = {{0}}, serving[MOST] = {0}, evaluating[MOST] = {0};
    assert_int_equal(nw_roles_make(&r, servers, replicas, stages, evaluators), NW_OK);
    int world = nw_roles_world(&r);
    assert_int_equal(world, servers + replicas * stages + evaluators);
    for (int rank = 0; rank < world; rank++) {
        nw_duty duty = nw_roles_of(&r, rank);
        check_rank(&r, rank);
        if (duty.server >= 0) serving[duty.server]++;
        if (duty.replica >= 0) computing[duty.replica][duty.stage]++;
        if (duty.evaluator >= 0) evaluating[duty.evaluator]++;
        assert_int_equal(duty.server >= 0, rank < servers); /* these are the first ranks, whatever else there is */
    }
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(serving[i], i < servers);
        assert_int_equal(evaluating[i], i < evaluators);
        for (int p = 0; p < MOST; p++) assert_int_equal(computing[i][p], i < replicas && p < stages);
    }
    nw_roles_free(&r);
}

TEST(every_small_world)
{
    for (int servers = 0; servers <= 6; servers++)
        for (int replicas = 1; replicas <= 4; replicas++)
            for (int stages = 1; stages <= 4; stages++)
                for (int evaluators = 0; evaluators <= 2; evaluators++)
                    if (servers % stages == 0) check_world(servers, replicas, stages, evaluators);
}

/* The picture of roles.h. */
TEST(a_world_of_three_stages)
{
    static const uint16_t row[] = {9, 10, 11}, column[] = {2, 3, 7, 10};
    nw_roles r;
    assert_int_equal(nw_roles_make(&r, 6, 2, 3, 1), NW_OK);
    assert_int_equal(nw_roles_world(&r), 13);
    assert_memory_equal(nw_roles_row(&r, 10).ranks, row, sizeof row);
    assert_memory_equal(nw_roles_column(&r, 10).ranks, column, sizeof column);
    assert_int_equal(nw_roles_row(&r, 10).me, 1);
    assert_int_equal(nw_roles_column(&r, 10).me, 3);
    nw_roles_free(&r);
}

/* With one stage, everybody who does not evaluate is in one group, in the order of ranks. */
TEST(a_world_of_one_stage)
{
    nw_roles r;
    assert_int_equal(nw_roles_make(&r, 2, 5, 1, 1), NW_OK);
    for (int rank = 0; rank < 7; rank++) {
        nw_group column = nw_roles_column(&r, rank);
        assert_true(column.count == 7 && column.me == rank);
        for (int i = 0; i < 7; i++) assert_int_equal(column.ranks[i], i);
    }
    nw_roles_free(&r);
}

TEST(worlds_that_cannot_be)
{
    nw_roles r;
    assert_int_equal(nw_roles_make(&r, 3, 0, 1, 0), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "3 servers in a world of 3 ranks leave nobody to compute"));
    assert_int_equal(nw_roles_make(&r, 0, 1, 0, 0), NW_E_ARGUMENT);
    assert_int_equal(nw_roles_make(&r, 4, 2, 3, 0), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "4 servers cannot be divided among 3 stages"));
    nw_roles_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_world),
        cmocka_unit_test(a_world_of_three_stages),
        cmocka_unit_test(a_world_of_one_stage),
        cmocka_unit_test(worlds_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
