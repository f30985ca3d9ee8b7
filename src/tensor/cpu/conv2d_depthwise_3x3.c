/* conv2d_depthwise_3x3.c - depthwise convolutions of 3x3 windows; see conv2d_depthwise_3x3.h. */
#include "tensor/cpu/conv2d_depthwise_3x3.h"

#include "tensor/cpu/cpu.h"

/* TILE: neighbouring pixels of a row that share loads. A band reads and writes about BAND_FLOATS floats: they stay in
 * the second-level cache while one vector of channels after the other passes through it. */
enum { TILE = 4, BAND_FLOATS = 64 * 1024, TASKS_A_THREAD = 4 };

typedef struct band_job {
    lk_depthwise_pass of;
    size_t rows, bands; /* rows of a band, bands of an image */
    size_t tasks;
} band_job;

/* The rows or columns of a window that lie inside the image. */
typedef struct inside {
    int first, count;
} inside;

static const inside all = {0, 3}, not_first = {1, 2}, not_last = {0, 2};

/* A vector of channels. */
typedef struct lane {
    const lk_depthwise_pass *of;
    v_f32 tap[3][3], start;
    size_t channels; /* that exist, V at most */
    size_t src_x, src_y;
    const float *input; /* of the image, from the first of the channels on */
    float *output;
    const float *mask; /* of the image, or NULL */
    /* What the next band reads and writes: prefetched in the order of memory, which hardware continues. */
    const float *next_input;
    float *next_output;
} lane;

/* `count` pixels from pixel x of row y on, with the window's rows ky and columns kx. whole: all channels exist. */
LK_INLINE void add_pixels(lane *l, size_t y, size_t x, inside ky, inside kx, int stride, int count, bool whole)
{
    v_f32 acc[TILE], column[2 * TILE + 1];
    size_t n = whole ? V : l->channels, at = (y * l->of->dst.w + x) * l->src_x;
    size_t line = y * (size_t)stride + (size_t)ky.first - 1, pixel = x * (size_t)stride + (size_t)kx.first - 1;
    const float *src = l->input + line * l->src_y + pixel * l->src_x;
    const int columns = (count - 1) * stride + kx.count, area = stride * stride;
    LK_UNROLL for (int i = 0; i < count; i++)
    {
        acc[i] = l->start;
        for (int j = 0; j < area; j++)
            __builtin_prefetch(l->next_input + (i * area + j) * V, 0, 2);
        __builtin_prefetch(l->next_output + i * V, 1);
    }
    LK_UNROLL for (int k = 0; k < ky.count; k++, src += l->src_y)
    {
        LK_UNROLL for (int i = 0; i < columns; i++) column[i] = v_load_some(src + (size_t)i * l->src_x, n);
        LK_UNROLL for (int j = 0; j < kx.count; j++)
        {
            LK_UNROLL for (int i = 0; i < count; i++) acc[i] =
                v_fma(column[i * stride + j], l->tap[ky.first + k][kx.first + j], acc[i]);
        }
    }
    l->next_input += count * area * V;
    l->next_output += count * V;
    LK_UNROLL for (int i = 0; i < count; i++)
    {
        size_t to = at + (size_t)i * l->src_x;
        if (l->of->relu)
            acc[i] = v_relu(acc[i]);
        if (l->mask)
            acc[i] = v_relu_grad(v_load_some(l->mask + to, n), acc[i]);
        v_store_some(l->output + to, acc[i], n);
    }
}

LK_INLINE void add_row(lane *l, size_t y, inside ky, int stride, bool whole)
{
    size_t width = l->of->dst.w, end = lk__size_min((l->of->src.w - 2) / (size_t)stride + 1, width), x = 1;
    add_pixels(l, y, 0, ky, not_first, stride, 1, whole);
    for (; x + TILE <= end; x += TILE)
        add_pixels(l, y, x, ky, all, stride, TILE, whole);
    for (; x + TILE / 2 <= end; x += TILE / 2)
        add_pixels(l, y, x, ky, all, stride, TILE / 2, whole);
    for (; x < end; x++)
        add_pixels(l, y, x, ky, all, stride, 1, whole);
    if (x < width)
        add_pixels(l, y, x, ky, not_last, stride, 1, whole);
}

LK_INLINE void add_rows(lane *l, size_t y, size_t end, int stride, bool whole)
{
    if (y == 0 && y < end)
        add_row(l, y++, not_first, stride, whole);
    for (; y < end && y * (size_t)stride + 1 < l->of->src.h; y++)
        add_row(l, y, all, stride, whole);
    if (y < end)
        add_row(l, y, not_last, stride, whole);
}

static void do_band(const band_job *job, size_t index)
{
    const lk_depthwise_pass *p = &job->of;
    size_t image = index / job->bands, y = index % job->bands * job->rows, end = lk__size_min(y + job->rows, p->dst.h);
    lane l = {.of = p, .src_x = p->src.c, .src_y = p->src.w * p->src.c};
    const float *input = p->input + image * lk__shape_sample(p->src);
    float *output = p->output + image * lk__shape_sample(p->dst);
    l.next_input = input + end * p->stride * l.src_y;
    l.next_output = output + end * p->dst.w * p->dst.c;
    for (size_t c = 0; c < p->src.c; c += V) {
        l.channels = lk__size_min(p->src.c - c, V);
        l.input = input + c;
        l.output = output + c;
        l.mask = p->mask ? p->mask + image * lk__shape_sample(p->dst) + c : NULL;
        l.start = v_load(p->start + c);
        LK_UNROLL for (int tap = 0; tap < 9; tap++) l.tap[tap / 3][tap % 3] =
            v_load(p->taps + (size_t)tap * p->lanes + c);
        if (l.channels < V)
            p->stride == 1 ? add_rows(&l, y, end, 1, false) : add_rows(&l, y, end, 2, false);
        else
            p->stride == 1 ? add_rows(&l, y, end, 1, true) : add_rows(&l, y, end, 2, true);
    }
}

/* Bands that follow each other, since a band prefetches the next one. */
static void bands_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const band_job *job = arg;
    size_t count = job->of.dst.n * job->bands;
    for (size_t band = index * count / job->tasks; band < (index + 1) * count / job->tasks; band++)
        do_band(job, band);
}

void lk__depthwise_pass_run(lk_pool *pool, const lk_depthwise_pass *pass)
{
    size_t wanted = lk__cpu_tasks((size_t)lk__pool_threads(pool), TASKS_A_THREAD);
    size_t row = pass->dst.c * (pass->dst.w + pass->stride * pass->src.w);
    band_job job = {.of = *pass, .tasks = wanted};
    if (pass->dst.n == 0)
        return;
    job.rows = lk__box_band_rows(pass->dst.h, row, BAND_FLOATS, lk__size_divide_up(wanted, pass->dst.n));
    job.bands = lk__size_divide_up(pass->dst.h, job.rows);
    lk__pool_run(pool, job.tasks, bands_task, &job);
}
