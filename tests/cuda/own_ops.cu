/* own_ops.cu - the functions of CUDA of the tests' own ops (own_ops.h), as a program writes them: kernels on the stream
 * of the call. */
#include <cuda_runtime.h>

#include <lockstep/op.h>

enum { THREADS = 128 };

static size_t elements_of(const lk_op_args *args)
{
    return args->n * args->y_size.height * args->y_size.width * args->y_size.channels;
}

/* Calls f(element) for each of count elements. */
template <class F>
static __global__ void each(size_t count, F f)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        f(i);
}

template <class F>
static void run(const lk_op_args *args, size_t count, F f)
{
    each<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, (cudaStream_t)args->stream>>>(count, f);
}

struct swish_forward {
    lk_op_args a;
    __device__ void operator()(size_t i) const
    {
        float x = a.x[0][i], s = 1.0f / (1.0f + expf(-a.param[0][i % a.y_size.channels] * x));
        a.workspace[i] = s;
        a.y[i] = x * s;
    }
};

struct swish_grad_input {
    lk_op_args a;
    __device__ void operator()(size_t i) const
    {
        float x = a.x[0][i], s = a.workspace[i];
        a.dx[0][i] = a.dy[i] * (s + a.param[0][i % a.y_size.channels] * x * s * (1.0f - s));
    }
};

/* A thread has one channel, and adds its elements in their order. */
struct swish_grad_param {
    lk_op_args a;
    size_t count;
    __device__ void operator()(size_t channel) const
    {
        float sum = 0;
        for (size_t i = channel; i < count; i += a.y_size.channels) {
            float x = a.x[0][i], s = a.workspace[i];
            sum += a.dy[i] * x * x * s * (1.0f - s);
        }
        a.grad[0][channel] += sum;
    }
};

extern "C" void own_cuda_swish_forward(const lk_op_args *args)
{
    run(args, elements_of(args), swish_forward{*args});
}

extern "C" void own_cuda_swish_backward(const lk_op_args *args)
{
    if (args->dx[0])
        run(args, elements_of(args), swish_grad_input{*args});
    if (args->grad[0])
        run(args, args->y_size.channels, swish_grad_param{*args, elements_of(args)});
}

struct gate_forward {
    lk_op_args a;
    __device__ void operator()(size_t i) const
    {
        size_t channel = i % a.y_size.channels;
        a.y[i] = a.param[0][channel] * a.x[0][i] * a.x[1][i] + (a.param[1] ? a.param[1][channel] : 0.0f);
    }
};

struct gate_grad_input {
    lk_op_args a;
    __device__ void operator()(size_t i) const
    {
        float w = a.param[0][i % a.y_size.channels];
        if (a.dx[0])
            a.dx[0][i] = w * a.x[1][i] * a.dy[i];
        if (a.dx[1])
            a.dx[1][i] = w * a.x[0][i] * a.dy[i];
    }
};

struct gate_grad_param {
    lk_op_args a;
    size_t count;
    __device__ void operator()(size_t channel) const
    {
        float weight = 0, bias = 0;
        for (size_t i = channel; i < count; i += a.y_size.channels) {
            weight += a.x[0][i] * a.x[1][i] * a.dy[i];
            bias += a.dy[i];
        }
        a.grad[0][channel] += weight;
        if (a.grad[1])
            a.grad[1][channel] += bias;
    }
};

extern "C" void own_cuda_gate_forward(const lk_op_args *args)
{
    run(args, elements_of(args), gate_forward{*args});
}

extern "C" void own_cuda_gate_backward(const lk_op_args *args)
{
    if (args->dx[0] || args->dx[1])
        run(args, elements_of(args), gate_grad_input{*args});
    if (args->grad[0])
        run(args, args->y_size.channels, gate_grad_param{*args, elements_of(args)});
}

struct bucket_forward {
    lk_op_args a;
    float most;
    __device__ void operator()(size_t i) const
    {
        float id = floorf((a.x[0][i] + 1.0f) * ((most + 1) / 2));
        a.y[i] = id < 0.0f ? 0.0f : id > most ? most : id;
    }
};

extern "C" void own_cuda_bucket_forward(const lk_op_args *args)
{
    run(args, elements_of(args), bucket_forward{*args, 15});
}

extern "C" void own_cuda_bucket_backward(const lk_op_args *args)
{
    if (args->dx[0])
        (void)cudaMemsetAsync(args->dx[0], 0, elements_of(args) * sizeof(float), (cudaStream_t)args->stream);
}
