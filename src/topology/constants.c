/*
 * constants.c - chi1 and chi2 of a graph; see topology.h.
 *
 * A graph whose members all have the same distances to their neighbours (a circulant) has the eigenvalues
 *     e_k = rate * (1/d) sum over listed distances j of (1 - cos(2 pi k j / n)),   k = 0 .. n - 1,
 * and the resistance between members at distance j is R_j = (1/n) sum over k >= 1 of 2 (1 - cos(2 pi k j / n)) / e_k. A
 * torus is the product of two cycles: e_kl = rate * (2 - cos(2 pi k / a) - cos(2 pi l / b)) / 2. In a complete graph
 * that is chi1 = chi2 = (n - 1) / (n rate), on a cycle chi1 = 1 / (rate (1 - cos(2 pi / n))), chi2 = chi1's of the
 * complete. The pairs of a star meet at rate l = n / (2 n - 2): eigenvalues l (n - 2 times) and n l, resistances 1 / l.
 */
#include "topology/topology_private.h"

#include <math.h>

/* 1 - cos(2 pi x / n), without the difference. */
static double dip(int64_t x, int64_t n)
{
    double s = sin(M_PI * (double)(x % n) / (double)n);
    return 2 * s * s;
}

static void circulant(const nw_graph *g, double *chi1, double *chi2)
{
    int n = g->n;
    double least = INFINITY, most = 0, resistance[32] = {0};
    for (int k = 1; k < n; k++) {
        double e = 0;
        for (int j = 0; j < g->distances; j++) e += dip((int64_t)k << j, n) / g->distances;
        least = fmin(least, e);
        for (int j = 0; j < g->distances; j++) resistance[j] += 2 * dip((int64_t)k << j, n) / e / n;
    }
    for (int j = 0; j < g->distances; j++) most = fmax(most, resistance[j]);
    *chi1 = 1 / least;
    *chi2 = most / 2;
}

static void torus(const nw_graph *g, double *chi1, double *chi2)
{
    int a = g->rows, b = g->columns;
    double least = INFINITY, along[2] = {0, 0};
    for (int k = 0; k < a; k++)
        for (int l = k == 0; l < b; l++) {
            double e = (dip(k, a) + dip(l, b)) / 2;
            least = fmin(least, e);
            along[0] += 2 * dip(k, a) / e / g->n;
            along[1] += 2 * dip(l, b) / e / g->n;
        }
    *chi1 = 1 / least;
    *chi2 = fmax(along[0], along[1]) / 2;
}

static bool in_closed_form(const nw_graph *g, double *chi1, double *chi2)
{
    double m = g->present;
    if (g->present < 2) {
        *chi1 = *chi2 = 1;
        return true;
    }
    if (!nw_graph_computed(g)) return false;
    *chi2 = (m - 1) / m;
    *chi1 = g->kind == NW_CYCLE ? 1 / dip(1, g->present) : *chi2;
    if (g->kind == NW_EXPONENTIAL) circulant(g, chi1, chi2);
    if (g->kind == NW_TORUS && g->rows > 1) torus(g, chi1, chi2);
    if (g->kind == NW_TORUS && g->rows == 1) *chi1 = 1 / dip(1, g->present);
    if (g->kind == NW_STAR && g->n > 2) *chi1 = 2 * *chi2; /* 1 / l; chi2 is half of it */
    return true;
}

#if NW_HAVE_LAPACK

/* LAPACK: eigenvalues, in increasing order, and eigenvectors of a symmetric matrix. The last two are the lengths of the
 * texts, as Fortran hands them over. */
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
            const int *lwork, int *info, size_t, size_t);

bool nw_graph_has_solver(void) { return true; }

nw_status nw_graph_solve(const nw_graph *g, double rate, double *chi1, double *chi2)
{
    int m = g->present, room = 66 * m, info = 0;
    NW_AUTOFREE double *matrix = NULL;
    NW_AUTOFREE double *value = NULL;
    NW_AUTOFREE double *work = NULL;
    NW_AUTOFREE int *to = NULL;
    NW_AUTOFREE double *rates = NULL;
    NW_NEW(matrix, (size_t)m * (size_t)m, "the Laplacian of %d members", m);
    NW_NEW(value, m, "the Laplacian of %d members", m);
    NW_NEW(work, room, "the Laplacian of %d members", m);
    NW_NEW(to, g->n, "the Laplacian of %d members", m);
    NW_NEW(rates, g->n, "the Laplacian of %d members", m);
#define AT(i, j) matrix[(size_t)(i) * (size_t)m + (size_t)(j)]
    for (int i = 0; i < m; i++) {
        int count = nw_graph_neighbours(g, g->here[i], to, rates);
        for (int k = 0; k < count; k++) {
            AT(i, i) += rate * rates[k];
            AT(i, g->place[to[k]]) = -rate * rates[k];
        }
    }
    dsyev_("V", "U", &m, matrix, &m, value, work, &room, &info, 1, 1);
    NW_FAIL_IF(info, NW_E_NUMERIC, "LAPACK found no eigenvalues of the graph's Laplacian (dsyev: %d)", info);
    *chi1 = 1 / value[1]; /* value[0] is zero: the graph is in one piece */
    double most = 0;
    for (int i = 0; i < m; i++) { /* row k of the matrix is eigenvector k now */
        int count = nw_graph_neighbours(g, g->here[i], to, NULL);
        for (int k = 0; k < count; k++) {
            int j = g->place[to[k]];
            double resistance = 0;
            for (int v = 1; v < m && i < j; v++) resistance += (AT(v, i) - AT(v, j)) * (AT(v, i) - AT(v, j)) / value[v];
            most = fmax(most, resistance);
        }
    }
    *chi2 = most / 2;
#undef AT
    return NW_OK;
}

#else

bool nw_graph_has_solver(void) { return false; }

nw_status nw_graph_solve(const nw_graph *g, double rate, double *chi1, double *chi2)
{
    (void)rate, (void)chi1, (void)chi2;
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "the constants of the graph '%s' have no closed form, and this build is without LAPACK: install "
                   "liblapack-dev and build again, or take complete, cycle, exponential, torus or star",
                   g->name);
}

#endif

/* Of a graph that many may ask. */
static nw_status solve_once(nw_graph *g, double rate, double *chi1, double *chi2)
{
    if (!g->solved) NW_TRY(nw_graph_solve(g, 1, &g->chi1, &g->chi2));
    g->solved = true;
    *chi1 = g->chi1 / rate;
    *chi2 = g->chi2 / rate;
    return NW_OK;
}

nw_status nw_graph_constants(nw_graph *graph, double rate, double *chi1, double *chi2)
{
    NW_FAIL_IF(!(rate > 0) || !isfinite(rate), NW_E_ARGUMENT, "a graph's constants need a rate above 0, not %g", rate);
    if (in_closed_form(graph, chi1, chi2)) {
        *chi1 /= rate;
        *chi2 /= rate;
        return NW_OK;
    }
    NW_FAIL_IF(graph->present > NW_GRAPH_SOLVED, NW_E_ARGUMENT,
               "the constants of the graph '%s' have no closed form, and %d members are too many to solve for (%d)",
               graph->name, graph->present, NW_GRAPH_SOLVED);
    return graph->whole ? solve_once(graph, rate, chi1, chi2) : nw_graph_solve(graph, rate, chi1, chi2);
}
