/* windows.c - options of windows, with their defaults and limits. */
#include "nn/windows.h"

#include "nn/op.h"

enum { MAX_SIDE = 1 << 16 };

size_t lk__op_pad_of(size_t pad, size_t pad_w)
{
    size_t chosen = pad_w ? pad_w : pad;
    return chosen == LK_ZERO_PAD ? 0 : chosen;
}

static size_t first_set(size_t a, size_t b, size_t otherwise)
{
    return a ? a : b ? b : otherwise;
}

void lk__op_set_windows(const lk_op_windows *opts, lk_window *h, lk_window *w)
{
    size_t kernel_w = first_set(opts->kernel_w, 0, opts->kernel);
    *h = (lk_window){.kernel = opts->kernel,
                     .stride = first_set(opts->stride, 0, opts->kernel),
                     .pad = lk__op_pad_of(opts->pad, 0),
                     .dilation = first_set(opts->dilation, 0, 1)};
    *w = (lk_window){.kernel = kernel_w,
                     .stride = first_set(opts->stride_w, opts->stride, kernel_w),
                     .pad = lk__op_pad_of(opts->pad, opts->pad_w),
                     .dilation = first_set(opts->dilation_w, opts->dilation, 1)};
}

bool lk__op_window_fits(const lk_window *window)
{
    return window->kernel <= MAX_SIDE && window->stride <= MAX_SIDE && window->dilation <= MAX_SIDE &&
           lk__window_extent(window) <= MAX_SIDE;
}

size_t lk__op_count_windows(const lk_window *window, size_t x)
{
    size_t padded = x + 2 * window->pad, extent = lk__window_extent(window);
    return padded < extent ? 0 : (padded - extent) / window->stride + 1;
}

lk_status lk__op_check_conv(const char *kind, const lk_layer *layer, size_t in)
{
    const lk_conv2d_desc *conv = &layer->attr.conv;
    size_t out = layer->attr.out;
    if (!out || !conv->h.kernel)
        return lk__fail(LK_STATUS_USAGE, "%s '%s' needs output channels and a kernel size", kind, layer->name);
    if (!lk__op_window_fits(&conv->h) || !lk__op_window_fits(&conv->w))
        return lk__fail(LK_STATUS_USAGE,
                        "%s '%s': kernel %zux%zu (height x width), stride %zux%zu, dilation %zux%zu: stride, dilation "
                        "and the pixels that a dilated kernel spans can be at most %d along each axis",
                        kind, layer->name, conv->h.kernel, conv->w.kernel, conv->h.stride, conv->w.stride,
                        conv->h.dilation, conv->w.dilation, MAX_SIDE);
    if (conv->h.pad >= lk__window_extent(&conv->h) || conv->w.pad >= lk__window_extent(&conv->w))
        return lk__fail(LK_STATUS_USAGE,
                        "%s '%s': padding %zux%zu (height x width) must be below the %zux%zu pixels that its kernel "
                        "spans, along each axis",
                        kind, layer->name, conv->h.pad, conv->w.pad, lk__window_extent(&conv->h),
                        lk__window_extent(&conv->w));
    if (in % conv->groups || out % conv->groups)
        return lk__fail(LK_STATUS_USAGE,
                        "%s '%s': %zu groups must divide both its %zu input and its %zu output channels", kind,
                        layer->name, conv->groups, in, out);
    return LK_OK;
}
