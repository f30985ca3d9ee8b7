/* marks.c - marks of the stream as CUDA events. Times are counted from a first event, whose time on the host's clock is
 * taken when the host has waited for it. */
#include "tensor/cuda/runtime/marks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tensor/cuda/runtime/memory.h"

struct lk_cuda_marks {
    cudaEvent_t first;
    double first_time; /* lk__clock() */
    cudaEvent_t events[LK_DEVICE_MARKS];
};

static lk_status start(lk_device *dev, lk_cuda_marks *marks)
{
    static const char what[] = "the first mark of a trace";
    LK_TRY(lk__cuda_status(dev, cudaEventCreate(&marks->first), what));
    LK_TRY(lk__cuda_status(dev, cudaEventRecord(marks->first, lk__cuda_beside(dev)), what));
    LK_TRY(lk__cuda_status(dev, cudaEventSynchronize(marks->first), what));
    marks->first_time = lk__clock();
    return LK_OK;
}

static lk_status create(lk_device *dev, lk_cuda_marks **out)
{
    lk_cuda_marks *marks;
    LK_TRY(lk__cuda_use(dev));
    LK_TRY(LK_ALLOC(1, "the marks of a trace", &marks));
    lk_status status = start(dev, marks);
    if (status == LK_OK)
        *out = marks;
    else
        lk__cuda_marks_destroy(marks);
    return status;
}

/* The mark is on the main stream and does not wait for the side stream: it changes no order. */
lk_status lk__cuda_mark(lk_device *dev, int index)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    if (!cuda->marks)
        LK_TRY(create(dev, &cuda->marks));
    cudaEvent_t *event = &cuda->marks->events[index];
    cudaStream_t stream = lk__cuda_beside(dev);
    if (!*event)
        LK_TRY(lk__cuda_status(dev, cudaEventCreate(event), "a mark of a trace"));
    return lk__cuda_status(dev, cudaEventRecord(*event, stream), "a mark of a trace");
}

bool lk__cuda_mark_time(lk_device *dev, int index, double *out)
{
    const lk_cuda_marks *marks = ((lk_cuda_device *)dev)->marks;
    float ms;
    if (!marks || !marks->events[index])
        return false;
    if (cudaEventQuery(marks->events[index]) != cudaSuccess ||
        cudaEventElapsedTime(&ms, marks->first, marks->events[index]) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    *out = marks->first_time + (double)ms / 1e3;
    return true;
}

void lk__cuda_marks_destroy(lk_cuda_marks *marks)
{
    if (!marks)
        return;
    for (int i = 0; i < LK_DEVICE_MARKS; i++)
        if (marks->events[i])
            (void)cudaEventDestroy(marks->events[i]);
    if (marks->first)
        (void)cudaEventDestroy(marks->first);
    lk__mem_free(marks);
}
