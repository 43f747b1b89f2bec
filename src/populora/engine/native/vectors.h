/* Shared by decode.c and attention.c: vectors of the instructions that the compiler may use, products of matrices in registers, and the exponential. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define TILE 8
#elif defined(__AVX2__)
#define LANES 8
#define TILE 6
#else
#define LANES 4
#define TILE 6
#endif
#define PANEL (2 * LANES)
#define DEPTH 64 /* inputs that are summed at a time: their part of a panel stays in the first cache, and rounding errors grow with it */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef vec packed __attribute__((aligned(4), may_alias)); /* in memory alone: GCC 14 fails on AArch64 where a function takes one */
#define INLINE static inline __attribute__((always_inline))

INLINE int64_t round_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

INLINE void tile(int rows, int64_t inputs, const float *x, int64_t x_row, int64_t x_input, const float *w, int64_t w_stride, float *y,
                 int64_t y_stride, float alpha) {
    vec sum[TILE][2];
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t i = 0; i < inputs; i++) {
        vec left = *(const packed *)(w + i * w_stride), right = *(const packed *)(w + i * w_stride + LANES);
        for (int r = 0; r < rows; r++) {
            float value = x[r * x_row + i * x_input];
            sum[r][0] += value * left;
            sum[r][1] += value * right;
        }
    }
    for (int r = 0; r < rows; r++) {
        *(packed *)(y + r * y_stride) += alpha * sum[r][0];
        *(packed *)(y + r * y_stride + LANES) += alpha * sum[r][1];
    }
}

INLINE void product(int64_t rows, int64_t inputs, int64_t outputs, const float *x, int64_t x_row, int64_t x_input, const float *w,
                    int64_t w_stride, int64_t panel_stride, float *y, int64_t y_stride, float alpha) {
    for (int64_t column = 0; column < outputs; column += PANEL) {
        const float *panel_weights = w + column / PANEL * panel_stride;
        for (int64_t first = 0; first < inputs; first += DEPTH) {
            int64_t depth = inputs - first < DEPTH ? inputs - first : DEPTH, r = 0;
            const float *part = panel_weights + first * w_stride, *input = x + first * x_input;
            float *output = y + column;
#define RUN(n) tile(n, depth, input + r * x_row, x_row, x_input, part, w_stride, output + r * y_stride, y_stride, alpha)
            for (; r + TILE <= rows; r += TILE) RUN(TILE);
            for (; r + 4 <= rows; r += 4) RUN(4);
            for (; r + 2 <= rows; r += 2) RUN(2);
            for (; r < rows; r++) RUN(1);
#undef RUN
        }
    }
}

/* y [rows, outputs] += alpha x [rows, inputs] w, where panel p of w has its rows w_stride apart and begins at p * panel_stride. */
static void add_product(int64_t rows, int64_t inputs, int64_t outputs, const float *x, int64_t x_stride, const float *w, int64_t w_stride,
                        int64_t panel_stride, float *y, int64_t y_stride, float alpha) {
    product(rows, inputs, outputs, x, x_stride, 1, w, w_stride, panel_stride, y, y_stride, alpha);
}

INLINE float total(vec x) {
    float parts[LANES];
    *(packed *)parts = x;
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) parts[i] += parts[i + width];
    return parts[0];
}

/* exp(x) within two units in the last place; Cephes' polynomial. */
INLINE vec exponential(vec x) {
    vec magic = (vec){0} + 12582912.0f, low = (vec){0} - 87.0f, high = (vec){0} + 88.0f;
    ivec below = x < low, above = x > high;
    x = (vec)(((ivec)low & below) | ((ivec)high & above) | ((ivec)x & ~(below | above)));
    vec shifted = x * 1.44269504f + magic, n = shifted - magic;
    vec f = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = f * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    return p * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
}

/* Turn the scores of a row into exponentials. Returns their sum, and the largest score. */
INLINE float exponentials(float *row, int64_t width, float *peak) {
    vec peaks = *(packed *)row, sums = {0};
    for (int64_t t = LANES; t < width; t += LANES) {
        vec next = *(packed *)(row + t);
        ivec larger = next > peaks;
        peaks = (vec)(((ivec)next & larger) | ((ivec)peaks & ~larger));
    }
    *peak = peaks[0];
    for (int i = 1; i < LANES; i++) *peak = peaks[i] > *peak ? peaks[i] : *peak;
    for (int64_t t = 0; t < width; t += LANES) sums += *(packed *)(row + t) = exponential(*(packed *)(row + t) - *peak);
    return total(sums);
}
