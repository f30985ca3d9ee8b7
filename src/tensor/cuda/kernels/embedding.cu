/* embedding.cu - a table of vectors, one for each id.
 *
 * A block has one row of the gradient: it looks at all tokens (ids of the wave) in their order, tile by tile, and lists
 * those of its row. A thread then adds one column of their dy, and folds the shards over the tree in its own stack. */
#include "tensor/cuda/kernels/vec.cuh"

enum {
    COLUMNS = 128, /* threads of a block of the gradient, and tokens of a tile */
    WARPS = COLUMNS / LK_WARP,
    LEAVES = 1024 /* of a launch */
};

/* Where the ids of x are: token t is in sample t / sample. */
struct ids {
    size_t rows;
    unsigned sample;       /* tokens of a sample */
    unsigned stride, step; /* elements from one sample to the next, and from one token to the next */
};

static ids ids_of(const lk_embedding_desc *desc, const lk_tensor *x)
{
    bool sequence = x->shape.w > 1;
    return {.rows = desc->rows,
            .sample = (unsigned)lk__shape_sample(x->shape),
            .stride = (unsigned)(x->shape.w * lk__tensor_pitch(x)),
            .step = sequence ? (unsigned)lk__tensor_pitch(x) : 1};
}

/* The row of a token's id; `rows` if there is none. */
template <class T>
static __device__ size_t row_of(const ids &s, const T *x, size_t token)
{
    size_t sample = token / s.sample;
    float id = (float)x[sample * s.stride + (token - sample * s.sample) * s.step];
    return id >= 0.0f && id < (float)s.rows && floorf(id) == id ? (size_t)id : s.rows;
}

/* A thread has one element of y. */
template <class T>
static __global__ void forward(ids s, size_t count, unsigned width, unsigned pitch, const T *x, const float *w, T *y)
{
    size_t i = lk__cuda_thread();
    if (i >= count)
        return;
    size_t token = i / pitch;
    unsigned column = (unsigned)(i - token * pitch);
    size_t row = row_of(s, x, token);
    float value = row < s.rows && column < width ? w[row * width + column] : __int_as_float(0x7fc00000);
    y[i] = (T)(column < width ? value : 0.0f);
}

extern "C" void lk__cuda_embedding_forward(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x,
                                           const float *w, lk_tensor *y)
{
    size_t count = lk__cuda_elements(y);
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count == 0)
        return;
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        forward<<<lk__cuda_blocks(count), LK_THREADS, 0, stream>>>(ids_of(desc, x), count, (unsigned)y->shape.c,
                                                                   (unsigned)lk__tensor_pitch(y), (const T *)x->data, w,
                                                                   (T *)y->data);
    });
    lk__cuda_launched(dev, "embedding_forward");
}

extern "C" size_t lk__cuda_embedding_scratch(lk_device *dev, const lk_embedding_desc *desc, lk_shape x, lk_shape y)
{
    (void)dev;
    (void)desc;
    (void)x;
    (void)y;
    return 0;
}

/* The leaves of a launch. */
struct leaves {
    int depth, count; /* entries on the stack before them; leaves */
    int end;          /* entries on the stack after them */
    unsigned first;   /* sample */
    uint16_t samples[LEAVES];
    uint8_t merges[LEAVES];
};

/* The sums of one column over the shards of a launch. */
struct column_sums {
    float stack[LK_TREE_MAX_DEPTH];
    float leaf;
    int depth, shard;
    size_t last; /* the end of the shard's tokens */
};

static __device__ void end_shard(const leaves &l, unsigned sample, column_sums &c)
{
    float sum = c.leaf;
    for (int i = 0; i < l.merges[c.shard]; i++)
        sum = c.stack[--c.depth] + sum;
    c.stack[c.depth++] = sum;
    c.leaf = 0;
    c.shard++;
    if (c.shard < l.count)
        c.last += (size_t)l.samples[c.shard] * sample;
}

/* Lists the tokens of the block's row among the tile's COLUMNS tokens, in ascending order; returns their number. */
static __device__ unsigned list_tokens(bool mine, size_t token, size_t list[COLUMNS])
{
    __shared__ unsigned counts[WARPS];
    unsigned found = __ballot_sync(0xffffffffu, mine), lane = threadIdx.x % LK_WARP, warp = threadIdx.x / LK_WARP;
    __syncthreads();
    if (lane == 0)
        counts[warp] = (unsigned)__popc(found);
    __syncthreads();
    unsigned before = 0, all = 0;
    for (unsigned i = 0; i < WARPS; i++) {
        before += i < warp ? counts[i] : 0;
        all += counts[i];
    }
    if (mine)
        list[before + (unsigned)__popc(found & ((1u << lane) - 1))] = token;
    __syncthreads();
    return all;
}

template <class T>
static __global__ void grad_weight(ids s, leaves l, size_t tokens, unsigned width, unsigned pitch, const T *x,
                                   const T *dy, lk_partials from, lk_partials to)
{
    __shared__ size_t list[COLUMNS];
    size_t row = blockIdx.x, first = (size_t)l.first * s.sample;
    for (unsigned begin = 0; begin < width; begin += COLUMNS) {
        unsigned column = begin + threadIdx.x;
        bool active = column < width;
        size_t at = row * width + column;
        column_sums c;
        c.leaf = 0;
        c.depth = l.depth;
        c.shard = 0;
        c.last = first + (size_t)l.samples[0] * s.sample;
        for (int slot = 0; active && slot < l.depth; slot++)
            c.stack[slot] = from.slot0[from.stride * (size_t)slot + at];
        for (size_t tile = first; tile < first + tokens; tile += COLUMNS) {
            size_t token = tile + threadIdx.x;
            bool mine = token < first + tokens && row_of(s, x, token) == row;
            unsigned found = list_tokens(mine, token, list);
            for (unsigned i = 0; active && i < found; i++) {
                while (list[i] >= c.last)
                    end_shard(l, s.sample, c);
                c.leaf += (float)dy[list[i] * pitch + column];
            }
        }
        while (active && c.shard < l.count)
            end_shard(l, s.sample, c);
        for (int slot = 0; active && slot < l.end; slot++)
            to.slot0[to.stride * (size_t)slot + at] = c.stack[slot];
    }
}

/* Leaves [first, first + LEAVES); `depth` entries are on the stack before them. */
static leaves leaves_of(const lk_shards *shards, int first, int depth)
{
    leaves l = {};
    l.depth = l.end = depth;
    l.count = shards->count - first < LEAVES ? shards->count - first : (int)LEAVES;
    l.first = (unsigned)shards->begin[first];
    for (int i = 0; i < l.count; i++) {
        l.samples[i] = (uint16_t)(shards->begin[first + i + 1] - shards->begin[first + i]);
        l.merges[i] = (uint8_t)shards->merges[first + i];
        l.end += 1 - l.merges[i];
    }
    return l;
}

/* A wave with more than LEAVES shards takes several launches; the stack between them may be deeper than dw has
 * slots. */
extern "C" void lk__cuda_embedding_grad_weight(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x,
                                               const lk_tensor *dy, const lk_shards *shards, lk_partials dw,
                                               void *scratch)
{
    (void)scratch;
    cudaStream_t stream = lk__cuda_stream(dev);
    size_t width = dy->shape.c, floats = desc->rows * width;
    ids s = ids_of(desc, x);
    lk_partials between = {NULL, floats}, from = dw;
    int depth = shards->depth;
    if (shards->count > LEAVES)
        between.slot0 = (float *)lk__cuda_scratch(dev, LK_TREE_MAX_DEPTH * floats * sizeof(float));
    if (shards->count > LEAVES && !between.slot0)
        return;
    for (int first = 0; first < shards->count; first += LEAVES) {
        leaves l = leaves_of(shards, first, depth);
        lk_partials to = first + LEAVES < shards->count ? between : dw;
        size_t tokens = (shards->begin[first + l.count] - l.first) * s.sample;
        lk__cuda_by_dtype(dy->dtype, [&](auto kind) {
            using T = typename decltype(kind)::T;
            grad_weight<<<(unsigned)desc->rows, COLUMNS, 0, stream>>>(
                s, l, tokens, (unsigned)width, (unsigned)lk__tensor_pitch(dy), (const T *)x->data, (const T *)dy->data,
                from, to);
        });
        depth = l.end;
        from = to;
    }
    lk__cuda_launched(dev, "embedding_grad_weight");
}
