/*
 * micro.h - what the drivers hand to the micro-kernels; mul_t, the type that is multiplied, is defined before.
 */

/* A filter tap at one output pixel. */
typedef struct tap_t {
    const mul_t *a; /* image 0, channel 0 of the source pixel */
    int index;      /* of the tap in the packed filter */
} tap_t;

/* The products of one (channel panel, output panel, tap) of a weight gradient: rows x pixels x images positions. Steps
 * are in elements; missing images are zero in both operands. */
typedef struct products {
    const mul_t *x, *dy;
    size_t x_step, x_row, dy_step, dy_row;
    int rows, pixels, images, block;
    float *out; /* [C_PANEL][TILE], out_pitch apart; added to */
    size_t out_pitch;
} products;
