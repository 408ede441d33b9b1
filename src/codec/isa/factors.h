/*
 * isa/factors.h - products of a matrix with few vectors (powersgd), part of isa/kernels.h.
 *
 * m has `rows` rows of `columns` floats. p is `rank` vectors with a float for each row of m; q is `rank` vectors with a
 * float for each column. m is read from memory once for every FEW vectors. Sums over columns use 16 lanes that are
 * added in order; sums over rows go in the order of rows. So every vector width gives the same bits.
 */
enum { LANES = 16, WIDE = LANES / VL, FEW = 4, STRIP = 1024 };

/* One row times `few` vectors; `few` is a constant after inlining. */
INLINE void times_row(const float *m, size_t columns, const float *q, int few, float *p, size_t rows)
{
    vf sum[FEW][WIDE] = {{{0}}};
    size_t j = 0;
    for (; j + LANES <= columns; j += LANES)
        for (int w = 0; w < WIDE; w++) {
            vf x = v_load(m + j + w * VL);
            for (int k = 0; k < few; k++) sum[k][w] += x * v_load(q + (size_t)k * columns + j + w * VL);
        }
    for (int k = 0; k < few; k++) {
        float lanes[LANES], all = 0;
        memcpy(lanes, sum[k], sizeof lanes);
        for (size_t i = j; i < columns; i++) lanes[i - j] += m[i] * q[(size_t)k * columns + i];
        for (int i = 0; i < LANES; i++) all += lanes[i];
        p[(size_t)k * rows] = all;
    }
}

static void times(const float *m, size_t rows, size_t columns, const float *q, int rank, float *p)
{
    for (; rank > 0; rank -= FEW, q += FEW * columns, p += FEW * rows)
        for (size_t i = 0; i < rows; i++) switch (rank) {
            case 1:
                times_row(m + i * columns, columns, q, 1, p + i, rows);
                break;
            case 2:
                times_row(m + i * columns, columns, q, 2, p + i, rows);
                break;
            case 3:
                times_row(m + i * columns, columns, q, 3, p + i, rows);
                break;
            default:
                times_row(m + i * columns, columns, q, FEW, p + i, rows);
            }
}

/* q += m' p for `count` columns of q, which stay in a cache; four rows at a time. */
INLINE void times_strip(const float *restrict m, size_t rows, size_t columns, size_t count, const float *restrict p,
                        float *restrict q)
{
    size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const float *a = m + i * columns, *b = a + columns, *c = b + columns, *d = c + columns;
        float pa = p[i], pb = p[i + 1], pc = p[i + 2], pd = p[i + 3];
        for (size_t j = 0; j < count; j++) q[j] = (((q[j] + pa * a[j]) + pb * b[j]) + pc * c[j]) + pd * d[j];
    }
    for (; i < rows; i++)
        for (size_t j = 0; j < count; j++) q[j] += p[i] * m[i * columns + j];
}

static void times_transposed(const float *m, size_t rows, size_t columns, const float *p, int rank, float *q)
{
    enum { SLAB = 16 }; /* rows of a strip, which stay in a cache while all vectors use them */
    memset(q, 0, (size_t)rank * columns * sizeof *q);
    for (size_t at = 0; at < columns; at += STRIP) {
        size_t count = columns - at < STRIP ? columns - at : STRIP;
        for (size_t i = 0; i < rows; i += SLAB)
            for (int k = 0; k < rank; k++)
                times_strip(m + i * columns + at, rows - i < SLAB ? rows - i : SLAB, columns, count,
                            p + (size_t)k * rows + i, q + (size_t)k * columns + at);
    }
}

static void product(const float *p, size_t rows, const float *q, size_t columns, int rank, size_t from, float *out,
                    size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t i = (from + done) / columns, j = (from + done) % columns;
        size_t run = columns - j < count - done ? columns - j : count - done;
        float *restrict to = out + done;
        for (int k = 0; k < rank; k++) {
            float x = p[(size_t)k * rows + i];
            const float *y = q + (size_t)k * columns + j;
            if (k == 0)
                for (size_t c = 0; c < run; c++) to[c] = x * y[c];
            else
                for (size_t c = 0; c < run; c++) to[c] += x * y[c];
        }
        done += run;
    }
}

/* In double: element i is added to lane i % 16; then the lanes are added in order. */
static double dot(const float *a, const float *b, size_t count)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t k = 0; k < LANES; k++) lanes[k] += (double)a[i + k] * (double)b[i + k];
    for (size_t k = 0; i < count; i++, k++) lanes[k] += (double)a[i] * (double)b[i];
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}
