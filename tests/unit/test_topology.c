/*
 * test_topology.c - graphs of members: the published constants, closed forms against LAPACK, draws by weight, matchings
 * that every member agrees on and that have every edge, members that leave, files, and memory that ends.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "support/memory_that_ends.h"
#include "support/own_folder.h"
#include "topology/topology_private.h"

#include <math.h>
#include <stdio.h>

enum { MOST = 128 };

static const char *const all_names[] = {"complete", "cycle", "exponential", "torus", "star", "random-regular"};
enum { ALL = sizeof all_names / sizeof *all_names };

static nw_graph *make(const char *name, int n)
{
    nw_graph *g;
    nw_status status = nw_graph_make(&g, name, n, 7);
    if (status != NW_OK) fail_msg("%s of %d: %s", name, n, nw_error_message());
    return g;
}

static void expect(const char *what, int n, double is, double wanted, double relative)
{
    if (!(fabs(is - wanted) <= relative * fabs(wanted))) fail_msg("%s, n = %d: %.10g, not %.10g", what, n, is, wanted);
}

/* ---- constants ---- */

static void check_row(const char *name, int n, double chi1, double chi2, double eta, double alpha)
{
    nw_graph *g = make(name, n);
    double one, two;
    for (int rate = 1; rate <= 2; rate++) {
        assert_int_equal(nw_graph_constants(g, rate, &one, &two), NW_OK);
        assert_true(fabs(rate * one - chi1) < 6e-5 && fabs(rate * two - chi2) < 6e-5);
        assert_true(fabs(1 / (2 * sqrt(one * two)) / rate - eta) < 6e-6);
        assert_true(fabs(sqrt(one / two) / 2 - alpha) < 6e-5);
    }
    nw_graph_free(g);
}

TEST(test_published_constants)
{
    static const struct {
        int n;
        double cycle[4], exponential[4], complete[2]; /* chi1, chi2, eta, alpha; chi and eta */
    } table[] = {
        {2, {0.5, 0.5, 1, 0.5}, {0.5, 0.5, 1, 0.5}, {0.5, 1}},
        {4, {1, 0.75, 0.57735, 0.5774}, {1, 0.8333, 0.54772, 0.5477}, {0.75, 0.66667}},
        {8, {3.4142, 0.8750, 0.28928, 0.9877}, {1.5, 0.9637, 0.41586, 0.6238}, {0.875, 0.57143}},
        {16, {13.1371, 0.9375, 0.14247, 1.8717}, {2, 1.0097, 0.35186, 0.7037}, {0.9375, 0.53333}},
        {32, {52.0434, 0.9688, 0.07042, 3.6648}, {2.5, 1.0229, 0.31266, 0.7817}, {0.9688, 0.51613}},
        {64, {207.6725, 0.9844, 0.03497, 7.2624}, {3, 1.0241, 0.28526, 0.8558}, {0.9844, 0.50794}},
        {6, {2, 0.8333, 0.3873, 0.7746}, {1, 0.8333, 0.54772, 0.5477}, {5.0 / 6, 0.6}},
        {12, {7.4641, 0.9167, 0.19115, 1.4268}, {1.5, 0.9275, 0.42391, 0.6359}, {11.0 / 12, 6.0 / 11}},
        {20, {20.4317, 0.95, 0.11349, 2.3188}, {2, 0.9811, 0.35694, 0.7139}, {0.95, 10.0 / 19}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const double *c = table[i].cycle, *e = table[i].exponential, *k = table[i].complete;
        check_row("cycle", table[i].n, c[0], c[1], c[2], c[3]);
        check_row("exponential", table[i].n, e[0], e[1], e[2], e[3]);
        check_row("complete", table[i].n, k[0], k[0], k[1], 0.5);
    }
}

static void against_solver(nw_graph *g, double rate)
{
    double one, two, solved_one, solved_two;
    assert_int_equal(nw_graph_constants(g, rate, &one, &two), NW_OK);
    assert_int_equal(nw_graph_solve(g, rate, &solved_one, &solved_two), NW_OK);
    expect(nw_graph_name(g), nw_graph_present(g), one, solved_one, 1e-10);
    expect(nw_graph_name(g), nw_graph_present(g), two, solved_two, 1e-10);
}

TEST(test_closed_forms)
{
    if (!nw_graph_has_solver()) skip();
    for (int k = 0; k < ALL - 1; k++)
        for (int n = 2; n < 80; n += n < 24 ? 1 : 7) {
            nw_graph *g = make(all_names[k], n);
            assert_true(nw_graph_computed(g));
            against_solver(g, 1);
            against_solver(g, 0.3);
            if (nw_graph_closes(g) && n > 4) { /* the same of those who stay */
                assert_int_equal(nw_graph_drop(g, n / 2), NW_OK);
                assert_int_equal(nw_graph_drop(g, 0), NW_OK);
                against_solver(g, 1);
            }
            nw_graph_free(g);
        }
}

/* A path whose pairs meet at rates a and b: eigenvalues a + b -+ sqrt(a^2 + b^2 - a b), resistances 1/a and 1/b. */
TEST(test_solver_by_hand)
{
    FILE *file = fopen("path", "w");
    fputs("# a path\n0 1 3\n\n  2\t1 1 # the weak end\r\n", file);
    fclose(file);
    nw_graph *g = make("path", 3);
    int to[3];
    double rate[3], a = (1 + 0.75) / 2, b = (0.25 + 1) / 2, one, two;
    assert_int_equal(nw_graph_neighbours(g, 1, to, rate), 2);
    assert_true(to[0] == 0 && to[1] == 2);
    expect("rate", 3, rate[0], a, 1e-15);
    expect("rate", 3, rate[1], b, 1e-15);
    nw_status status = nw_graph_constants(g, 2, &one, &two);
    if (nw_graph_has_solver()) {
        assert_int_equal(status, NW_OK);
        expect("chi1", 3, one, 1 / (2 * (a + b - sqrt(a * a + b * b - a * b))), 1e-12);
        expect("chi2", 3, two, 1 / (2 * b) / 2, 1e-12);
    } else {
        assert_int_equal(status, NW_E_UNSUPPORTED);
        assert_non_null(strstr(nw_error_message(), "liblapack-dev"));
    }
    assert_int_equal(nw_graph_constants(g, 0, &one, &two), NW_E_ARGUMENT);
    assert_int_equal(nw_graph_constants(g, NAN, &one, &two), NW_E_ARGUMENT);
    nw_graph_free(g);
}

/* ---- neighbours ---- */

static bool in_one_piece(const nw_graph *g)
{
    bool seen[MOST] = {false};
    int stack[MOST], height = 0, reached = 0, to[MOST];
    for (int i = 0; i < nw_graph_members(g) && !height; i++)
        if (nw_graph_has(g, i)) seen[stack[height++] = i] = true;
    while (height) {
        int count = nw_graph_neighbours(g, stack[--height], to, NULL);
        reached++;
        for (int k = 0; k < count; k++)
            if (!seen[to[k]]) seen[stack[height++] = to[k]] = true;
    }
    return reached == nw_graph_present(g);
}

/* Rows in order, pairs that meet at one rate, a mean member that meets at rate 1; draws fall on neighbours by weight. */
static void check_rows(const nw_graph *g)
{
    int n = nw_graph_members(g);
    double(*rates)[MOST] = calloc(MOST, sizeof *rates), total = 0;
    for (int i = 0; i < n; i++) {
        int to[MOST];
        double rate[MOST];
        int count = nw_graph_neighbours(g, i, to, rate);
        assert_int_equal(count, nw_graph_neighbours(g, i, NULL, NULL));
        for (int k = 0; k < count; k++) {
            assert_true(nw_graph_has(g, i) && nw_graph_has(g, to[k]) && to[k] != i);
            assert_true(k == 0 || to[k] > to[k - 1]);
            rates[i][to[k]] = rate[k];
            total += rate[k];
        }
    }
    if (nw_graph_present(g) > 1) expect(nw_graph_name(g), n, total, nw_graph_present(g), 1e-12);
    enum { DRAWS = 5040 };
    double(*shares)[MOST] = calloc(MOST, sizeof *shares);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < DRAWS; k++) {
            int to = nw_graph_draw(g, i, ((float)k + 0.5f) / DRAWS);
            if (nw_graph_present(g) < 2 || !nw_graph_has(g, i)) {
                assert_int_equal(to, -1);
                continue;
            }
            assert_true(rates[i][to] > 0);
            shares[i][to] += 1.0 / DRAWS;
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (fabs(rates[i][j] - rates[j][i]) > 1e-15 || fabs((shares[i][j] + shares[j][i]) / 2 - rates[i][j]) > 3e-4)
                fail_msg("%s of %d: %d and %d meet at %g and %g, and draw each other %g, %g", nw_graph_name(g), n, i, j,
                         rates[i][j], rates[j][i], shares[i][j], shares[j][i]);
    free(rates);
    free(shares);
    assert_true(in_one_piece(g));
}

TEST(test_neighbours)
{
    for (int k = 0; k < ALL; k++)
        for (int n = 1; n < 40; n++) {
            nw_graph *g = make(all_names[k], n);
            check_rows(g);
            assert_string_equal(nw_graph_name(g), all_names[k]);
            nw_graph_free(g);
        }
    nw_graph *g = make("exponential", 16);
    int to[MOST];
    double rate[MOST];
    assert_int_equal(nw_graph_neighbours(g, 3, to, rate), 7); /* the one opposite is listed twice */
    static const int wanted[] = {1, 2, 4, 5, 7, 11, 15};
    for (int k = 0; k < 7; k++) {
        assert_int_equal(to[k], wanted[k]);
        expect("rate", 16, rate[k], wanted[k] == 11 ? 0.25 : 0.125, 1e-15);
    }
    nw_graph_free(g);
    g = make("torus", 12); /* 3 x 4 */
    assert_int_equal(nw_graph_neighbours(g, 0, to, rate), 4);
    assert_true(to[0] == 1 && to[1] == 3 && to[2] == 4 && to[3] == 8);
    nw_graph_free(g);
    g = make("star", 9);
    assert_int_equal(nw_graph_neighbours(g, 0, to, rate), 8);
    expect("rate", 9, 8 * rate[0], 4.5, 1e-15); /* the hub's */
    nw_graph_free(g);
}

TEST(test_random_regular)
{
    static const struct {
        const char *name;
        int n, degree;
    } good[] = {{"random-regular", 30, 4},  {"random-regular", 4, 3},    {"random-regular", 2, 1},
                {"random-regular:2", 9, 2}, {"random-regular:3", 8, 3},  {"random-regular:7", 8, 7},
                {"random-regular:6", 7, 6}, {"random-regular:5", 64, 5}, {"random-regular:1", 2, 1}};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        nw_graph *g = make(good[k].name, good[k].n);
        check_rows(g);
        for (int i = 0; i < good[k].n; i++) assert_int_equal(nw_graph_neighbours(g, i, NULL, NULL), good[k].degree);
        nw_graph_free(g);
    }
    static const struct {
        const char *name;
        int n;
        const char *says;
    } bad[] = {{"random-regular:3", 9, "odd"},    {"random-regular:8", 8, "1 to 7"},
               {"random-regular:0", 8, "1 to 7"}, {"random-regular:1", 8, "2 or more"},
               {"random-regular:x", 8, "colon"},  {"random-regular:", 8, "colon"},
               {"random-regular:4x", 8, "colon"}, {"cycle:2", 8, "'cycle'"}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        nw_graph *g;
        assert_int_equal(nw_graph_make(&g, bad[k].name, bad[k].n, 1), NW_E_ARGUMENT);
        assert_non_null(strstr(nw_error_message(), bad[k].says));
        assert_null(g);
    }
    /* The seed decides, and nothing else. */
    int differs = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        nw_graph *a, *b, *c;
        assert_int_equal(nw_graph_make(&a, "random-regular", 20, seed), NW_OK);
        assert_int_equal(nw_graph_make(&b, "random-regular", 20, seed), NW_OK);
        assert_int_equal(nw_graph_make(&c, "random-regular", 20, seed + 1), NW_OK);
        for (int i = 0; i < 20; i++) {
            int x[20], y[20], z[20];
            assert_int_equal(nw_graph_neighbours(a, i, x, NULL), 4);
            nw_graph_neighbours(b, i, y, NULL);
            nw_graph_neighbours(c, i, z, NULL);
            assert_memory_equal(x, y, 4 * sizeof *x);
            differs += memcmp(x, z, 4 * sizeof *x) != 0;
        }
        nw_graph_free(a);
        nw_graph_free(b);
        nw_graph_free(c);
    }
    assert_true(differs > 40);
}

/* ---- matchings ---- */

static bool are_neighbours(const nw_graph *g, int a, int b)
{
    int to[MOST], count = nw_graph_neighbours(g, a, to, NULL);
    for (int k = 0; k < count; k++)
        if (to[k] == b) return true;
    return false;
}

/* Gives the most members that pause in a round. */
static int check_matchings(nw_graph *g, int rounds)
{
    int n = nw_graph_members(g), most = 0, edges = 0, met = 0;
    bool(*seen)[MOST] = calloc(MOST, sizeof *seen);
    for (int round = 0; round < rounds; round++) {
        int mate[MOST], paused = 0;
        for (int i = 0; i < n; i++) mate[i] = nw_graph_partner(g, 5, round, i);
        for (int i = 0; i < n; i++) {
            paused += mate[i] < 0 && nw_graph_has(g, i);
            if (mate[i] < 0) continue;
            if (mate[mate[i]] != i || !are_neighbours(g, i, mate[i]))
                fail_msg("%s of %d, round %d: %d meets %d, which meets %d", nw_graph_name(g), n, round, i, mate[i],
                         mate[mate[i]]);
            seen[i][mate[i]] = true;
        }
        if (paused > most) most = paused;
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) edges += are_neighbours(g, i, j), met += seen[i][j];
    if (edges != met) fail_msg("%s of %d: %d of %d edges have met", nw_graph_name(g), n, met, edges);
    free(seen);
    return most;
}

TEST(test_matchings)
{
    for (int n = 1; n < 34; n++) {
        nw_graph *g = make("cycle", n);
        assert_int_equal(check_matchings(g, n % 2 ? n : 2), n % 2);
        nw_graph_free(g);
        g = make("complete", n);
        assert_int_equal(check_matchings(g, n), n % 2);
        nw_graph_free(g);
        g = make("star", n);
        check_matchings(g, n);
        nw_graph_free(g);
        g = make("torus", n);
        int rows = g->rows, columns = g->columns;
        int pauses = check_matchings(g, 2 * n);
        assert_int_equal(pauses > 0, rows % 2 || columns % 2 ? n % 2 || rows > 1 : 0);
        nw_graph_free(g);
        g = make("exponential", n);
        pauses = check_matchings(g, 6 * n);
        if ((n & (n - 1)) == 0 && n > 1) assert_int_equal(pauses, 0);
        nw_graph_free(g);
        g = make("random-regular", n);
        check_matchings(g, 200);
        nw_graph_free(g);
    }
}

/* Slot (k, f): r meets r + 2^k if floor(r / 2^k) + f is even, else r - 2^k. */
TEST(test_exponential_matchings)
{
    for (int p = 1; p <= 6; p++) {
        int n = 1 << p;
        nw_graph *g = make("exponential", n);
        for (int round = 0; round < 2 * p; round++)
            for (int r = 0; r < n; r++) {
                int k = round % p, f = round / p, up = ((r >> k) + f) % 2 == 0;
                assert_int_equal(nw_graph_partner(g, 1, round, r), (r + (up ? 1 << k : n - (1 << k))) % n);
            }
        nw_graph_free(g);
    }
}

/* Whoever asks when, of whichever round before, hears the same; a seed has its own. */
TEST(test_matchings_are_pure)
{
    for (int k = 0; k < ALL; k++) {
        nw_graph *a = make(all_names[k], 24), *b = make(all_names[k], 24);
        int differs = 0;
        for (int round = 0; round < 60; round++)
            for (int i = 0; i < 24; i++) {
                int there = nw_graph_partner(a, 9, round, i);
                nw_graph_partner(b, 9, (round * 7 + i) % 60, 0);
                differs += nw_graph_partner(b, 10, round, i) != there;
                assert_int_equal(nw_graph_partner(b, 9, round, i), there);
            }
        bool drawn = strcmp(all_names[k], "complete") == 0 || strcmp(all_names[k], "random-regular") == 0;
        assert_int_equal(differs > 0, drawn);
        nw_graph_free(a);
        nw_graph_free(b);
    }
}

/* Maximal: no edge whose two ends pause. And no edge is favoured by where it stands. */
TEST(test_random_matchings)
{
    nw_graph *g = make("random-regular:3", 16);
    enum { ROUNDS = 6000 };
    int times[16][16] = {{0}};
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 16; i++) {
            int mate = nw_graph_partner(g, 3, round, i);
            if (mate >= 0) {
                times[i][mate]++;
                continue;
            }
            int to[16], count = nw_graph_neighbours(g, i, to, NULL);
            for (int k = 0; k < count; k++) assert_true(nw_graph_partner(g, 3, round, to[k]) >= 0);
        }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            if (are_neighbours(g, i, j)) assert_in_range(times[i][j], ROUNDS / 5, ROUNDS / 2);
    nw_graph_free(g);
}

TEST(test_schedules)
{
    nw_graph *g = make("cycle", 6);
    static const int even[] = {1, 3, 1}, odd[] = {4, 2, 4};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(nw_graph_scheduled(g, 2, k), even[k]);
        assert_int_equal(nw_graph_scheduled(g, 3, k), odd[k]);
    }
    nw_graph_free(g);
    g = make("exponential", 16);
    static const int of_5[] = {6, 7, 9, 13, 4, 3, 1, 13, 6}, of_4[] = {3, 2, 0, 12, 5, 6, 8, 12, 3};
    for (int k = 0; k < 9; k++) {
        assert_int_equal(nw_graph_scheduled(g, 5, k), of_5[k]);
        assert_int_equal(nw_graph_scheduled(g, 4, k), of_4[k]);
    }
    nw_graph_free(g);
    g = make("complete", 4);
    assert_int_equal(nw_graph_scheduled(g, 1, 0), -1);
    nw_graph_free(g);
    g = make("random-regular", 20);
    int to[20];
    assert_int_equal(nw_graph_neighbours(g, 3, to, NULL), 4);
    for (int64_t k = 0; k < 9; k++)
        assert_int_equal(nw_graph_scheduled(g, 3, INT64_MAX / 4 * 4 - 4 + k % 4), to[k % 4]);
    nw_graph_free(g);
    g = make("star", 5);
    for (int k = 0; k < 6; k++) {
        assert_int_equal(nw_graph_scheduled(g, 0, k), 1 + k % 4);
        assert_int_equal(nw_graph_scheduled(g, 3, k), 0);
    }
    nw_graph_free(g);
}

/* ---- members that leave ---- */

static void drop(nw_graph *g, int member) { assert_int_equal(nw_graph_drop(g, member), NW_OK); }

TEST(test_leaving)
{
    for (int k = 0; k < ALL; k++)
        for (int n = 2; n < 20; n += 3) {
            nw_graph *g = make(all_names[k], n);
            for (int gone = 0; gone < n; gone++) {
                int leaver = gone * 7 % n; /* everybody, as 7 divides none of these n but 14 ... */
                while (!nw_graph_has(g, leaver)) leaver = (leaver + 1) % n;
                drop(g, leaver);
                drop(g, leaver); /* no matter */
                assert_int_equal(nw_graph_present(g), n - gone - 1);
                assert_false(nw_graph_has(g, leaver));
                assert_int_equal(nw_graph_partner(g, 5, 0, leaver), -1);
                assert_int_equal(nw_graph_scheduled(g, leaver, 0), -1);
                if (gone == n - 1) break;
                check_rows(g);
                check_matchings(g, 200);
                for (int i = 0; i < n; i++) {
                    int to = nw_graph_scheduled(g, i, 3);
                    if (to >= 0) assert_true(are_neighbours(g, i, to));
                }
                if (nw_graph_has_solver() && nw_graph_present(g) > 1) against_solver(g, 1);
            }
            assert_int_equal(nw_graph_neighbours(g, 0, NULL, NULL), 0);
            nw_graph_free(g);
        }
}

/* The one left alone has constants without consequence. */
TEST(test_one_alone)
{
    for (int k = 0; k < ALL; k++) {
        nw_graph *g = make(all_names[k], 1);
        double one, two;
        assert_int_equal(nw_graph_constants(g, 0.5, &one, &two), NW_OK);
        assert_true(one == 2 && two == 2);
        assert_int_equal(nw_graph_partner(g, 0, 3, 0), -1);
        assert_int_equal(nw_graph_scheduled(g, 0, 3), -1);
        nw_graph_free(g);
    }
}

TEST(test_gaps_close)
{
    int to[MOST];
    nw_graph *g = make("cycle", 6);
    drop(g, 3);
    drop(g, 5);
    assert_int_equal(nw_graph_neighbours(g, 4, to, NULL), 2);
    assert_true(to[0] == 0 && to[1] == 2);
    nw_graph_free(g);

    g = make("star", 6); /* without its hub it is a cycle */
    drop(g, 0);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(nw_graph_neighbours(g, i, to, NULL), 2);
        assert_true(are_neighbours(g, i, i % 5 + 1));
    }
    if (nw_graph_has_solver()) {
        double one, two;
        assert_int_equal(nw_graph_constants(g, 1, &one, &two), NW_OK);
        expect("chi1", 5, one, 1 / (1 - cos(2 * M_PI / 5)), 1e-10);
        expect("chi2", 5, two, 0.8, 1e-10);
    }
    nw_graph_free(g);

    FILE *file = fopen("two halves", "w"); /* triangles that meet in member 0 */
    fputs("0 1 2\n1 2\n0 2 4\n0 3\n3 4\n4 0 5\n", file);
    fclose(file);
    g = make("two halves", 5);
    drop(g, 0);
    static const double weights[5][5] = {{0}, {0, 0, 4, 0, 3}, {0, 4, 0, 3, 0}, {0, 0, 3, 0, 4}, {0, 3, 0, 4, 0}};
    for (int i = 1; i < 5; i++) { /* 1-2-3-4-1 with the mean of 2, 4, 1, 5, and 1-2, 3-4 beside it */
        double rate[MOST];
        assert_int_equal(nw_graph_neighbours(g, i, to, rate), 2);
        for (int k = 0; k < 2; k++) expect("rate", 5, rate[k], weights[i][to[k]] / 7, 1e-12);
    }
    nw_graph_free(g);
}

/* ---- members that are away for a while ---- */

static void same_graph(nw_graph *a, nw_graph *b)
{
    int n = nw_graph_members(a);
    assert_int_equal(nw_graph_present(a), nw_graph_present(b));
    for (int i = 0; i < n; i++) {
        int x[MOST] = {0}, y[MOST] = {0};
        double rx[MOST] = {0}, ry[MOST] = {0};
        assert_int_equal(nw_graph_has(a, i), nw_graph_has(b, i));
        assert_int_equal(nw_graph_neighbours(a, i, x, rx), nw_graph_neighbours(b, i, y, ry));
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(rx, ry, sizeof rx);
        for (int round = 0; round < 12; round++) {
            assert_int_equal(nw_graph_partner(a, 1, round, i), nw_graph_partner(b, 1, round, i));
            assert_int_equal(nw_graph_scheduled(a, i, round), nw_graph_scheduled(b, i, round));
            assert_int_equal(nw_graph_draw(a, i, (float)round / 12), nw_graph_draw(b, i, (float)round / 12));
        }
    }
}

/* The twin: a matrix of weights, from which rows and columns are taken. */
typedef struct twin {
    int n;
    double w[MOST][MOST];
    bool away[MOST];
} twin;

static void twin_begin(twin *t, const nw_graph *whole)
{
    *t = (twin){.n = nw_graph_members(whole)};
    for (int e = 0; e < whole->base.count; e++) {
        const nw_edge *edge = &whole->base.at[e];
        t->w[edge->a][edge->b] = t->w[edge->b][edge->a] = edge->weight;
    }
    for (int i = 0; i < t->n && nw_graph_computed(whole); i++)
        for (int k = 0; k < nw_graph_degree(whole, i); k++) t->w[i][nw_graph_listed(whole, i, k)]++;
}

static bool twin_in_one_piece(const twin *t)
{
    bool seen[MOST] = {false}, more = true;
    for (int i = 0, first = 1; i < t->n && first; i++)
        if (!t->away[i]) seen[i] = true, first = 0;
    while (more) {
        more = false;
        for (int i = 0; i < t->n; i++)
            for (int j = 0; j < t->n && seen[i]; j++)
                if (t->w[i][j] > 0 && !seen[j]) seen[j] = more = true;
    }
    for (int i = 0; i < t->n; i++)
        if (!t->away[i] && !seen[i]) return false;
    return true;
}

static void twin_lose(twin *t, int member)
{
    int around[MOST], count = 0;
    double sum = 0;
    t->away[member] = true;
    for (int j = 0; j < t->n; j++) {
        if (t->w[member][j] > 0) around[count++] = j, sum += t->w[member][j];
        t->w[member][j] = t->w[j][member] = 0;
    }
    if (twin_in_one_piece(t)) return;
    for (int i = 0; i < count && (i < count - 1 || count > 2); i++) {
        int a = around[i], b = around[(i + 1) % count];
        t->w[a][b] = t->w[b][a] = t->w[a][b] + sum / count;
    }
}

static void against_twin(const twin *t, const nw_graph *g)
{
    for (int i = 0; i < t->n; i++) {
        int to[MOST], count = nw_graph_neighbours(g, i, to, NULL), k = 0;
        double rates[MOST], own = 0, others;
        nw_graph_neighbours(g, i, NULL, rates);
        for (int j = 0; j < t->n; j++) own += t->w[i][j];
        for (int j = 0; j < t->n; j++) {
            if (!(t->w[i][j] > 0)) continue;
            others = 0;
            for (int l = 0; l < t->n; l++) others += t->w[j][l];
            assert_true(k < count && to[k] == j);
            expect(nw_graph_name(g), t->n, rates[k++], t->w[i][j] * (1 / own + 1 / others) / 2, 1e-12);
        }
        assert_int_equal(k, count);
    }
}

/* The members of `away` leave one by one, in an order drawn from the seed. */
static nw_graph *leave_one_by_one(const char *name, int n, const bool *away, uint64_t seed)
{
    uint32_t order[MOST];
    nw_graph *g = make(name, n);
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 1, 0);
    nw_rng_shuffle(&rng, order, (uint32_t)n);
    for (int i = 0; i < n; i++)
        if (away[order[i]]) drop(g, (int)order[i]);
    return g;
}

/* Any members, of graphs of every kind: what is left is the twin's, whatever order they left in, and in one piece. */
TEST(test_any_members_are_away)
{
    static twin t;
    FILE *file = fopen("tree", "w"); /* falls apart wherever it is cut */
    for (int i = 1; i < 24; i++) fprintf(file, "%d %d %d\n", i, (i - 1) / 2, 1 + i % 3);
    fclose(file);
    for (uint64_t seed = 0; seed < 250; seed++) {
        const char *name = seed % (ALL + 1) < ALL ? all_names[seed % (ALL + 1)] : "tree";
        nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 0, 0);
        int n = strcmp(name, "tree") == 0 ? 24 : 2 + (int)nw_rng_below(&rng, 29), gone = 0;
        bool away[MOST] = {false};
        for (int i = 0; i < n; i++) gone += away[i] = nw_rng_below(&rng, 4) < seed % 4;
        if (gone == n) away[0] = false;
        nw_graph *whole = make(name, n), *rest, *again;
        assert_int_equal(nw_graph_without(whole, away, &rest), NW_OK);
        assert_true((rest == whole) == (gone == 0));
        assert_true(in_one_piece(rest));
        check_rows(rest);
        if (!nw_graph_closes(whole)) {
            twin_begin(&t, whole);
            for (int i = 0; i < n; i++)
                if (away[i]) twin_lose(&t, i);
            against_twin(&t, rest);
        }
        for (uint64_t order = 0; order < 3; order++) {
            nw_graph *g = leave_one_by_one(name, n, away, order);
            same_graph(rest, g);
            nw_graph_free(g);
        }
        assert_int_equal(nw_graph_without(whole, away, &again), NW_OK);
        assert_ptr_equal(rest, again);
        nw_graph_release(again);
        nw_graph_release(rest);
        nw_graph_free(whole);
    }
}

/* They come back, and have the edges that they had; several who ask share one graph and its constants. */
TEST(test_members_come_back)
{
    for (int k = 0; k < ALL; k++) {
        bool away[18] = {false};
        nw_graph *whole = make(all_names[k], 18), *fresh = make(all_names[k], 18), *rest[3], *one;
        static const int set[] = {4, 0, 11};
        for (int i = 0; i < 3; i++) {
            away[set[i]] = true;
            assert_int_equal(nw_graph_without(whole, away, &rest[i]), NW_OK);
        }
        for (int i = 2; i > 0; i--) {
            away[set[i]] = false;
            assert_int_equal(nw_graph_without(whole, away, &one), NW_OK);
            assert_ptr_equal(one, rest[i - 1]);
            nw_graph_release(one);
            nw_graph_release(rest[i]);
        }
        double chi1, chi2;
        if (nw_graph_has_solver()) {
            against_solver(rest[0], 1);
            against_solver(rest[0], 0.3); /* known by now */
            assert_int_equal(nw_graph_constants(rest[0], 2, &chi1, &chi2), NW_OK);
        }
        same_graph(whole, fresh);
        away[4] = false;
        assert_int_equal(nw_graph_without(whole, away, &one), NW_OK);
        assert_ptr_equal(one, whole);
        nw_graph_release(one); /* no matter */
        nw_graph_release(rest[0]);
        nw_graph_release(NULL);
        assert_null(whole->rests);
        nw_graph_free(whole);
        nw_graph_free(fresh);
    }
}

/* ---- names and files ---- */

static void refused(const char *name, int n, nw_status status, const char *says)
{
    nw_graph *g;
    assert_int_equal(nw_graph_make(&g, name, n, 0), status);
    if (!strstr(nw_error_message(), says)) fail_msg("'%s' does not say '%s'", nw_error_message(), says);
    assert_null(g);
}

TEST(test_names)
{
    refused("cycel", 4, NW_E_UNKNOWN, "the nearest is 'cycle'");
    refused("ring", 4, NW_E_UNKNOWN, "exponential");
    refused("./edges", 4, NW_E_FILE, "./edges");
    refused("edges.txt", 4, NW_E_FILE, "edges.txt");
    refused("cycle", 0, NW_E_ARGUMENT, "not 0");
    refused("cycle", INT32_MAX, NW_E_ARGUMENT, "1048576");
}

TEST(test_files)
{
    static const struct {
        const char *text;
        int n;
        const char *says;
    } bad[] = {
        {"0 1\n1 x\n", 2, "line 2: 'x'"},
        {"0 1\n1 -2\n", 3, "line 2: '-2'"},
        {"0 2\n", 2, "line 1: there is no member 2: with 2 of them they are 0 to 1"},
        {"0 99999999999999999999999999999999999999999999999999\n", 2, "line 1: there is no member"},
        {"\n# x\n0\n", 2, "line 3: an edge is two members"},
        {"0 1 2 3\n", 2, "line 1: '3' is too much"},
        {"1 1\n", 2, "line 1: member 1 is no neighbour of itself"},
        {"0 1 0\n", 2, "'0' is no weight"},
        {"0 1 -1\n", 2, "'-1' is no weight"},
        {"0 1 nan\n", 2, "'nan' is no weight"},
        {"0 1 1e4\n", 2, "'1e4' is no weight"},
        {"0 1 1e999999\n", 2, "is no weight"},
        {"0 1 1.\n1 2 .5e\n", 3, "line 2: '.5e' is no weight"},
        {"0 1\n2 3\n", 4, "no path of edges leads from member 0 to member 2"},
        {"", 2, "no path"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        FILE *file = fopen("edges", "w");
        fputs(bad[k].text, file);
        fclose(file);
        refused("edges", bad[k].n, NW_E_FILE, bad[k].says);
    }
    FILE *file = fopen("edges", "w");
    fwrite("0 1\0\n", 1, 5, file);
    fclose(file);
    refused("edges", 2, NW_E_FILE, "zero byte");
    file = fopen("edges", "w");
    fputs("0 1 1.5\n1 0 .5#twice\n1 2 1e0", file);
    fclose(file);
    nw_graph *g = make("edges", 3);
    int to[3];
    double rate[3];
    check_rows(g);
    assert_int_equal(nw_graph_neighbours(g, 1, to, rate), 2);
    expect("rate", 3, rate[0], (1 + 2.0 / 3) / 2, 1e-15);
    nw_graph_free(g);
    file = fopen("none", "w");
    fclose(file);
    g = make("none", 1); /* a group of one needs no edges */
    assert_int_equal(nw_graph_draw(g, 0, 0.5f), -1);
    nw_graph_free(g);
}

/* ---- memory ---- */

TEST(test_memory_ends)
{
    static const char *const names[] = {"cycle", "random-regular", "exponential", "star", "edges"};
    FILE *file = fopen("edges", "w");
    for (int i = 1; i < 12; i++) fprintf(file, "%d %d\n", i - 1, i);
    fclose(file);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (int64_t n = 0, asked, failed = 1; failed; n++) {
            long long before = memory_alive;
            nw_graph *g;
            memory_ends_after(n);
            bool away[12] = {true, false, true};
            nw_graph *rest = NULL;
            nw_status status = nw_graph_make(&g, names[k], 12, 1), left = NW_OK;
            if (status == NW_OK) left = nw_graph_without(g, away, &rest);
            if (status == NW_OK && left == NW_OK) nw_graph_release(rest);
            if (left == NW_OK && status == NW_OK) left = nw_graph_drop(g, 0);
            failed = memory_suffices(n, &asked);
            if (status == NW_OK && left == NW_E_MEMORY) { /* nothing has changed */
                assert_true(nw_graph_has(g, 0) && nw_graph_present(g) == 12);
                check_rows(g);
                drop(g, 0);
            }
            assert_int_equal(failed, status == NW_E_MEMORY || left == NW_E_MEMORY);
            nw_graph_free(g);
            assert_int_equal(memory_alive, before);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_published_constants),
        CASE(test_closed_forms),
        CASE(test_solver_by_hand),
        CASE(test_neighbours),
        CASE(test_random_regular),
        CASE(test_matchings),
        CASE(test_exponential_matchings),
        CASE(test_matchings_are_pure),
        CASE(test_random_matchings),
        CASE(test_schedules),
        CASE(test_leaving),
        CASE(test_one_alone),
        CASE(test_gaps_close),
        CASE(test_any_members_are_away),
        CASE(test_members_come_back),
        CASE(test_names),
        CASE(test_files),
        CASE(test_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
