/*
 * edges.c - lists of edges: read from files, drawn at random, checked for being in one piece.
 *
 * A random regular graph begins as the circulant with distances 1 .. d / 2 (and n / 2 where d is odd), and then trades
 * ends: two edges a-b, c-d become a-d, c-b where that makes no edge twice. Every trade keeps all degrees, and many of
 * them reach every regular graph. It goes on until the graph is in one piece.
 */
#include "topology/topology_private.h"

#include "base/file.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

enum { FILE_MOST = 64 << 20, TRADES = 16 };

static int compare(const void *x, const void *y)
{
    const nw_edge *a = x, *b = y;
    if (a->a != b->a) return a->a < b->a ? -1 : 1;
    return (a->b > b->b) - (a->b < b->b);
}

void nw_edges_tidy(nw_edges *edges)
{
    if (!edges->count) return;
    qsort(edges->at, (size_t)edges->count, sizeof *edges->at, compare);
    int last = 0;
    for (int i = 1; i < edges->count; i++)
        if (compare(&edges->at[last], &edges->at[i]) == 0)
            edges->at[last].weight += edges->at[i].weight;
        else
            edges->at[++last] = edges->at[i];
    edges->count = last + 1;
}

nw_status nw_edges_add(nw_edges *edges, int a, int b, double weight)
{
    NW_FAIL_IF(!nw_grow(&edges->at, (size_t)edges->count, sizeof *edges->at), NW_E_MEMORY,
               "no memory for %d edges of a graph", edges->count);
    edges->at[edges->count++] = (nw_edge){.a = a < b ? a : b, .b = a < b ? b : a, .weight = weight};
    return NW_OK;
}

static int root_of(int *root, int member)
{
    while (root[member] != member) member = root[member] = root[root[member]];
    return member;
}

int nw_edges_apart(const nw_edges *edges, int n, const bool *gone, int *root)
{
    for (int i = 0; i < n; i++) root[i] = i;
    for (int e = 0; e < edges->count; e++) root[root_of(root, edges->at[e].a)] = root_of(root, edges->at[e].b);
    int from = -1;
    for (int i = 0; i < n; i++) {
        if (gone && gone[i]) continue;
        if (from < 0) from = i;
        if (root_of(root, i) != root_of(root, from)) return i;
    }
    return -1;
}

/* ---- files ---- */

typedef struct reader {
    const char *path, *at, *end; /* of the line */
    int line, n;
} reader;

#define BAD(r, format, ...) NW_FAIL(NW_E_FILE, "%s, line %d: " format, (r)->path, (r)->line, ##__VA_ARGS__)

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* The next word of the line; an empty one at its end. */
static size_t next_word(reader *r, const char **word)
{
    while (r->at < r->end && is_blank(*r->at)) r->at++;
    *word = r->at;
    while (r->at < r->end && !is_blank(*r->at)) r->at++;
    return (size_t)(r->at - *word);
}

static nw_status read_member(reader *r, int *member)
{
    const char *word;
    size_t size = next_word(r, &word);
    int shown = size < 40 ? (int)size : 40;
    if (!size) return BAD(r, "an edge is two members and perhaps a weight: 'i j [weight]'");
    int64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (word[i] < '0' || word[i] > '9') return BAD(r, "'%.*s' is no member's number", shown, word);
        value = value * 10 + (word[i] - '0');
        if (value >= r->n)
            return BAD(r, "there is no member %.*s: with %d of them they are 0 to %d", shown, word, r->n, r->n - 1);
    }
    *member = (int)value;
    return NW_OK;
}

static bool is_number(const char *text)
{
    bool digits = false;
    while (isdigit((unsigned char)*text)) text++, digits = true;
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++) digits = true;
    if (!digits) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-') text++;
        if (!isdigit((unsigned char)*text)) return false;
        while (isdigit((unsigned char)*text)) text++;
    }
    return !*text;
}

static nw_status read_weight(reader *r, double *weight)
{
    *weight = 1;
    const char *word;
    size_t size = next_word(r, &word);
    if (!size) return NW_OK;
    char text[64] = "";
    if (size < sizeof text) memcpy(text, word, size);
    bool number = is_number(text);
    if (number) NW_TRY(nw_number_convert(text, weight));
    /* Further apart, the graph's constants would be lost in rounding. */
    if (!number || !(*weight >= 1e-3 && *weight <= 1e3))
        return BAD(r, "'%.*s' is no weight: give a number from 0.001 to 1000", size < 40 ? (int)size : 40, word);
    return NW_OK;
}

static nw_status read_line(reader *r, nw_edges *edges)
{
    const char *remark = memchr(r->at, '#', (size_t)(r->end - r->at)), *word;
    if (remark) r->end = remark;
    if (memchr(r->at, 0, (size_t)(r->end - r->at))) return BAD(r, "this is no text: a zero byte stands in it");
    reader ahead = *r;
    if (!next_word(&ahead, &word)) return NW_OK;
    int a, b;
    double weight;
    NW_TRY(read_member(r, &a));
    NW_TRY(read_member(r, &b));
    NW_TRY(read_weight(r, &weight));
    size_t more = next_word(r, &word);
    if (more) return BAD(r, "'%.*s' is too much: an edge is 'i j [weight]'", more < 40 ? (int)more : 40, word);
    if (a == b) return BAD(r, "member %d is no neighbour of itself", a);
    return nw_edges_add(edges, a, b, weight);
}

nw_status nw_edges_parse(nw_edges *edges, const char *path, const char *text, size_t size, int n)
{
    reader r = {.path = path, .n = n};
    for (size_t at = 0, length; at < size; at += length + 1) {
        const char *end = memchr(text + at, '\n', size - at);
        length = end ? (size_t)(end - text) - at : size - at;
        r.line++;
        r.at = text + at;
        r.end = text + at + length;
        NW_TRY(read_line(&r, edges));
    }
    nw_edges_tidy(edges);
    NW_AUTOFREE int *root = NULL;
    NW_NEW(root, n, "%d members", n);
    int apart = nw_edges_apart(edges, n, NULL, root);
    NW_FAIL_IF(apart >= 0, NW_E_FILE,
               "%s: no path of edges leads from member 0 to member %d; every member of %d must be reached", path, apart,
               n);
    return NW_OK;
}

nw_status nw_edges_read(nw_edges *edges, const char *path, int n)
{
    NW_AUTOFREE char *text = NULL;
    size_t size;
    NW_TRY(nw_file_read(path, FILE_MOST, &text, &size));
    return nw_edges_parse(edges, path, text, size, n);
}

/* ---- random regular graphs ---- */

/* Where neighbour b stands among a's; -1: nowhere. */
static int find(const int *to, int d, int a, int b)
{
    for (int i = 0; i < d; i++)
        if (to[(size_t)a * (size_t)d + (size_t)i] == b) return i;
    return -1;
}

static void trade(int *to, int n, int d, nw_rng *rng)
{
    int a = (int)nw_rng_below(rng, (uint32_t)n), c = (int)nw_rng_below(rng, (uint32_t)n);
    int at_a = (int)nw_rng_below(rng, (uint32_t)d), at_c = (int)nw_rng_below(rng, (uint32_t)d);
    int *ab = &to[(size_t)a * (size_t)d + (size_t)at_a], *cd = &to[(size_t)c * (size_t)d + (size_t)at_c];
    int b = *ab, e = *cd;
    if (a == c || a == e || b == c || b == e || find(to, d, a, e) >= 0 || find(to, d, c, b) >= 0) return;
    to[(size_t)b * (size_t)d + (size_t)find(to, d, b, a)] = c;
    to[(size_t)e * (size_t)d + (size_t)find(to, d, e, c)] = a;
    *ab = e;
    *cd = b;
}

nw_status nw_edges_draw(nw_edges *edges, int n, int d, uint64_t seed)
{
    NW_AUTOFREE int *to = NULL;
    NW_AUTOFREE int *root = NULL;
    NW_NEW(to, (size_t)n * (size_t)d, "%d neighbours of each of %d members", d, n);
    NW_NEW(root, n, "%d members", n);
    for (int i = 0; i < n; i++) {
        int *row = &to[(size_t)i * (size_t)d];
        for (int k = 0; k < d / 2; k++) {
            row[2 * k] = (i + k + 1) % n;
            row[2 * k + 1] = (i - k - 1 + n) % n;
        }
        if (d % 2) row[d - 1] = (i + n / 2) % n;
    }
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_GRAPH, (uint64_t)n, (uint32_t)d);
    do {
        for (int64_t left = (int64_t)TRADES * n * d; left > 0; left--) trade(to, n, d, &rng);
        edges->count = 0;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < d; k++)
                if (to[(size_t)i * (size_t)d + (size_t)k] > i)
                    NW_TRY(nw_edges_add(edges, i, to[(size_t)i * (size_t)d + (size_t)k], 1));
    } while (nw_edges_apart(edges, n, NULL, root) >= 0);
    nw_edges_tidy(edges);
    return NW_OK;
}
