/* Causal attention over a packed row of prompts and responses, and its gradient, in float32.
 *
 * A group is a prompt and the responses to it, in this order. Each of these spans attends to itself causally, a response also to its whole
 * prompt. QUERIES of them are computed at a time, against all keys that they see. The backward computes the scores again.
 *
 * A unit is one head of keys and values in one group. No two units write to the same memory, so threads may share them, each by a call of
 * its own. The structure mirrors that of attention.py.
 */
#include "vectors.h"

#define QUERIES 32

typedef struct {
    int64_t heads, kv_heads, size;
    const int64_t *group; /* [groups + 1] the first span of each */
    const int64_t *start; /* [spans + 1] the first token of each */
    const float *q, *k, *v; /* [tokens][heads][size] and [tokens][kv_heads][size] */
    float *output, *total; /* [tokens][heads][size]; [tokens][heads] logarithms of the sums of exponentials */
    const float *gradient;  /* of the output */
    float *dq, *dk, *dv;
    float scaling;
} Attention;

/* A prompt or response of one head: `count` tokens, whose keys and values also lie in panels of PANEL tokens, [panels][size][PANEL]. */
typedef struct {
    int64_t first, count, padded;
    float *keys, *values;
} Span;

/* Copy tokens of x, `stride` apart, into panels; the rest of the last one is zero. */
static void pack_tokens(int64_t tokens, int64_t size, const float *x, int64_t stride, float *packed) {
    for (int64_t first = 0; first < tokens; first += PANEL, packed += size * PANEL) {
        int64_t count = tokens - first < PANEL ? tokens - first : PANEL;
        if (count < PANEL) memset(packed, 0, size * PANEL * sizeof(float));
        for (int64_t t = 0; t < count; t++)
            for (int64_t i = 0; i < size; i++) packed[i * PANEL + t] = x[(first + t) * stride + i];
    }
}

static void prepare(const Attention *a, int64_t span, int64_t head, int with_values, Span *s) {
    int64_t stride = a->kv_heads * a->size;
    s->first = a->start[span], s->count = a->start[span + 1] - s->first, s->padded = round_up(s->count, PANEL);
    pack_tokens(s->count, a->size, a->k + s->first * stride + head * a->size, stride, s->keys);
    if (with_values) pack_tokens(s->count, a->size, a->v + s->first * stride + head * a->size, stride, s->values);
}

/* scores [rows][width] = scaling x times the packed tokens of the prompt and of the span up to token `end`. */
static void multiply_packed(const Attention *a, int64_t rows, const float *x, const float *prompt, int64_t prompt_padded, const float *own,
                            int64_t end, float *scores, int64_t width, float scaling) {
    int64_t stride = a->heads * a->size, panels = a->size * PANEL;
    memset(scores, 0, rows * width * sizeof(float));
    add_product(rows, a->size, prompt_padded, x, stride, prompt, PANEL, panels, scores, width, scaling);
    add_product(rows, a->size, round_up(end, PANEL), x, stride, own, PANEL, panels, scores + prompt_padded, width, scaling);
}

/* y [rows][size] += weights [rows][width] times the tokens of x [tokens][kv_heads][size] in the prompt and in the span up to `end`. */
static void add_mixed(const Attention *a, int64_t rows, const float *weights, int64_t width, const float *x, const Span *prompt,
                      const Span *own, int64_t end, float *y) {
    int64_t stride = a->kv_heads * a->size, y_stride = a->heads * a->size;
    add_product(rows, prompt->count, a->size, weights, width, x + prompt->first * stride, stride, PANEL, y, y_stride, 1.0f);
    add_product(rows, end, a->size, weights + prompt->padded, width, x + own->first * stride, stride, PANEL, y, y_stride, 1.0f);
}

/* y [tokens][kv_heads][size] += weights [rows][width], transposed, times x [rows][heads][size]. */
static void add_to_tokens(const Attention *a, int64_t rows, const float *weights, int64_t width, const float *x, int64_t tokens, float *y) {
    product(tokens, rows, a->size, weights, 1, width, x, a->heads * a->size, PANEL, y, a->kv_heads * a->size, 1.0f);
}

/* Clear the weights of what a row does not see: the rest of the prompt's last panel, and all tokens behind its own. */
INLINE void clear_unseen(float *row, const Span *prompt, int64_t seen, int64_t width, float value) {
    for (int64_t t = prompt->count; t < prompt->padded; t++) row[t] = value;
    for (int64_t t = prompt->padded + seen; t < width; t++) row[t] = value;
}

static void attend_tile(const Attention *a, int64_t head, const Span *prompt, const Span *own, int64_t first, int64_t rows, float *scores) {
    int64_t end = first + rows, width = prompt->padded + round_up(end, PANEL), token = own->first + first;
    float *output = a->output + (token * a->heads + head) * a->size, sums[QUERIES];
    multiply_packed(a, rows, a->q + (token * a->heads + head) * a->size, prompt->keys, prompt->padded, own->keys, end, scores, width, a->scaling);
    for (int64_t r = 0; r < rows; r++) {
        float *row = scores + r * width, peak;
        clear_unseen(row, prompt, first + r + 1, width, -INFINITY);
        sums[r] = exponentials(row, width, &peak);
        clear_unseen(row, prompt, first + r + 1, width, 0.0f);
        a->total[(token + r) * a->heads + head] = peak + logf(sums[r]);
        memset(output + r * a->heads * a->size, 0, a->size * sizeof(float));
    }
    add_mixed(a, rows, scores, width, a->v + head / (a->heads / a->kv_heads) * a->size, prompt, own, end, output);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < a->size; i++) output[r * a->heads * a->size + i] *= 1.0f / sums[r];
}

static void backward_tile(const Attention *a, int64_t head, const Span *prompt, const Span *own, int64_t first, int64_t rows, float *weights,
                          float *slopes) {
    int64_t end = first + rows, width = prompt->padded + round_up(end, PANEL), token = own->first + first;
    int64_t place = (token * a->heads + head) * a->size, kv_head = head / (a->heads / a->kv_heads), kv_stride = a->kv_heads * a->size;
    const float *q = a->q + place, *output = a->output + place, *gradient = a->gradient + place;
    float *dq = a->dq + place, *dk = a->dk + kv_head * a->size, *dv = a->dv + kv_head * a->size;
    multiply_packed(a, rows, q, prompt->keys, prompt->padded, own->keys, end, weights, width, a->scaling);
    multiply_packed(a, rows, gradient, prompt->values, prompt->padded, own->values, end, slopes, width, 1.0f);
    for (int64_t r = 0; r < rows; r++) {
        float *weight = weights + r * width, *slope = slopes + r * width, logarithm = a->total[(token + r) * a->heads + head];
        vec sums = {0};
        for (int64_t i = 0; i < a->size; i += LANES)
            sums += *(const packed *)(output + r * a->heads * a->size + i) * *(const packed *)(gradient + r * a->heads * a->size + i);
        float mean = total(sums);
        for (int64_t t = 0; t < width; t += LANES) *(packed *)(weight + t) = exponential(*(packed *)(weight + t) - logarithm);
        clear_unseen(weight, prompt, first + r + 1, width, 0.0f);
        for (int64_t t = 0; t < width; t += LANES) *(packed *)(slope + t) = *(packed *)(weight + t) * (*(packed *)(slope + t) - mean) * a->scaling;
        memset(dq + r * a->heads * a->size, 0, a->size * sizeof(float));
    }
    add_mixed(a, rows, slopes, width, a->k + kv_head * a->size, prompt, own, end, dq);
    add_to_tokens(a, rows, slopes, width, q, prompt->count, dk + prompt->first * kv_stride);
    add_to_tokens(a, rows, slopes + prompt->padded, width, q, end, dk + own->first * kv_stride);
    add_to_tokens(a, rows, weights, width, gradient, prompt->count, dv + prompt->first * kv_stride);
    add_to_tokens(a, rows, weights + prompt->padded, width, gradient, end, dv + own->first * kv_stride);
}

static void compute_unit(const Attention *a, int64_t group, int64_t kv_head, int backward, int64_t longest, float *scratch) {
    int64_t padded = round_up(longest, PANEL), repeats = a->heads / a->kv_heads, panels = padded * a->size;
    Span prompt = {0, 0, 0, scratch, scratch + panels}, own = {0, 0, 0, scratch + 2 * panels, scratch + 3 * panels}, none = {0};
    float *scores = scratch + 4 * panels, *slopes = scores + 2 * QUERIES * padded;
    for (int64_t token = a->start[a->group[group]]; backward && token < a->start[a->group[group + 1]]; token++) {
        memset(a->dk + (token * a->kv_heads + kv_head) * a->size, 0, a->size * sizeof(float));
        memset(a->dv + (token * a->kv_heads + kv_head) * a->size, 0, a->size * sizeof(float));
    }
    for (int64_t span = a->group[group]; span < a->group[group + 1]; span++) {
        int is_prompt = span == a->group[group];
        Span *current = is_prompt ? &prompt : &own;
        prepare(a, span, kv_head, backward, current);
        for (int64_t head = kv_head * repeats; head < (kv_head + 1) * repeats; head++)
            for (int64_t first = 0; first < current->count; first += QUERIES) {
                int64_t rows = current->count - first < QUERIES ? current->count - first : QUERIES;
                if (backward) backward_tile(a, head, is_prompt ? &none : &prompt, current, first, rows, scores, slopes);
                else attend_tile(a, head, is_prompt ? &none : &prompt, current, first, rows, scores);
            }
    }
}

/* Numbers of the scratch memory of a call, where no span has more than `longest` tokens. */
int64_t attention_floats(const Attention *a, int64_t longest) {
    int64_t padded = round_up(longest, PANEL);
    return 4 * padded * a->size + 4 * QUERIES * padded;
}

/* Compute the units from `first` to `end`, which are numbered group by group. */
void attend_units(const Attention *a, int64_t first, int64_t end, int64_t backward, int64_t longest, float *scratch) {
    for (int64_t unit = first; unit < end; unit++)
        compute_unit(a, unit / a->kv_heads, unit % a->kv_heads, backward != 0, longest, scratch);
}
