/* layer.h - tests a convolution or a linear layer: runs its slots, collects all results in one array, and compares
 * them with sums of products in double, with their bounds. A linear layer is a convolution whose kernel is as
 * large as its image.
 *
 * Properties of every case on the CPU: waves of any number of shards give the same bits; a sample alone gives the bits
 * that it has in a batch; a group gives the bits of a plain convolution of its channels, unless the precision is bf16
 * and the convolution depthwise, which stays in fp32; a ReLU, or the mask of a ReLU,
 * only sets elements to 0. */
#ifndef LK_TESTS_TENSOR_LAYER_H
#define LK_TESTS_TENSOR_LAYER_H

#include "tensor/weights.h"

/* The same windows along both axes, without dilation. */
#define CONV(kernel, stride, pad, groups)             \
    {                                                 \
        LK_WINDOW_SQUARE(kernel, stride, pad), groups \
    }

/* How much of a case the CPU runs. */
typedef enum effort {
    THOROUGH, /* all builds and thread counts, all properties */
    BRIEF,    /* all builds */
    NOT_CPU   /* nothing: large cases, for devices that choose another algorithm by the size */
} effort;

typedef struct layer {
    lk_shape x;
    size_t out;
    lk_conv2d_desc conv; /* all zero: a linear layer */
    int shards, wave;    /* shards 0: one; wave 0: all shards */
    bool no_bias;
    bool each_sample; /* compare each sample with a run of it alone */
    effort effort;
    const float *values, *dy, *w, *b; // (n, h, w, c), of y, (o, c / groups, kh, kw), (o)
    const float *mask;                // as values
} layer;

static inline bool layer_is_linear(const layer *l)
{
    return l->conv.h.kernel == 0;
}

/* The layer as a convolution. */
static inline lk_conv2d_desc layer_window(const layer *l)
{
    lk_conv2d_desc whole = {{l->x.h, 1, 0, 1}, {l->x.w, 1, 0, 1}, 1};
    return layer_is_linear(l) ? whole : l->conv;
}

static inline size_t layer_taps(const layer *l)
{
    lk_conv2d_desc conv = layer_window(l);
    return lk__conv2d_desc_taps(&conv);
}

static inline size_t count_windows(const lk_window *w, size_t x)
{
    return (x + 2 * w->pad - lk__window_extent(w)) / w->stride + 1;
}

static inline lk_shape layer_y(const layer *l)
{
    lk_shape y = {.n = l->x.n, .c = l->out, .h = 1, .w = 1};
    if (layer_is_linear(l))
        return y;
    y.h = count_windows(&l->conv.h, l->x.h);
    y.w = count_windows(&l->conv.w, l->x.w);
    return y;
}

static inline size_t layer_weights(const layer *l)
{
    return l->out * (l->x.c / layer_window(l).groups) * layer_taps(l);
}

static inline void layer_name(const layer *l, const char *part, char name[256])
{
    const lk_window *h = &l->conv.h, *w = &l->conv.w;
    snprintf(name, 256,
             "%s of %zux%zux%zux%zu to %zu, kernel %zux%zu, stride %zux%zu, pad %zux%zu, dilation %zux%zu, "
             "%zu groups, %d shards",
             part, l->x.n, l->x.c, l->x.h, l->x.w, l->out, h->kernel, w->kernel, h->stride, w->stride, h->pad, w->pad,
             h->dilation, w->dilation, l->conv.groups, l->shards);
}

/* The offset of each result: y, y after ReLU, dx, dx masked by x, dw, db. */
enum { Y, Y_RELU, DX, DX_MASKED, DW, DB, PARTS };
typedef struct layer_layout {
    size_t at[PARTS + 1];
} layer_layout;

static inline layer_layout layer_layout_of(const layer *l)
{
    size_t outs = lk__shape_count(layer_y(l)), ins = lk__shape_count(l->x), weights = layer_weights(l);
    const size_t sizes[PARTS] = {outs, outs, ins, ins, weights, l->no_bias ? 0 : l->out};
    layer_layout layout = {{0}};
    for (size_t i = 0; i < PARTS; i++)
        layout.at[i + 1] = layout.at[i] + sizes[i];
    return layout;
}

/* Tensors on the device. */

/* Whether the device's linear layers read an image as it is in memory. */
static inline bool layer_has_view(const lk_device *d, const layer *l)
{
    return layer_is_linear(l) && d->type->flat_views && l->x.h * l->x.w > 1;
}

static inline lk_device_weight layer_weight(const lk_device *d, const layer *l)
{
    if (layer_is_linear(l))
        return (lk_device_weight){
            .out = l->out, .in = lk__shape_sample(l->x), .pixels = layer_has_view(d, l) ? l->x.h * l->x.w : 1};
    return (lk_device_weight){
        .out = l->out, .in = l->x.c / l->conv.groups, .taps = layer_taps(l), .groups = l->conv.groups, .pixels = 1};
}

/* The shape of x and dx in device memory; a view has the shape of the image. */
static inline lk_shape layer_stored(const lk_device *d, const layer *l)
{
    if (!layer_is_linear(l) || layer_has_view(d, l))
        return l->x;
    return (lk_shape){.n = l->x.n, .c = lk__shape_sample(l->x), .h = 1, .w = 1};
}

/* Index in features (n, c, h, w) of element i of (n, h, w, c). */
static inline size_t layer_feature(lk_shape x, size_t i)
{
    size_t pixels = x.h * x.w, channel = i % x.c, pixel = i / x.c % pixels;
    return i / x.c / pixels * lk__shape_sample(x) + channel * pixels + pixel;
}

/* The features of an image as one long pixel, as a plan has them. */
static inline lk_tensor layer_as_given(const lk_device *d, const layer *l, lk_tensor t)
{
    if (!layer_has_view(d, l))
        return t;
    t.pitch = t.shape.h * t.shape.w * lk__tensor_pitch(&t);
    t.shape = (lk_shape){.n = t.shape.n, .c = lk__shape_sample(t.shape), .h = 1, .w = 1};
    return t;
}

static inline lk_tensor layer_put(lk_device *d, const layer *l, const float *x)
{
    lk_shape stored = layer_stored(d, l);
    bool features = layer_is_linear(l) && !layer_has_view(d, l);
    float *ordered = new_floats(lk__shape_count(l->x));
    for (size_t i = 0; i < lk__shape_count(l->x); i++)
        ordered[features ? layer_feature(l->x, i) : i] = x[i];
    lk_tensor t = fx_input(d, stored, ordered);
    free(ordered);
    return layer_as_given(d, l, t);
}

static inline lk_tensor layer_blank(lk_device *d, const layer *l)
{
    return layer_as_given(d, l, fx_tensor(d, layer_stored(d, l)));
}

/* Reads the tensor as (n, h, w, c). */
static inline void layer_get(lk_device *d, const layer *l, const lk_tensor *dx, float *out)
{
    lk_tensor stored = fx_shape(d, layer_stored(d, l));
    bool features = layer_is_linear(l) && !layer_has_view(d, l);
    float *ordered = new_floats(lk__shape_count(l->x));
    stored.data = dx->data;
    fx_read(d, &stored, ordered);
    for (size_t i = 0; i < lk__shape_count(l->x); i++)
        out[i] = ordered[features ? layer_feature(l->x, i) : i];
    free(ordered);
}

/* Calls of the slots of both kinds of layers. A dropout is behind a forward pass, or between the ReLU that made the
 * mask and the layer; only linear layers take one. */

static inline void *layer_scratch(lk_device *d, const layer *l)
{
    lk_shape flat = {.n = l->x.n, .c = lk__shape_sample(l->x), .h = 1, .w = 1};
    return fx_blank(d, layer_is_linear(l) ? d->kernels->linear_scratch(d, flat, layer_y(l))
                                          : d->kernels->conv2d_scratch(d, &l->conv, l->x, layer_y(l)));
}

static inline void layer_forward(lk_device *d, const layer *l, const lk_tensor *x, const void *w, const void *b,
                                 bool relu, const lk_dropout_desc *dropout, lk_tensor *y, void *scratch)
{
    if (layer_is_linear(l))
        d->kernels->linear_forward(d, x, w, b, relu, dropout, y, scratch);
    else
        d->kernels->conv2d_forward(d, &l->conv, x, w, b, relu, y, scratch);
}

static inline void layer_grad_input(lk_device *d, const layer *l, const lk_tensor *dy, const void *w,
                                    const lk_tensor *mask, const lk_dropout_desc *dropout, lk_tensor *dx, void *scratch)
{
    if (layer_is_linear(l))
        d->kernels->linear_grad_input(d, dy, w, mask, dropout, dx, scratch);
    else
        d->kernels->conv2d_grad_input(d, &l->conv, dy, w, mask, dx, scratch);
}

static inline void layer_grad_weight(lk_device *d, const layer *l, const lk_tensor *x, const lk_tensor *dy,
                                     const lk_shards *shards, const fx_grads *grads, void *scratch)
{
    lk_partials dw = fx_weight_sums(grads), db = l->no_bias ? (lk_partials){0} : fx_bias_sums(grads);
    if (layer_is_linear(l))
        d->kernels->linear_grad_weight(d, x, dy, shards, dw, db, scratch);
    else
        d->kernels->conv2d_grad_weight(d, &l->conv, x, dy, shards, dw, db, scratch);
}

/* Runs. */

/* A float that no kernel computes. */
static const float unused = 0x1.234566p-100f;

/* Fills the slots of dw that a wave must leave alone, or checks them: those behind the partial sums before and after
 * the wave, which an engine need not have. In host memory only. */
static inline void layer_unused_slots(const layer *l, const lk_shards *shards, const fx_grads *grads, bool check)
{
    lk_partials dw = fx_weight_sums(grads);
    int end = shards->depth, first = shards->depth;
    for (int i = 0; i < shards->count; i++)
        end += 1 - shards->merges[i];
    first = end > first ? end : first;
    for (int slot = first; fx_builds && slot < (int)fx_slots(l->shards); slot++) {
        float *at = lk__partials_slot(dw, slot);
        for (size_t i = 0; i < layer_weights(l); i++) {
            if (check)
                assert_true(at[i] == unused);
            else
                at[i] = unused;
        }
    }
}

/* Computes all results of a layer, wave by wave. */
static inline void run_layer(lk_device *d, const void *arg, float *out)
{
    const layer *l = arg;
    lk_device_weight weight = layer_weight(d, l);
    lk_shape ys = layer_y(l);
    layer_layout to = layer_layout_of(l);
    lk_tensor x = layer_put(d, l, l->values), dy = fx_input(d, ys, l->dy);
    lk_tensor y[2] = {fx_tensor(d, ys), fx_tensor(d, ys)}, dx[2] = {layer_blank(d, l), layer_blank(d, l)};
    void *w = fx_weights(d, &weight, l->w), *b = l->no_bias ? NULL : fx_parameter(d, l->b, l->out);
    void *scratch = layer_scratch(d, l);
    fx_grads grads = fx_grads_make(d, weight, layer_weights(l), fx_slots(l->shards));
    for (int lo = 0, wave = l->wave ? l->wave : l->shards; lo < l->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, l->x.n, l->shards, lo, wave);
        lk_tensor part_x = lk__tensor_rows(&x, v.first, v.n), part_dy = lk__tensor_rows(&dy, v.first, v.n);
        for (int i = 0; i < 2; i++) {
            lk_tensor part_y = lk__tensor_rows(&y[i], v.first, v.n), part_dx = lk__tensor_rows(&dx[i], v.first, v.n);
            layer_forward(d, l, &part_x, w, b, i, NULL, &part_y, scratch);
            layer_grad_input(d, l, &part_dy, w, i ? &part_x : NULL, NULL, &part_dx, scratch);
        }
        layer_unused_slots(l, &v.shards, &grads, false);
        layer_grad_weight(d, l, &part_x, &part_dy, &v.shards, &grads, scratch);
        layer_unused_slots(l, &v.shards, &grads, true);
    }
    fx_grads_read(d, &grads, layer_weights(l), !l->no_bias, out + to.at[DW]);
    for (int i = 0; i < 2; i++) {
        fx_read(d, &y[i], out + to.at[Y + i]);
        layer_get(d, l, &dx[i], out + to.at[DX + i]);
    }
}

/* A forward with a ReLU, and an input gradient with the mask of the ReLU before it. */
static inline void run_relus(lk_device *d, const void *arg, float *out)
{
    const layer *l = arg;
    lk_device_weight weight = layer_weight(d, l);
    lk_shape ys = layer_y(l);
    lk_tensor x = layer_put(d, l, l->values), dy = fx_input(d, ys, l->dy), mask = layer_put(d, l, l->mask);
    lk_tensor y = fx_tensor(d, ys), dx = layer_blank(d, l);
    void *w = fx_weights(d, &weight, l->w), *b = fx_parameter(d, l->b, l->out), *scratch = layer_scratch(d, l);
    layer_forward(d, l, &x, w, b, true, NULL, &y, scratch);
    layer_grad_input(d, l, &dy, w, &mask, NULL, &dx, scratch);
    fx_read(d, &y, out);
    layer_get(d, l, &dx, out + lk__shape_count(ys));
}

/* References. */

typedef struct layer_sums {
    layer_layout to;
    double *sum, *squares; /* of the products of each result */
} layer_sums;

static inline void add_product(layer_sums *s, size_t at, double product)
{
    s->sum[at] += product;
    s->squares[at] += product * product;
}

/* Adds all products of output channel o of one output pixel. */
static inline void layer_refer_output(const layer *l, layer_sums *s, size_t n, size_t oy, size_t ox, size_t o)
{
    lk_conv2d_desc conv = layer_window(l);
    lk_shape x = l->x, y = layer_y(l);
    size_t kh = conv.h.kernel, kw = conv.w.kernel;
    size_t in = x.c / conv.groups, first = o / (l->out / conv.groups) * in;
    size_t at_y = ((n * y.h + oy) * y.w + ox) * l->out + o;
    double dy = (double)l->dy[at_y], sum = l->no_bias ? 0 : (double)l->b[o], squares = 0;
    for (size_t tap = 0; tap < kh * kw; tap++) {
        size_t iy = oy * conv.h.stride + tap / kw * conv.h.dilation - conv.h.pad;
        size_t ix = ox * conv.w.stride + tap % kw * conv.w.dilation - conv.w.pad;
        if (iy >= x.h || ix >= x.w) /* beyond the edge; negative values wrap around */
            continue;
        for (size_t i = 0; i < in; i++) {
            size_t at_x = ((n * x.h + iy) * x.w + ix) * x.c + first + i, at_w = (o * in + i) * kh * kw + tap;
            double value = (double)l->values[at_x], w = (double)l->w[at_w];
            sum += value * w;
            squares += value * w * value * w;
            add_product(s, s->to.at[DX] + at_x, dy * w);
            add_product(s, s->to.at[DW] + at_w, dy * value);
        }
    }
    s->sum[s->to.at[Y] + at_y] = sum;
    s->squares[s->to.at[Y] + at_y] = squares;
    if (!l->no_bias)
        add_product(s, s->to.at[DB] + o, dy);
}

static inline void layer_refer(const layer *l, layer_sums *s)
{
    lk_shape y = layer_y(l);
    const size_t *at = s->to.at;
    for (size_t p = 0; p < y.n * y.h * y.w; p++) {
        for (size_t o = 0; o < l->out; o++)
            layer_refer_output(l, s, p / y.w / y.h, p / y.w % y.h, p % y.w, o);
    }
    for (size_t i = 0; i < at[DX]; i++) {
        size_t from = i % (at[Y_RELU] ? at[Y_RELU] : 1);
        s->sum[i] = i < at[Y_RELU] ? s->sum[i] : fmax(s->sum[from], 0);
        s->squares[i] = s->squares[from];
    }
    for (size_t i = 0; i < at[DW] - at[DX_MASKED]; i++) {
        s->sum[at[DX_MASKED] + i] = l->values[i] > 0 ? s->sum[at[DX] + i] : 0;
        s->squares[at[DX_MASKED] + i] = l->values[i] > 0 ? s->squares[at[DX] + i] : 0;
    }
}

/* The transforms of Winograd's tiles mix the elements of a tile: an error is proportional to the largest sums, not to
 * its own. The tests pass with a factor of 1; 4 allows errors that are twice as large. */
static inline void layer_bound_tiles(const layer_sums *s)
{
    for (size_t part = 0; part < PARTS; part++) {
        double most = 0;
        for (size_t i = s->to.at[part]; i < s->to.at[part + 1]; i++)
            most = fmax(most, s->squares[i]);
        for (size_t i = s->to.at[part]; i < s->to.at[part + 1]; i++)
            s->squares[i] = 4 * most;
    }
}

static inline void layer_compare(const layer *l, const float *got)
{
    static const char *const names[PARTS] = {"forward",     "forward and ReLU", "grad_input", "grad_input, masked",
                                             "grad_weight", "grad_weight, bias"};
    layer_layout to = layer_layout_of(l);
    layer_sums s = {.to = to, .sum = new_doubles(to.at[PARTS]), .squares = new_doubles(to.at[PARTS])};
    layer_refer(l, &s);
    if (l->conv.tile > 1)
        layer_bound_tiles(&s);
    for (size_t i = 0; i < to.at[PARTS]; i++)
        s.squares[i] = fx_bound(s.sum[i], s.squares[i]);
    for (size_t i = 0; i < PARTS; i++) {
        char what[256];
        layer_name(l, names[i], what);
        fx_near_each(what, got + to.at[i], s.sum + to.at[i], FX_NEAR, s.squares + to.at[i], to.at[i + 1] - to.at[i]);
    }
    free(s.sum);
    free(s.squares);
}

/* Properties. */

static inline void layer_check_sample(layer l, size_t sample, const float *want)
{
    char what[256];
    layer_layout all = layer_layout_of(&l);
    l.x.n = l.x.n ? 1 : 0;
    l.shards = 1;
    l.wave = 0;
    l.values += sample * lk__shape_count(l.x);
    l.dy += sample * lk__shape_count(layer_y(&l));
    layer_layout one = layer_layout_of(&l);
    layer_name(&l, "a sample alone", what);
    float *got = fx_bits_brief(what, run_layer, &l, one.at[PARTS]);
    for (size_t i = Y; i <= DX_MASKED; i++) {
        size_t count = one.at[i + 1] - one.at[i];
        fx_same(what, got + one.at[i], want + all.at[i] + sample * count, count);
    }
    free(got);
}

static inline void layer_check_relus(const layer *l, const float *got)
{
    layer_layout to = layer_layout_of(l);
    size_t outs = to.at[Y_RELU], ins = to.at[DX_MASKED] - to.at[DX];
    float *y = new_floats(outs), *dx = new_floats(ins);
    for (size_t i = 0; i < outs; i++)
        y[i] = got[i] <= 0 ? 0.0f : got[i];
    for (size_t i = 0; i < ins; i++)
        dx[i] = l->values[i] <= 0 ? 0.0f : got[to.at[DX] + i];
    fx_same("ReLU behind a layer", got + to.at[Y_RELU], y, outs);
    fx_same("mask of a gradient", got + to.at[DX_MASKED], dx, ins);
    free(y);
    free(dx);
}

/* Channels [first, first + part) of every pixel of c channels. */
static inline float *channels_of(const float *all, size_t count, size_t c, size_t first, size_t part)
{
    float *some = new_floats(count / c * part);
    for (size_t i = 0; i < count / c * part; i++)
        some[i] = all[i / part * c + first + i % part];
    return some;
}

static inline void layer_check_group(const layer *all, size_t g, const float *want)
{
    size_t in = all->x.c / all->conv.groups, out = all->out / all->conv.groups, weights = layer_weights(all);
    size_t ins = lk__shape_count(all->x), outs = lk__shape_count(layer_y(all));
    float *x = channels_of(all->values, ins, all->x.c, g * in, in);
    float *dy = channels_of(all->dy, outs, all->out, g * out, out);
    layer one = *all;
    one.x.c = in;
    one.out = out;
    one.conv.groups = 1;
    one.conv.tile = 0; /* groups are convolved directly */
    one.values = x;
    one.dy = dy;
    one.w += g * weights / all->conv.groups;
    one.b += g * out;
    layer_layout from = layer_layout_of(all), to = layer_layout_of(&one);
    char what[256];
    layer_name(all, "a group alone", what);
    float *got = fx_bits_brief(what, run_layer, &one, to.at[PARTS]);
    for (size_t i = 0; i < PARTS; i++) {
        size_t c = i < DX ? all->out : i < DW ? all->x.c : from.at[i + 1] - from.at[i], part = c / all->conv.groups;
        float *piece =
            channels_of(want + from.at[i], from.at[i + 1] - from.at[i], c ? c : 1, g * part, part ? part : 1);
        fx_same(what, got + to.at[i], piece, to.at[i + 1] - to.at[i]);
        free(piece);
    }
    free(got);
    free(x);
    free(dy);
}

/* Whether the case is for this device. The graph refuses a padding as large as the kernel; the CPU's kernels
 * accept it. */
static inline bool layer_applies(const layer *l)
{
    if (fx_builds)
        return l->effort != NOT_CPU;
    return layer_is_linear(l) ||
           (l->conv.h.pad < lk__window_extent(&l->conv.h) && l->conv.w.pad < lk__window_extent(&l->conv.w));
}

static inline void check_layer(layer l)
{
    l.shards = l.shards ? l.shards : 1;
    l.conv.groups = l.conv.groups || layer_is_linear(&l) ? l.conv.groups : 1;
    if (!layer_applies(&l))
        return;
    size_t ins = lk__shape_count(l.x), count = layer_layout_of(&l).at[PARTS];
    float *x = random_values(ins, 1), *dy = random_values(lk__shape_count(layer_y(&l)), 2);
    float *w = random_values(layer_weights(&l), 3), *b = random_values(l.out, 4);
    char what[256];
    for (size_t i = 0; i < ins; i++)
        x[i] = x[i] > -0.25f ? x[i] : 0.0f; /* zeros, negative and positive values */
    l.values = x, l.dy = dy, l.w = w, l.b = b;
    layer_name(&l, "results", what);
    bool thorough = l.effort == THOROUGH && fx_builds;
    float *got =
        thorough ? fx_bits_in_waves(what, run_layer, &l, count, &l.wave) : fx_bits_brief(what, run_layer, &l, count);
    layer_compare(&l, got);
    if (thorough) {
        layer_check_relus(&l, got);
        layer_check_sample(l, 0, got);
        bool small = l.x.h * l.x.w < 1000; /* more pixels test nothing more and take long */
        bool depthwise = l.x.c == l.conv.groups && l.out == l.conv.groups,
             same = !depthwise || precision == LK_PRECISION_FP32;
        for (size_t g = 0; l.conv.groups > 1 && small && same && g < l.conv.groups; g++)
            layer_check_group(&l, g, got);
    }
    for (size_t i = 0; l.each_sample && i < l.x.n; i++)
        layer_check_sample(l, i, got);
    free(got);
    free(x);
    free(dy);
    free(w);
    free(b);
}

/* Sets element `at` of every c elements. */
static inline void set_channel(float *x, size_t count, size_t c, size_t at, float value)
{
    for (size_t i = at; i < count; i += c)
        x[i] = value;
}

/* All inputs of a layer, random. */
typedef struct layer_values {
    float *x, *dy, *w, *b, *mask;
} layer_values;

static inline layer_values layer_draw(layer *l)
{
    size_t ins = lk__shape_count(l->x), outs = lk__shape_count(layer_y(l));
    layer_values v = {.x = random_values(ins, 1), .dy = random_values(outs, 2)};
    v.w = random_values(layer_weights(l), 3);
    v.b = random_values(l->out, 4);
    v.mask = random_values(ins, 5);
    l->values = v.x, l->dy = v.dy, l->w = v.w, l->b = v.b, l->mask = v.mask;
    return v;
}

static inline void layer_values_free(layer_values *v)
{
    free(v->x);
    free(v->dy);
    free(v->w);
    free(v->b);
    free(v->mask);
}

/* With a NaN in the bias of one channel, the channel's outputs are NaN. Where the result of the ReLU before is a
 * NaN, the gradient passes as where it is 1. All else stays. The CPU tests each channel, GPUs test some. */
static inline void check_layer_nans(layer l)
{
    l.shards = 1;
    l.conv.groups = l.conv.groups || layer_is_linear(&l) ? l.conv.groups : 1;
    if (!layer_applies(&l))
        return;
    size_t ins = lk__shape_count(l.x), outs = lk__shape_count(layer_y(&l));
    size_t most = fx_builds && l.x.c > l.out ? l.x.c : l.out, some = 1 + l.out / 7 < 5 ? 1 + l.out / 7 : 5;
    layer_values v = layer_draw(&l);
    for (size_t at = 0; at < most; at += fx_builds && l.effort == THOROUGH ? 1 : some) {
        size_t channel = at % l.out;
        float number = v.b[channel];
        set_channel(v.mask, ins, l.x.c, at % l.x.c, 1.0f);
        float *want = fx_bits_brief("ReLUs", run_relus, &l, outs + ins);
        set_channel(v.mask, ins, l.x.c, at % l.x.c, NAN);
        set_channel(want, outs, l.out, channel, NAN);
        v.b[channel] = NAN;
        float *got = fx_bits_brief("ReLUs with NaNs", run_relus, &l, outs + ins);
        fx_same("ReLUs with NaNs", got, want, outs + ins);
        v.b[channel] = number;
        free(want);
        free(got);
    }
    layer_values_free(&v);
}

/* A NaN of x reaches every result that reads it, a NaN of dy every element of dx that the mask passes. GPUs make NaNs
 * that have all bits but the sign. */
static inline void check_nan_factors(layer l)
{
    static const uint32_t nans[] = {0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f800001};
    l.shards = 1;
    l.conv.groups = 1;
    if (!layer_applies(&l))
        return;
    size_t ins = lk__shape_count(l.x), outs = lk__shape_count(layer_y(&l));
    layer_values v = layer_draw(&l);
    for (size_t k = 0; k < sizeof nans / sizeof *nans; k++) {
        float nan;
        memcpy(&nan, &nans[k], sizeof nan);
        set_channel(v.x, ins, l.x.c, l.x.c / 2, nan);
        set_channel(v.dy, outs, l.out, l.out / 2, nan);
        float *got = fx_bits_brief("NaNs", run_relus, &l, outs + ins);
        for (size_t i = 0; i < outs; i++)
            assert_true(isnan(got[i]));
        for (size_t i = 0; i < ins; i++)
            assert_true(v.mask[i] > 0.0f ? isnan(got[outs + i]) : got[outs + i] == 0.0f);
        free(got);
    }
    layer_values_free(&v);
}

static inline void check_layers(const layer *layers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_layer(layers[i]);
}

#endif
