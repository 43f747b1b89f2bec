/* One decoding step of a Llama, Mistral or Qwen2 model with stacked LoRA adapters, in float32.
 *
 * A prompt is computed in the same way: its tokens are rows in order, which share the memory that is to hold the prompt.
 *
 * A step computes one token of each row: norms, projections with their adapters, rotary positions, attention over the prompt and the row's
 * own tokens, the MLP, and the final norm. `sample` draws the next tokens from the output head. Rows are sorted by adapter slot.
 *
 * Weights of the base are packed into panels of PANEL output columns ([outputs / PANEL][inputs][PANEL]), so that a product reads them in
 * order. Adapters are read where the learner keeps them. Keys are stored in panels of tokens, too, [tokens / PANEL][size][PANEL], values as
 * [tokens][size]. The structures mirror those of packed_model.py and decoder.py.
 *
 * A row's numbers do not depend on the other rows. So threads may share the rows of a step, each by a call of its own.
 */
#include "vectors.h"

#define CHUNK 64 /* rows whose MLP activations stay in the second cache */
#define QUERIES 8 /* rows of one prompt that read its keys and values together */
#define PAD 16 /* floats between rows of scratch: rows a power of two apart would share few places of the first cache */

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
    const int64_t *capacity; /* [rows] of a response, a multiple of PANEL */
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

/* y [rows, outputs] += x [rows, inputs] times the weights, plus bias and adapters; rows of x and y are their strides apart. `first` is the
 * number of the first row in the batch. */
static void linear(const Model *model, const Batch *batch, const Linear *l, int64_t first, int64_t rows, const float *x, int64_t x_stride,
                   float *y, int64_t y_stride, float *low) {
    for (int64_t r = 0; r < rows && l->bias; r++)
        for (int64_t i = 0; i < l->outputs; i++) y[r * y_stride + i] += l->bias[i];
    add_product(rows, l->inputs, l->outputs, x, x_stride, l->weight, PANEL, l->inputs * PANEL, y, y_stride, 1.0f);
    if (!l->a) return;
    int64_t width = l->parts * model->rank;
    for (int64_t s = 0; s < batch->segments; s++) {
        int64_t slot = batch->slot[s], begin = batch->start[s] - first, end = batch->start[s + 1] - first;
        if (begin < 0) begin = 0;
        if (end > rows) end = rows;
        if (slot < 0 || begin >= end) continue;
        for (int64_t r = begin; r < end; r++) project(l->inputs, width, x + r * x_stride, l->a + slot * l->a_stride, low + r * width);
        for (int64_t p = 0; p < l->parts; p++) {
            const Part *part = &l->part[p];
            add_product(end - begin, model->rank, part->outputs, low + begin * width + p * model->rank, width, part->b + slot * part->b_stride,
                        part->outputs, PANEL, y + begin * y_stride + part->offset, y_stride, batch->scale[slot]);
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

/* Scores of one query [size] against the first `tokens` keys; the rest of the last panel becomes minus infinity. */
static void score(int64_t size, int64_t tokens, const float *query, const float *key, float *scores) {
    int64_t panel = 0, panels = round_up(tokens, PANEL) / PANEL, stride = size * PANEL;
#define KEYS(p, i, half) *(const packed *)(key + (p) * stride + (i) * PANEL + (half) * LANES)
#define RUN(n)                                                                                                                     \
    for (; panel + n <= panels; panel += n) {                                                                                      \
        vec sum[n][2];                                                                                                             \
        for (int p = 0; p < n; p++) sum[p][0] = sum[p][1] = (vec){0};                                                              \
        for (int64_t i = 0; i < size; i++)                                                                                         \
            for (int p = 0; p < n; p++)                                                                                            \
                for (int half = 0; half < 2; half++) sum[p][half] += query[i] * KEYS(panel + p, i, half);                          \
        for (int p = 0; p < n; p++)                                                                                                \
            for (int half = 0; half < 2; half++) *(packed *)(scores + (panel + p) * PANEL + half * LANES) = sum[p][half];          \
    }
    RUN(4)
    RUN(2)
    RUN(1)
#undef RUN
#undef KEYS
    for (int64_t t = tokens; t < panels * PANEL; t++) scores[t] = -INFINITY;
}

/* mixed [size] += the values weighted by the first `tokens` weights; size is a multiple of LANES. */
static void mix(int64_t size, int64_t tokens, const float *weights, const float *value, float *mixed) {
    int64_t column = 0;
#define RUN(n)                                                                                                                     \
    for (; column + n * LANES <= size; column += n * LANES) {                                                                      \
        vec even[n], odd[n];                                                                                                       \
        for (int c = 0; c < n; c++) even[c] = odd[c] = (vec){0};                                                                   \
        int64_t t = 0;                                                                                                             \
        for (; t + 2 <= tokens; t += 2)                                                                                            \
            for (int c = 0; c < n; c++) {                                                                                          \
                even[c] += weights[t] * *(const packed *)(value + t * size + column + c * LANES);                                  \
                odd[c] += weights[t + 1] * *(const packed *)(value + (t + 1) * size + column + c * LANES);                         \
            }                                                                                                                      \
        for (int c = 0; c < n && t < tokens; c++) even[c] += weights[t] * *(const packed *)(value + t * size + column + c * LANES); \
        for (int c = 0; c < n; c++) *(packed *)(mixed + column + c * LANES) += even[c] + odd[c];                                   \
    }
    RUN(4)
    RUN(1)
#undef RUN
}

/* Weighted sums of a prompt's values for several rows; see `mix`. */
static void mix_prompt(int64_t rows, int64_t size, int64_t tokens, const float *weights, int64_t width, const float *value, float *mixed,
                       int64_t stride) {
    if (size % PANEL == 0) add_product(rows, tokens, size, weights, width, value, size, PANEL, mixed, stride, 1.0f);
    else
        for (int64_t r = 0; r < rows; r++) mix(size, tokens, weights + r * width, value, mixed + r * stride);
}

/* Attention in one layer of at most QUERIES rows of one prompt: stores their keys and values, and replaces their queries, `stride` apart, by the
 * mixed values. */
static void attend(const Model *m, const Batch *batch, int64_t layer, int64_t row, int64_t rows, float *qkv, int64_t stride, float *scores) {
    int64_t size = m->size, prompt = batch->prompt_length[row], padded = round_up(prompt, PANEL), longest = 0;
    int64_t repeats = m->heads / m->kv_heads, half = size / 2;
    for (int64_t r = 0; r < rows; r++) {
        int64_t position = prompt + batch->length[row + r];
        for (int64_t h = 0; h < m->heads + m->kv_heads; h++)
            rotate(size, m->cosine + position * half, m->sine + position * half, qkv + r * stride + h * size);
        for (int64_t i = 0; i < m->heads * size; i++) qkv[r * stride + i] *= m->scaling;
        if (batch->length[row + r] > longest) longest = batch->length[row + r];
    }
    int64_t width = padded + round_up(longest + 1, PANEL);
    for (int64_t g = 0; g < m->kv_heads; g++) {
        int64_t head = layer * m->kv_heads + g, heads = m->layers * m->kv_heads;
        const float *prompt_keys = batch->prompt[row] + head * batch->prompt_capacity[row] * size;
        const float *prompt_values = batch->prompt[row] + (heads + head) * batch->prompt_capacity[row] * size;
        float *own_keys[QUERIES], *own_values[QUERIES];
        for (int64_t r = 0; r < rows; r++) {
            int64_t length = batch->length[row + r], capacity = batch->capacity[row + r];
            const float *k = qkv + r * stride + (m->heads + g) * size, *v = k + m->kv_heads * size;
            own_keys[r] = batch->response[row + r] + head * capacity * size;
            own_values[r] = batch->response[row + r] + (heads + head) * capacity * size;
            for (int64_t i = 0; i < size; i++) own_keys[r][(length / PANEL * size + i) * PANEL + length % PANEL] = k[i];
            memcpy(own_values[r] + length * size, v, size * sizeof(float));
        }
        for (float *q = qkv + g * repeats * size; q < qkv + (g + 1) * repeats * size; q += size) {
            float sums[QUERIES], peak;
            for (int64_t r = 0; r < rows; r++) memset(scores + r * width, 0, padded * sizeof(float));
            add_product(rows, size, padded, q, stride, prompt_keys, PANEL, size * PANEL, scores, width, 1.0f);
            for (int64_t r = 0; r < rows; r++) {
                int64_t tokens = batch->length[row + r] + 1;
                for (int64_t t = prompt; t < padded; t++) scores[r * width + t] = -INFINITY;
                score(size, tokens, q + r * stride, own_keys[r], scores + r * width + padded);
                sums[r] = exponentials(scores + r * width, padded + round_up(tokens, PANEL), &peak);
                memset(q + r * stride, 0, size * sizeof(float));
            }
            mix_prompt(rows, size, prompt, scores, width, prompt_values, q, stride);
            for (int64_t r = 0; r < rows; r++) {
                mix(size, batch->length[row + r] + 1, scores + r * width + padded, own_values[r], q + r * stride);
                for (int64_t i = 0; i < size; i++) q[r * stride + i] *= 1.0f / sums[r];
            }
        }
    }
}

/* ---- The step ---- */

/* Strides of the rows of scratch. */
typedef struct {
    int64_t hidden, qkv, gates, active, low;
} Strides;

static Strides strides(const Model *m) {
    return (Strides){m->hidden + PAD, (m->heads + 2 * m->kv_heads) * m->size + PAD, 2 * m->inner + PAD, m->inner + PAD, 3 * m->rank};
}

int64_t scratch_floats(const Model *m, int64_t context) {
    Strides s = strides(m);
    return CHUNK * (s.hidden + s.qkv + s.gates + s.active + s.low) + QUERIES * (context + 4 * PANEL);
}

static void normalise_rows(const Model *m, int64_t rows, const float *x, const float *weight, float *y, int64_t stride) {
    for (int64_t r = 0; r < rows; r++) normalise(m->hidden, x + r * m->hidden, weight, m->epsilon, y + r * stride);
}

static void compute_rows(const Model *m, const Batch *batch, int64_t first, int64_t rows, float *scratch) {
    Strides s = strides(m);
    float *x = batch->hidden + first * m->hidden, *normed = scratch, *qkv = normed + CHUNK * s.hidden, *gates = qkv + CHUNK * s.qkv;
    float *active = gates + CHUNK * s.gates, *low = active + CHUNK * s.active, *scores = low + CHUNK * s.low;
    for (int64_t r = 0; r < rows; r++) memcpy(x + r * m->hidden, m->embedding + batch->token[first + r] * m->hidden, m->hidden * sizeof(float));
    for (int64_t number = 0; number < m->layers; number++) {
        const Layer *layer = &m->layer[number];
        normalise_rows(m, rows, x, layer->attention_norm, normed, s.hidden);
        memset(qkv, 0, rows * s.qkv * sizeof(float));
        linear(m, batch, &layer->qkv, first, rows, normed, s.hidden, qkv, s.qkv, low);
        for (int64_t r = 0, end; r < rows; r = end) {
            for (end = r + 1; end < rows && end < r + QUERIES && batch->prompt[first + end] == batch->prompt[first + r];) end++;
            attend(m, batch, number, first + r, end - r, qkv + r * s.qkv, s.qkv, scores);
        }
        linear(m, batch, &layer->out, first, rows, qkv, s.qkv, x, m->hidden, low);
        normalise_rows(m, rows, x, layer->mlp_norm, normed, s.hidden);
        memset(gates, 0, rows * s.gates * sizeof(float));
        linear(m, batch, &layer->gate_up, first, rows, normed, s.hidden, gates, s.gates, low);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < m->inner; i += LANES) {
                vec gate = *(packed *)(gates + r * s.gates + i), up = *(packed *)(gates + r * s.gates + m->inner + i);
                *(packed *)(active + r * s.active + i) = gate / (1.0f + exponential(-gate)) * up;
            }
        linear(m, batch, &layer->down, first, rows, active, s.active, x, m->hidden, low);
    }
    normalise_rows(m, rows, x, m->norm, x, m->hidden);
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
