/* transform_resize.c - resizes images with a bilinear filter as wide as the step between output
 * pixels; gives the same bytes as Pillow's resize.
 *
 * One pass along rows and one along columns, with rounding to bytes in between. Weights are
 * computed once for an image, in double; pixels are computed with integers only. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "data/transform/transform.h"

/* A weight of 1 is 2^22, as in Pillow: the sum of bytes times weights fits 31 bits. */
enum { FRACTION = 22 };

/* The weights of one axis: output pixel i is a sum of the `taps` input pixels from first[i] on. */
typedef struct axis {
    size_t in, out, taps;
    uint32_t *first;  // (out)
    int32_t *weights; // (out, taps)
} axis;

/* The input pixels under the filter's triangle for output pixel i. */
typedef struct reach {
    double centre, slope; /* of the triangle, in input pixels */
    size_t begin, end;
} reach;

static reach reach_of(const axis *a, size_t i)
{
    double step = (double)a->in / (double)a->out;
    double width = step < 1 ? 1 : step; /* half the base of the triangle */
    reach r = {.centre = ((double)i + .5) * step, .slope = 1 / width};
    double begin = r.centre - width + .5, end = r.centre + width + .5;
    r.begin = begin > 0 ? (size_t)begin : 0;
    r.end = lk__size_min((size_t)end, a->in);
    return r;
}

static size_t count_taps(const axis *a)
{
    size_t most = 1;
    for (size_t i = 0; i < a->out; i++) {
        reach r = reach_of(a, i);
        most = lk__size_max(most, r.end - r.begin);
    }
    return most;
}

static double triangle(const reach *r, size_t x)
{
    double t = ((double)x - r->centre + .5) * r->slope;
    t = t < 0 ? -t : t;
    return t < 1 ? 1 - t : 0;
}

/* Weights outside of the triangle are 0: all output pixels have the same number of weights. */
static void set_weights(axis *a)
{
    for (size_t i = 0; i < a->out; i++) {
        reach r = reach_of(a, i);
        size_t first = lk__size_min(r.begin, a->in - a->taps);
        double sum = 0;
        for (size_t x = r.begin; x < r.end; x++)
            sum += triangle(&r, x);
        for (size_t k = 0; k < a->taps; k++) {
            size_t x = first + k;
            double w = x >= r.begin && x < r.end ? triangle(&r, x) : 0;
            a->weights[i * a->taps + k] = (int32_t)(.5 + w / sum * (1 << FRACTION));
        }
        a->first[i] = (uint32_t)first;
    }
}

static inline uint8_t to_byte(int32_t sum)
{
    sum >>= FRACTION;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

/* Rows of pixels, which are stride apart. */
typedef struct pixel_rows {
    const uint8_t *at;
    size_t stride;
} pixel_rows;

/* Computes `count` neighbouring pixels of a row from those of the rows under the weights. */
static inline void sum_taps(pixel_rows rows, const int32_t *restrict w, size_t taps, size_t count,
                            uint8_t *restrict out)
{
    const uint8_t *restrict in = rows.at;
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 1 << (FRACTION - 1);
        for (size_t k = 0; k < taps; k++)
            sum += in[k * rows.stride + i] * w[k];
        out[i] = to_byte(sum);
    }
}

/* The same for many weights: four at a time are added to sums. */
static void sum_many(pixel_rows rows, const int32_t *restrict w, size_t taps, size_t count, uint8_t *restrict out)
{
    enum { LANES = 32 };
    size_t stride = rows.stride;
    for (size_t first = 0; first < count; first += LANES) {
        size_t lanes = lk__size_min(LANES, count - first), k = 0;
        int32_t sums[LANES];
        const uint8_t *restrict in = rows.at + first;
        for (size_t i = 0; i < lanes; i++)
            sums[i] = 1 << (FRACTION - 1);
        for (; k + 4 <= taps; k += 4, in += 4 * stride)
            for (size_t i = 0; i < lanes; i++)
                sums[i] += in[i] * w[k] + in[stride + i] * w[k + 1] + in[2 * stride + i] * w[k + 2] +
                           in[3 * stride + i] * w[k + 3];
        for (; k < taps; k++, in += stride)
            for (size_t i = 0; i < lanes; i++)
                sums[i] += in[i] * w[k];
        for (size_t i = 0; i < lanes; i++)
            out[first + i] = to_byte(sums[i]);
    }
}

/* The same. Compilers turn the loop over pixels into vectors where the number of weights is a constant. */
static void sum_pixels(pixel_rows rows, const int32_t *w, size_t taps, size_t count, uint8_t *out)
{
    if (taps == 1)
        sum_taps(rows, w, 1, count, out);
    else if (taps == 2)
        sum_taps(rows, w, 2, count, out);
    else if (taps == 3)
        sum_taps(rows, w, 3, count, out);
    else if (taps == 4)
        sum_taps(rows, w, 4, count, out);
    else if (taps == 5)
        sum_taps(rows, w, 5, count, out);
    else
        sum_many(rows, w, taps, count, out);
}

/* Rows that the pass along rows computes at once, as vectors. */
enum { ROWS = 16, QUARTER = ROWS / 4 };

/* out[4 * i + j] is in[j][i]. */
static void join4(const uint8_t *const in[4], size_t count, uint8_t *restrict out)
{
    const uint8_t *restrict a = in[0], *restrict b = in[1], *restrict c = in[2], *restrict d = in[3];
    for (size_t i = 0; i < count; i++) {
        out[4 * i] = a[i];
        out[4 * i + 1] = b[i];
        out[4 * i + 2] = c[i];
        out[4 * i + 3] = d[i];
    }
}

/* Undoes join4. */
static void split4(const uint8_t *restrict in, size_t count, uint8_t *const out[4])
{
    uint8_t *restrict a = out[0], *restrict b = out[1], *restrict c = out[2], *restrict d = out[3];
    for (size_t i = 0; i < count; i++) {
        a[i] = in[4 * i];
        b[i] = in[4 * i + 1];
        c[i] = in[4 * i + 2];
        d[i] = in[4 * i + 3];
    }
}

/* Brings ROWS rows to columns (width, ROWS), by way of quarters (4, width, QUARTER). */
static void to_columns(const uint8_t *const rows[ROWS], size_t width, uint8_t *quarters, uint8_t *columns)
{
    const uint8_t *quarter[4];
    for (size_t j = 0; j < 4; j++) {
        quarter[j] = quarters + j * width * QUARTER;
        join4((const uint8_t *const[]){rows[j], rows[j + 4], rows[j + 8], rows[j + 12]}, width,
              quarters + j * width * QUARTER);
    }
    join4(quarter, width * QUARTER, columns);
}

/* Brings columns back to rows: undoes to_columns. */
static void to_rows(const uint8_t *columns, size_t width, uint8_t *quarters, uint8_t *const rows[ROWS])
{
    uint8_t *quarter[4];
    for (size_t j = 0; j < 4; j++)
        quarter[j] = quarters + j * width * QUARTER;
    split4(columns, width * QUARTER, quarter);
    for (size_t j = 0; j < 4; j++)
        split4(quarter[j], width, (uint8_t *const[]){rows[j], rows[j + 4], rows[j + 8], rows[j + 12]});
}

/* The memory of the pass along rows. */
typedef struct row_block {
    uint8_t *columns;  // (x.in, ROWS)
    uint8_t *results;  // (x.out, ROWS)
    uint8_t *quarters; // (max(x.in, x.out), ROWS)
    uint8_t *spare;    // (x.out)
} row_block;

/* Resizes `count` rows to x->out pixels each. A last block of fewer rows repeats its last one, and drops the results.
 */
static void pass_along_rows(const axis *x, pixel_rows in, size_t count, const row_block *b, uint8_t *out)
{
    for (size_t first = 0; first < count; first += ROWS) {
        const uint8_t *from[ROWS];
        uint8_t *to[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            from[r] = in.at + lk__size_min(first + r, count - 1) * in.stride;
            to[r] = first + r < count ? out + (first + r) * x->out : b->spare;
        }
        to_columns(from, x->in, b->quarters, b->columns);
        for (size_t i = 0; i < x->out; i++)
            sum_pixels((pixel_rows){b->columns + x->first[i] * ROWS, ROWS}, x->weights + i * x->taps, x->taps, ROWS,
                       b->results + i * ROWS);
        to_rows(b->results, x->out, b->quarters, to);
    }
}

/* Computes all output rows, of `width` pixels, each from the input rows under its weights. */
static void pass_along_columns(const axis *y, pixel_rows in, size_t width, uint8_t *out)
{
    for (size_t i = 0; i < y->out; i++)
        sum_pixels((pixel_rows){in.at + y->first[i] * in.stride, in.stride}, y->weights + i * y->taps, y->taps, width,
                   out + i * width);
}

/* The memory of a resize, in blocks of scratch. */
typedef struct workspace {
    uint8_t *out; // (C, y.out, x.out)
    axis x, y;
    bool columns_first;
    row_block block;
    uint8_t *plane; // after the first pass: (y.in, x.out), or (y.out, x.in)
} workspace;

/* The next block of scratch; only counts bytes if base is NULL. */
static void *carve(uint8_t *base, size_t *used, size_t bytes)
{
    void *block = base != NULL ? base + *used : NULL;
    *used += lk__size_round_up(bytes, LK_ALIGN);
    return block;
}

/* The result is the first block: scratch becomes the image afterwards. */
static size_t lay_out(workspace *ws, size_t channels, uint8_t *base)
{
    size_t used = 0;
    axis *both[] = {&ws->x, &ws->y};
    ws->out = carve(base, &used, channels * ws->y.out * ws->x.out);
    for (size_t i = 0; i < 2; i++) {
        both[i]->first = carve(base, &used, both[i]->out * sizeof *both[i]->first);
        both[i]->weights = carve(base, &used, both[i]->out * both[i]->taps * sizeof *both[i]->weights);
    }
    ws->block.columns = carve(base, &used, ws->x.in * ROWS);
    ws->block.results = carve(base, &used, ws->x.out * ROWS);
    ws->block.quarters = carve(base, &used, lk__size_max(ws->x.in, ws->x.out) * ROWS);
    ws->block.spare = carve(base, &used, ws->x.out);
    ws->plane = carve(base, &used, ws->columns_first ? ws->y.out * ws->x.in : ws->y.in * ws->x.out);
    return used;
}

/* Resizes one plane (y.in, x.in), whose rows are stride apart, to out (y.out, x.out). */
static void resample_plane(const workspace *ws, const uint8_t *in, size_t stride, uint8_t *out)
{
    const axis *x = &ws->x, *y = &ws->y;
    if (ws->columns_first) {
        pass_along_columns(y, (pixel_rows){in, stride}, x->in, ws->plane);
        pass_along_rows(x, (pixel_rows){ws->plane, x->in}, y->out, &ws->block, out);
    } else {
        pass_along_rows(x, (pixel_rows){in, stride}, y->in, &ws->block, ws->plane);
        pass_along_columns(y, (pixel_rows){ws->plane, x->out}, x->out, out);
    }
}

lk_status lk__image_resample(lk_image *image, const lk_image_region *box, size_t height, size_t width,
                             lk_image *scratch)
{
    size_t channels = image->channels;
    assert(box->top + box->height <= image->height && box->left + box->width <= image->width);
    assert(box->height > 0 && box->width > 0 && height > 0 && width > 0);
    if (image->height == height && image->width == width && box->height == height && box->width == width)
        return LK_OK;
    workspace ws = {.x = {.in = box->width, .out = width}, .y = {.in = box->height, .out = height}};
    /* Pillow 13's rule. The order matters, because each pass rounds. */
    ws.columns_first = height < box->height && (width >= box->width || box->height - height > 2 * (box->width - width));
    ws.x.taps = count_taps(&ws.x);
    ws.y.taps = count_taps(&ws.y);
    LK_TRY(lk__image_resize(scratch, 1, 1, lay_out(&ws, channels, NULL)));
    lay_out(&ws, channels, scratch->pixels);
    set_weights(&ws.x);
    set_weights(&ws.y);
    for (size_t c = 0; c < channels; c++) {
        const uint8_t *in = image->pixels + (c * image->height + box->top) * image->width + box->left;
        resample_plane(&ws, in, image->width, ws.out + c * height * width);
    }
    LK_TRY(lk__image_resize(scratch, channels, height, width));
    lk__image_swap(image, scratch);
    return LK_OK;
}

/* The shorter side becomes values[0], unless values[1] gives the width. */
static lk_sample_shape resized(const double *values, lk_sample_shape shape)
{
    size_t n = (size_t)values[0], h = shape.height, w = shape.width;
    if (values[1] > 0)
        return (lk_sample_shape){shape.channels, n, (size_t)values[1]};
    if (h == 0 || w == 0)
        return shape;
    size_t most = w <= h ? n * h / w : n * w / h;
    return w <= h ? (lk_sample_shape){shape.channels, most, n} : (lk_sample_shape){shape.channels, n, most};
}

static lk_status resize(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    (void)rng;
    lk_sample_shape to = resized(values, (lk_sample_shape){image->channels, image->height, image->width});
    if (to.width > LK_IMAGE_MAX_PIXELS / to.height)
        return lk__fail(LK_STATUS_FORMAT, "an image of %zu by %zu pixels is too thin to be brought to %zu by %zu",
                        image->width, image->height, to.width, to.height);
    lk_image_region box = {.height = image->height, .width = image->width};
    return lk__image_resample(image, &box, to.height, to.width, scratch);
}

const lk_transform_row lk__transform_resize = {
    .info = {"resize", "=N: the shorter side to N pixels; =H/W: to H rows and W columns; bilinear"},
    .values = {{.name = "N", .min = 1, .max = LK_MAX_SIDE, .whole = true},
               {.name = "W", .min = 1, .max = LK_MAX_SIDE, .whole = true}},
    .needed = 1,
    .shape = resized,
    .apply = resize,
};

enum { SIZE, AREA_MIN, AREA_MAX, RATIO_MIN, RATIO_MAX, TRIES = 10, DRAWS = 4 };

/* Draws a box of random area and ratio; false if it does not fit into the image. */
static bool draw_box(const double *values, const lk_rng *rng, const lk_image *image, uint64_t number,
                     lk_image_region *out)
{
    double all = (double)image->height * (double)image->width;
    double area = all * lk__draw_between(rng, DRAWS * number, values[AREA_MIN], values[AREA_MAX]);
    double ratio = lk__draw_ratio(rng, DRAWS * number + 1, values[RATIO_MIN], values[RATIO_MAX]);
    double width = rint(sqrt(area * ratio)), height = rint(sqrt(area / ratio));
    if (width < 1 || width > (double)image->width || height < 1 || height > (double)image->height)
        return false;
    out->height = (size_t)height;
    out->width = (size_t)width;
    out->top = lk__rng_below(lk__rng_u32(rng, DRAWS * number + 2), (uint32_t)(image->height - out->height + 1));
    out->left = lk__rng_below(lk__rng_u32(rng, DRAWS * number + 3), (uint32_t)(image->width - out->width + 1));
    return true;
}

/* The largest box in the middle with a legal ratio. */
static lk_image_region middle_box(const double *values, const lk_image *image)
{
    double h = (double)image->height, w = (double)image->width;
    lk_image_region box = {.height = image->height, .width = image->width};
    if (w / h < values[RATIO_MIN])
        box.height = (size_t)rint(w / values[RATIO_MIN]);
    else if (w / h > values[RATIO_MAX])
        box.width = (size_t)rint(h * values[RATIO_MAX]);
    box.height = lk__size_max(lk__size_min(box.height, image->height), 1);
    box.width = lk__size_max(lk__size_min(box.width, image->width), 1);
    box.top = (image->height - box.height) / 2;
    box.left = (image->width - box.width) / 2;
    return box;
}

lk_image_region lk__draw_resized_crop(const double *values, const lk_rng *rng, const lk_image *image)
{
    lk_image_region box = {0};
    for (uint64_t number = 0; number < TRIES; number++)
        if (draw_box(values, rng, image, number, &box))
            return box;
    return middle_box(values, image);
}

static lk_image_region resized_part(const double *values, const lk_rng *rng, size_t height, size_t width)
{
    return lk__draw_resized_crop(values, rng, &(lk_image){.height = height, .width = width});
}

/* Elements of try t: 4t area, 4t+1 ratio, 4t+2 row, 4t+3 column. */
static lk_status resized_crop(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    lk_image_region box = lk__draw_resized_crop(values, rng, image);
    return lk__image_resample(image, &box, (size_t)values[SIZE], (size_t)values[SIZE], scratch);
}

static lk_sample_shape square(const double *values, lk_sample_shape shape)
{
    return (lk_sample_shape){shape.channels, (size_t)values[SIZE], (size_t)values[SIZE]};
}

static const char *check_ranges(const double *values)
{
    bool right = values[AREA_MIN] <= values[AREA_MAX] && values[RATIO_MIN] <= values[RATIO_MAX];
    return right ? NULL : "the smallest area or ratio is above the largest";
}

const lk_transform_row lk__transform_resized_crop = {
    .info = {"resized_crop", "=N/0.08/1/0.75/1.333: a random part, of least and largest area and ratio, to NxN"},
    .values = {{.name = "N", .min = 1, .max = LK_MAX_SIDE, .whole = true},
               {.name = "AREA_MIN", .value = .08, .min = .0001, .max = 1},
               {.name = "AREA_MAX", .value = 1, .min = .0001, .max = 1},
               {.name = "RATIO_MIN", .value = 3. / 4, .min = .01, .max = 100},
               {.name = "RATIO_MAX", .value = 4. / 3, .min = .01, .max = 100}},
    .needed = 1,
    .random = lk__transform_always_random,
    .check = check_ranges,
    .shape = square,
    .apply = resized_crop,
    .part = resized_part,
};
