/* buckets.c - cutting the gradient array into buckets, and summing them over the ranks. */
#include "parallel/step/buckets.h"

#include <float.h>
#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "base/tree.h"
#include "comm/collective/own_sums.h"
#include "comm/collective/request.h"
#include "parallel/step/staging.h"

enum { ALIGN_ELEMENTS = LK_ALIGN / sizeof(float) };

lk_status lk__buckets_first_above(const lk_params *params, const float *array, size_t begin, size_t end, float limit,
                                  size_t *out)
{
    lk_device *dev = params->dev;
    lk_flag flag = {.first = LK_FLAG_NONE};
    LK_TRY(dev->type->upload(dev, &flag, sizeof flag, params->flag));
    lk_flag_part part = {.count = end - begin, .x = array + begin, .base = begin};
    dev->kernels->flag_above(dev, 1, &part, limit, params->flag);
    LK_TRY(dev->type->download(dev, params->flag, sizeof flag, &flag));
    *out = flag.bad ? (size_t)flag.first : end;
    return LK_OK;
}

/* The end of the tensor that begins at an element. Tensors are in the order of their layers, the last layer
 * first. */
static size_t tensor_end(const lk_params *params, size_t begin)
{
    size_t end = params->count;
    for (int i = params->first; i < params->last; i++) {
        for (int slot = 0; slot < params->graph->layers[i].param_count; slot++) {
            size_t offset = params->param_offset[i][slot];
            if (offset > begin && offset < end)
                end = offset;
        }
    }
    return end;
}

/* The end of the bucket that begins at an element. */
static size_t bucket_end(const lk_params *params, size_t begin, size_t room)
{
    size_t end = tensor_end(params, begin);
    if (end - begin > room)
        return begin + room;
    while (end < params->count && tensor_end(params, end) - begin <= room)
        end = tensor_end(params, end);
    return end;
}

static lk_status cut(lk_buckets *buckets, size_t room)
{
    size_t count = buckets->params->count;
    LK_TRY(LK_ALLOC(count / room + 2 * (size_t)(buckets->params->last - buckets->params->first) * LK_MAX_PARAMS + 1,
                    "buckets", &buckets->list));
    for (size_t begin = 0; begin < count; buckets->count++) {
        size_t end = bucket_end(buckets->params, begin, room);
        buckets->list[buckets->count] = (lk_bucket){.begin = begin, .end = end};
        begin = end;
    }
    return LK_OK;
}

lk_status lk__buckets_create(const lk_buckets_opts *opts, lk_buckets **out)
{
    lk_buckets *buckets;
    LK_TRY(LK_ALLOC(1, "buckets", &buckets));
    *buckets = (lk_buckets){.group = opts->group,
                            .bounds = opts->bounds,
                            .params = opts->params,
                            .copy = opts->copy,
                            .roots = opts->roots,
                            .check = opts->check,
                            .own_order = opts->own_order,
                            .limit = FLT_MAX / LK_MAX_SHARDS / 2};
    size_t room = lk__size_round_up(lk__size_max(opts->bytes / sizeof(float), 1), ALIGN_ELEMENTS);
    lk_status status;
    LK_TRY_GOTO(cut(buckets, room), destroy_buckets);
    lk__buckets_reset(buckets, false);
    *out = buckets;
    return LK_OK;

destroy_buckets:
    lk__buckets_destroy(buckets);
    return status;
}

void lk__buckets_destroy(lk_buckets *buckets)
{
    if (!buckets)
        return;
    lk__mem_free(buckets->list);
    lk__mem_free(buckets);
}

void lk__buckets_reset(lk_buckets *buckets, bool recorded)
{
    buckets->recorded = recorded;
    buckets->started = 0;
    buckets->large = false;
    buckets->bad = buckets->params->count;
}

/* Checks this rank's own partial sums of a bucket, before they are added to those of other ranks. */
static lk_status check_own(lk_buckets *buckets, const lk_bucket *bucket)
{
    const lk_params *params = buckets->params;
    /* The check waits for the device, and the device for sums that are being gathered. */
    if (buckets->check && buckets->device_sums)
        LK_TRY(lk__device_sums_wait_gather(buckets->device_sums));
    for (int root = 0; buckets->check && root < buckets->roots && buckets->bad == params->count; root++) {
        const float *grads = params->grads + (size_t)root * params->count;
        size_t first;
        LK_TRY(lk__buckets_first_above(params, grads, bucket->begin, bucket->end, buckets->limit, &first));
        if (first == bucket->end)
            continue;
        buckets->large = true;
        LK_TRY(lk__buckets_first_above(params, grads, first, bucket->end, FLT_MAX, &first));
        if (first < bucket->end)
            buckets->bad = first;
    }
    return LK_OK;
}

/* A bucket's range of a slot, in memory that the group can access. */
static float *root_at(const lk_buckets *buckets, const lk_bucket *bucket, int root)
{
    float *slots = lk__staging_at(buckets->copy, buckets->params->grads);
    return slots + (size_t)root * buckets->params->count + bucket->begin;
}

static size_t bucket_bytes(const lk_bucket *bucket)
{
    return (bucket->end - bucket->begin) * sizeof(float);
}

static lk_status fetch(const lk_buckets *buckets, const lk_bucket *bucket)
{
    const lk_params *params = buckets->params;
    for (int root = 0; root < buckets->roots; root++)
        LK_TRY(lk__staging_fetch(params->dev, params->grads + (size_t)root * params->count + bucket->begin,
                                 bucket_bytes(bucket), root_at(buckets, bucket, root)));
    return LK_OK;
}

static lk_status sum(const lk_buckets *buckets, lk_bucket *bucket)
{
    const void *roots[LK_MAX_ROOTS];
    for (int root = 0; root < buckets->roots; root++)
        roots[root] = root_at(buckets, bucket, root);
    lk_shard_sums sums = {.bounds = buckets->bounds, .roots = roots};
    lk_buffer out = {root_at(buckets, bucket, 0), bucket->end - bucket->begin, LK_DTYPE_F32};
    LK_TRY(lk_allreduce_shards(buckets->group, &sums, out, LK_REDUCTION_SUM, &bucket->request));
    if (lk__trace_is_on())
        lk__request_label(bucket->request,
                          (lk_trace_label){"bucket", LK_TRACE_KIND_BUCKET, (int)(bucket - buckets->list)},
                          bucket_bytes(bucket));
    return LK_OK;
}

/* The flight of a sum that is no request: until this rank knows that it is done. */
static void trace_sum(const lk_buckets *buckets, lk_bucket *bucket)
{
    if (bucket->started > 0)
        lk__trace_record(&(lk_trace_event){.begin = bucket->started,
                                           .end = lk__clock(),
                                           .name = "bucket",
                                           .kind = LK_TRACE_KIND_BUCKET,
                                           .number = (int)(bucket - buckets->list),
                                           .to = (int64_t)bucket_bytes(bucket)});
    bucket->started = 0;
}

/* Adds this rank's partial sums first: the engine below the group sums one vector of each rank. */
static lk_status sum_in_own_order(const lk_buckets *buckets, lk_bucket *bucket)
{
    float *total = root_at(buckets, bucket, 0);
    size_t count = bucket->end - bucket->begin;
    if (buckets->roots == 0)
        memset(total, 0, bucket_bytes(bucket));
    for (int root = 1; root < buckets->roots; root++) {
        const float *more = root_at(buckets, bucket, root);
        for (size_t i = 0; i < count; i++)
            total[i] += more[i];
    }
    return lk__group_own_sum(buckets->group, total, count, &bucket->ticket);
}

static lk_status store(const lk_buckets *buckets, const lk_bucket *bucket)
{
    const lk_params *params = buckets->params;
    return lk__staging_store(params->dev, root_at(buckets, bucket, 0), bucket_bytes(bucket),
                             params->grads + bucket->begin);
}

static lk_status start(lk_buckets *buckets, lk_bucket *bucket)
{
    if (bucket->frozen)
        return LK_OK;
    if (!buckets->recorded)
        LK_TRY(check_own(buckets, bucket));
    if (!buckets->group)
        return LK_OK;
    bool request = !buckets->device_sums && !buckets->own_order;
    bucket->started = request || buckets->recorded ? 0 : lk__trace_begin();
    if (buckets->device_sums) {
        const lk_params *params = buckets->params;
        lk_partials sums = {params->grads + bucket->begin, params->count};
        return lk__device_sums_sum(buckets->device_sums, (int)(bucket - buckets->list), bucket->end - bucket->begin,
                                   sums);
    }
    LK_TRY(fetch(buckets, bucket));
    return buckets->own_order ? sum_in_own_order(buckets, bucket) : sum(buckets, bucket);
}

lk_status lk__buckets_start(lk_buckets *buckets, size_t done)
{
    while (buckets->started < buckets->count && buckets->list[buckets->started].end <= done)
        LK_TRY(start(buckets, &buckets->list[buckets->started++]));
    return LK_OK;
}

lk_status lk__buckets_poll(lk_buckets *buckets)
{
    const lk_bucket *last = buckets->started > 0 ? &buckets->list[buckets->started - 1] : NULL;
    bool under_way = buckets->group && last && (buckets->device_sums || last->request || last->ticket);
    return under_way ? lk_group_poll(buckets->group) : LK_OK;
}

lk_status lk__buckets_wait(lk_buckets *buckets, int index)
{
    lk_bucket *bucket = &buckets->list[index];
    lk_request *request = bucket->request;
    bucket->request = NULL;
    if (bucket->frozen)
        return LK_OK;
    if (buckets->device_sums)
        return lk__device_sums_lead(buckets->device_sums, index);
    if (bucket->ticket) {
        uint64_t ticket = bucket->ticket;
        bucket->ticket = 0;
        LK_TRY(lk__group_own_wait(buckets->group, ticket));
        trace_sum(buckets, bucket);
        return store(buckets, bucket);
    }
    if (!request)
        return LK_OK;
    LK_TRY(lk_request_wait(request));
    return store(buckets, bucket);
}

lk_status lk__buckets_finish(lk_buckets *buckets)
{
    if (!buckets->device_sums || buckets->recorded)
        return LK_OK;
    double began = lk__trace_begin();
    LK_TRY(lk__device_sums_wait(buckets->device_sums));
    lk__trace_end(LK_TRACE_KIND_DEVICE, "wait for the device's sums", -1, began);
    for (int i = 0; i < buckets->started; i++)
        trace_sum(buckets, &buckets->list[i]);
    return LK_OK;
}

lk_status lk__buckets_wait_all(lk_buckets *buckets)
{
    for (int i = 0; i < buckets->started; i++)
        LK_TRY(lk__buckets_wait(buckets, i));
    return lk__buckets_finish(buckets);
}
