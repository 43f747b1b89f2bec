/* One decoding step of a Llama, Mistral or Qwen2 model with stacked LoRA adapters, in float32.
 *
 * A prompt is computed in the same way: its tokens are rows in order, which share the memory that is to hold the prompt.
 *
 * A step computes one token of each row: norms, projections with their adapters, rotary positions, attention over the prompt and the row's
 * own tokens, the MLP, and the final norm. `sample` draws the next tokens from the output head. Rows are sorted by adapter slot.
 *
 * Weights of the base are packed into panels of PANEL output columns ([outputs / PANEL][inputs][PANEL]), so that a product reads them in
 * order. Adapters are read where the learner keeps them. Keys are stored in blocks of BLOCK tokens, [tokens / BLOCK][size][BLOCK], values as
 * [tokens][size]. The structures mirror those of packed_model.py and decoder.py.
 *
 * A row's numbers do not depend on the other rows. So threads may share the rows of a step, each by a call of its own.
 */
#include "vectors.h"

#define BLOCK 16
#define CHUNK 64 /* rows whose MLP activations stay in the second cache */

typedef float keys __attribute__((vector_size(4 * BLOCK), aligned(4), may_alias));

int64_t panel(void) { return PANEL; }

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

const char *description(void) {
#if LANES == 16
    return "AVX-512, " COMPILER;
#elif LANES == 8
    return "AVX2, " COMPILER;
#else
    return "vectors of 128 bits, " COMPILER;
#endif
}

/* One adapter of a linear module of each slot; the pointers are of slot 0, the strides are in floats. */
typedef struct {
    const float *b;  /* [rank][outputs] */
    int64_t b_stride, offset, outputs;
} Part;

/* Modules that read one input: packed weights of all, and the adapters of some of them. */
typedef struct {
    const float *weight, *bias; /* packed; bias [outputs] or null */
    const float *a;             /* [parts * rank][inputs], or null without adapters */
    int64_t a_stride, inputs, outputs, parts;
    Part part[3];
} Linear;

typedef struct {
    const float *attention_norm, *mlp_norm;
    Linear qkv, out, gate_up, down;
} Layer;

typedef struct {
    int64_t layers, hidden, inner, heads, kv_heads, size, vocabulary, rank;
    float epsilon, scaling;
    const float *embedding, *norm, *head, *cosine, *sine; /* head packed; cosine and sine [context][size / 2] */
    const Layer *layer;
} Model;

/* The rows of a step, sorted by slot. Segment i has the rows from start[i] to start[i + 1], of slot[i] (-1: the bare base). */
typedef struct {
    int64_t segments;
    const int64_t *start, *slot;
    const float *scale;    /* [slots] alpha / rank */
    const int64_t *token;  /* [rows] */
    float *const *prompt;  /* [rows] keys and values of the prompts */
    const int64_t *prompt_length, *prompt_capacity;
    float *const *response; /* [rows] keys and values of the rows' own tokens */
    const int64_t *length;   /* [rows] tokens before this one */
    const int64_t *capacity; /* [rows] of a response, a multiple of BLOCK */
    float *hidden;          /* [rows][hidden], the result */
} Batch;

/* ---- Products ---- */

/* y [outputs] = a [outputs, inputs] x; inputs is a multiple of LANES. */
static void project(int64_t inputs, int64_t outputs, const float *x, const float *a, float *y) {
    for (int64_t o = 0; o < outputs; o++) {
        vec even = {0}, odd = {0};
        int64_t i = 0;
        for (; i + 2 * LANES <= inputs; i += 2 * LANES) {
            even += *(const packed *)(x + i) * *(const packed *)(a + o * inputs + i);
            odd += *(const packed *)(x + i + LANES) * *(const packed *)(a + o * inputs + i + LANES);
        }
        for (; i < inputs; i += LANES) even += *(const packed *)(x + i) * *(const packed *)(a + o * inputs + i);
        y[o] = total(even + odd);
    }
}

/* y [rows, outputs] (+)= x [rows, inputs] times the weights, plus bias and adapters. `first` is the number of the first row in the batch. */
static void linear(const Model *model, const Batch *batch, const Linear *l, int64_t first, int64_t rows, const float *x, float *y, int add,
                   float *low) {
    if (!add) memset(y, 0, rows * l->outputs * sizeof(float));
    for (int64_t r = 0; r < rows && l->bias; r++)
        for (int64_t i = 0; i < l->outputs; i++) y[r * l->outputs + i] += l->bias[i];
    add_product(rows, l->inputs, l->outputs, x, l->inputs, l->weight, PANEL, l->inputs * PANEL, y, l->outputs, 1.0f);
    if (!l->a) return;
    int64_t width = l->parts * model->rank;
    for (int64_t s = 0; s < batch->segments; s++) {
        int64_t slot = batch->slot[s], begin = batch->start[s] - first, end = batch->start[s + 1] - first;
        if (begin < 0) begin = 0;
        if (end > rows) end = rows;
        if (slot < 0 || begin >= end) continue;
        for (int64_t r = begin; r < end; r++) project(l->inputs, width, x + r * l->inputs, l->a + slot * l->a_stride, low + r * width);
        for (int64_t p = 0; p < l->parts; p++) {
            const Part *part = &l->part[p];
            add_product(end - begin, model->rank, part->outputs, low + begin * width + p * model->rank, width, part->b + slot * part->b_stride,
                        part->outputs, PANEL, y + begin * l->outputs + part->offset, l->outputs, batch->scale[slot]);
        }
    }
}

/* ---- Elementwise ---- */

INLINE void normalise(int64_t size, const float *x, const float *weight, float epsilon, float *y) {
    vec squares = {0};
    for (int64_t i = 0; i < size; i += LANES) squares += *(const packed *)(x + i) * *(const packed *)(x + i);
    float factor = 1.0f / sqrtf(total(squares) / size + epsilon);
    for (int64_t i = 0; i < size; i += LANES) *(packed *)(y + i) = *(const packed *)(weight + i) * (*(const packed *)(x + i) * factor);
}

INLINE void rotate(int64_t size, const float *cosine, const float *sine, float *x) {
    for (int64_t i = 0; i < size / 2; i++) {
        float left = x[i], right = x[i + size / 2];
        x[i] = left * cosine[i] - right * sine[i];
        x[i + size / 2] = right * cosine[i] + left * sine[i];
    }
}

/* ---- Attention ---- */

INLINE int64_t rounded(int64_t tokens) { return round_up(tokens, BLOCK); }

/* Scores of one query [size] against the first `tokens` keys; the rest of the last block becomes minus infinity. */
static void score(int64_t size, int64_t tokens, const float *query, const float *key, float *scores) {
    int64_t block = 0, blocks = rounded(tokens) / BLOCK, stride = size * BLOCK;
#define KEYS(b, i) *(const keys *)(key + (b) * stride + (i) * BLOCK)
    for (; block + 4 <= blocks; block += 4) {
        keys sum[4] = {{0}};
        for (int64_t i = 0; i < size; i++)
            for (int b = 0; b < 4; b++) sum[b] += query[i] * KEYS(block + b, i);
        for (int b = 0; b < 4; b++) *(keys *)(scores + (block + b) * BLOCK) = sum[b];
    }
    if (block + 2 <= blocks) {
        keys sum[2] = {{0}};
        for (int64_t i = 0; i < size; i++)
            for (int b = 0; b < 2; b++) sum[b] += query[i] * KEYS(block + b, i);
        for (int b = 0; b < 2; b++) *(keys *)(scores + (block + b) * BLOCK) = sum[b];
        block += 2;
    }
    for (; block < blocks; block++) {
        keys even = {0}, odd = {0};
        for (int64_t i = 0; i < size; i += 2) {
            even += query[i] * KEYS(block, i);
            odd += query[i + 1] * KEYS(block, i + 1);
        }
        *(keys *)(scores + block * BLOCK) = even + odd;
    }
#undef KEYS
    for (int64_t t = tokens; t < blocks * BLOCK; t++) scores[t] = -INFINITY;
}

/* mixed [size] += the values weighted by the first `tokens` weights; size is a multiple of LANES. */
static void mix(int64_t size, int64_t tokens, const float *weights, const float *value, float *mixed) {
    for (int64_t column = 0; column < size; column += LANES) {
        vec sum[4] = {{0}};
        int64_t t = 0;
        for (; t + 4 <= tokens; t += 4)
            for (int u = 0; u < 4; u++) sum[u] += weights[t + u] * *(const packed *)(value + (t + u) * size + column);
        for (; t < tokens; t++) sum[0] += weights[t] * *(const packed *)(value + t * size + column);
        *(packed *)(mixed + column) += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

/* Attention of one row in one layer: stores its key and value, and replaces its queries by the mixed values. */
static void attend(const Model *m, const Batch *batch, int64_t layer, int64_t row, float *qkv, float *scores) {
    int64_t size = m->size, length = batch->length[row], prompt = batch->prompt_length[row], position = prompt + length;
    int64_t repeats = m->heads / m->kv_heads, half = size / 2, padded = rounded(prompt);
    float *k = qkv + m->heads * size, *v = k + m->kv_heads * size;
    const float *cosine = m->cosine + position * half, *sine = m->sine + position * half;
    for (int64_t h = 0; h < m->heads + m->kv_heads; h++) rotate(size, cosine, sine, qkv + h * size);
    for (int64_t g = 0; g < m->kv_heads; g++) {
        int64_t head = layer * m->kv_heads + g, heads = m->layers * m->kv_heads;
        float *prompt_keys = batch->prompt[row] + head * batch->prompt_capacity[row] * size;
        float *prompt_values = batch->prompt[row] + (heads + head) * batch->prompt_capacity[row] * size;
        float *own_keys = batch->response[row] + head * batch->capacity[row] * size;
        float *own_values = batch->response[row] + (heads + head) * batch->capacity[row] * size;
        for (int64_t i = 0; i < size; i++) own_keys[(length / BLOCK * size + i) * BLOCK + length % BLOCK] = k[g * size + i];
        memcpy(own_values + length * size, v + g * size, size * sizeof(float));
        for (int64_t r = 0; r < repeats; r++) {
            float *q = qkv + (g * repeats + r) * size;
            for (int64_t i = 0; i < size; i++) q[i] *= m->scaling;
            score(size, prompt, q, prompt_keys, scores);
            score(size, length + 1, q, own_keys, scores + padded);
            float peak, sum = exponentials(scores, padded + rounded(length + 1), &peak);
            memset(q, 0, size * sizeof(float));
            mix(size, prompt, scores, prompt_values, q);
            mix(size, length + 1, scores + padded, own_values, q);
            float factor = 1.0f / sum;
            for (int64_t i = 0; i < size; i++) q[i] *= factor;
        }
    }
}

/* ---- The step ---- */

int64_t scratch_floats(const Model *m, int64_t context) {
    int64_t qkv = (m->heads + 2 * m->kv_heads) * m->size, widest = 3 * m->rank;
    int64_t sizes = 2 * m->hidden + qkv + m->heads * m->size + 3 * m->inner + widest + PANEL;
    return CHUNK * sizes + context + 4 * BLOCK;
}

static void compute_rows(const Model *m, const Batch *batch, int64_t first, int64_t rows, float *scratch) {
    int64_t queries = m->heads * m->size, width = queries + 2 * m->kv_heads * m->size;
    float *x = batch->hidden + first * m->hidden, *normed = scratch, *qkv = normed + CHUNK * m->hidden;
    float *mixed = qkv + CHUNK * width, *gates = mixed + CHUNK * queries, *active = gates + CHUNK * 2 * m->inner;
    float *low = active + CHUNK * m->inner, *scores = low + CHUNK * 3 * m->rank;
    for (int64_t r = 0; r < rows; r++) memcpy(x + r * m->hidden, m->embedding + batch->token[first + r] * m->hidden, m->hidden * sizeof(float));
    for (int64_t number = 0; number < m->layers; number++) {
        const Layer *layer = &m->layer[number];
        for (int64_t r = 0; r < rows; r++) normalise(m->hidden, x + r * m->hidden, layer->attention_norm, m->epsilon, normed + r * m->hidden);
        linear(m, batch, &layer->qkv, first, rows, normed, qkv, 0, low);
        for (int64_t r = 0; r < rows; r++) {
            attend(m, batch, number, first + r, qkv + r * width, scores);
            memcpy(mixed + r * queries, qkv + r * width, queries * sizeof(float));
        }
        linear(m, batch, &layer->out, first, rows, mixed, x, 1, low);
        for (int64_t r = 0; r < rows; r++) normalise(m->hidden, x + r * m->hidden, layer->mlp_norm, m->epsilon, normed + r * m->hidden);
        linear(m, batch, &layer->gate_up, first, rows, normed, gates, 0, low);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < m->inner; i += LANES) {
                vec gate = *(packed *)(gates + 2 * r * m->inner + i), up = *(packed *)(gates + (2 * r + 1) * m->inner + i);
                *(packed *)(active + r * m->inner + i) = gate / (1.0f + exponential(-gate)) * up;
            }
        linear(m, batch, &layer->down, first, rows, active, x, 1, low);
    }
    for (int64_t r = 0; r < rows; r++) normalise(m->hidden, x + r * m->hidden, m->norm, m->epsilon, x + r * m->hidden);
}

/* Compute the rows from `first` to `end`; `scratch` has `scratch_floats`. All rows of a prompt belong into one call. */
void decode(const Model *model, const Batch *batch, int64_t first, int64_t end, float *scratch) {
    for (; first < end; first += CHUNK) compute_rows(model, batch, first, end - first < CHUNK ? end - first : CHUNK, scratch);
}

/* Copy weights [outputs, inputs] into panels. */
void pack(int64_t inputs, int64_t outputs, const float *weight, float *packed) {
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++) packed[(o / PANEL * inputs + i) * PANEL + o % PANEL] = weight[o * inputs + i];
}

/* ---- Sampling ---- */

/* Draw a token of one row from its shifted logits by a uniform number; `shares` is scratch of the same size. */
INLINE void draw(int64_t size, float *logits, float *shares, double uniform, float temperature, int64_t *token, float *logprob,
                 float *entropy) {
    float peak = logits[0], heat = temperature > 0.0f ? temperature : 1.0f;
    int64_t chosen = 0;
    for (int64_t i = 1; i < size; i++)
        if (logits[i] > peak) peak = logits[i], chosen = i;
    double sum = 0.0, drawn = 0.0, weighted = 0.0;
    for (int64_t i = 0; i < size; i += LANES) {
        vec shifted = *(packed *)(logits + i) - peak, plain = exponential(shifted);
        vec share = heat == 1.0f ? plain : exponential(shifted / heat), term = share * shifted / heat;
        *(packed *)(logits + i) = shifted, *(packed *)(shares + i) = share;
        for (int l = 0; l < LANES; l++) sum += plain[l], drawn += share[l], weighted += term[l];
    }
    if (temperature > 0.0f) {
        double wanted = uniform * drawn, seen = shares[0];
        for (chosen = 0; seen <= wanted && chosen + 1 < size;) seen += shares[++chosen];
    }
    *token = chosen;
    *logprob = logits[chosen] - (float)log(sum);
    *entropy = (float)(log(drawn) - weighted / drawn);
}

/* Draw the next token of each row from hidden [rows, hidden] by uniforms [rows]; temperature 0 takes the likeliest. `scratch` holds
 * (TILE + 1) rows of logits. */
void sample(const Model *m, int64_t rows, const float *hidden, const double *uniform, float temperature, float *scratch, int64_t *token,
            float *logprob, float *entropy) {
    int64_t size = m->vocabulary;
    float *shares = scratch + TILE * size;
    for (int64_t first = 0; first < rows; first += TILE) {
        int64_t count = rows - first < TILE ? rows - first : TILE;
        memset(scratch, 0, count * size * sizeof(float));
        add_product(count, m->hidden, size, hidden + first * m->hidden, m->hidden, m->head, PANEL, m->hidden * PANEL, scratch, size, 1.0f);
        for (int64_t r = 0; r < count; r++)
            draw(size, scratch + r * size, shares, uniform[first + r], temperature, token + first + r, logprob + first + r, entropy + first + r);
    }
}

int64_t sample_floats(const Model *m) { return (TILE + 1) * m->vocabulary; }
