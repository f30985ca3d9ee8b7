/* call.c - compares, describes and encodes calls. */
#include "comm/call.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/bytes.h"
#include "net/host.h"

static const char *const kind_texts[LK_CALL_KIND_COUNT] = {
#define TEXT(name, text) [LK_CALL_KIND_##name] = text,
    LK_CALL_KIND_LIST(TEXT)
#undef TEXT
};

/* Fields that a kind uses. Unused fields are zero (root: -1). */
static const struct {
    bool op, root;
} traits[LK_CALL_KIND_COUNT] = {
    [LK_CALL_KIND_ALLREDUCE] = {.op = true},      [LK_CALL_KIND_REDUCE] = {.op = true, .root = true},
    [LK_CALL_KIND_REDUCE_SCATTER] = {.op = true}, [LK_CALL_KIND_BROADCAST] = {.root = true},
    [LK_CALL_KIND_GATHER] = {.root = true},       [LK_CALL_KIND_SCATTER] = {.root = true},
};

static const char *const reductions[LK_REDUCTION_COUNT] = {
    [LK_REDUCTION_SUM] = "sum", [LK_REDUCTION_MEAN] = "mean",       [LK_REDUCTION_MIN] = "min",
    [LK_REDUCTION_MAX] = "max", [LK_REDUCTION_PRODUCT] = "product",
};

/* Offsets in an encoded call. AT_KIND has kind, dtype, op and a zero byte. */
enum { AT_GROUP = 0, AT_NUMBER = 4, AT_KIND = 8, AT_ROOT = 12, AT_COUNT = 16, AT_DETAIL = 24 };
_Static_assert(AT_DETAIL + 8 == LK_CALL_BYTES, "a packed call ends with its detail");

bool lk__call_same(const lk_call *a, const lk_call *b)
{
    return a->group == b->group && a->number == b->number && a->kind == b->kind && a->dtype == b->dtype &&
           a->op == b->op && a->root == b->root && a->count == b->count && a->detail == b->detail;
}

const char *lk__call_name(const lk_call *call)
{
    return kind_texts[call->kind];
}

typedef struct writer {
    char *text;
    size_t used;
} writer;

__attribute__((format(printf, 2, 3))) static void add(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(w->text + w->used, LK_CALL_TEXT - w->used, format, args);
    va_end(args);
    size_t room = LK_CALL_TEXT - 1 - w->used;
    if (length > 0)
        w->used += (size_t)length < room ? (size_t)length : room;
}

static void add_reduction(writer *w, unsigned op)
{
    if (op < LK_REDUCTION_COUNT)
        add(w, ", %s", reductions[op]);
    else
        add(w, ", own reduction %u", op - LK_REDUCTION_COUNT);
}

const char *lk__call_text(const lk_call *call, char text[LK_CALL_TEXT])
{
    writer w = {.text = text};
    bool known = call->kind < LK_CALL_KIND_COUNT && call->dtype < LK_DTYPE_COUNT && call->op < LK_REDUCTION_LIMIT;
    if (!known) {
        add(&w, "unknown call #%lu", (unsigned long)call->number);
        return text;
    }
    add(&w, "%s #%lu", kind_texts[call->kind], (unsigned long)call->number);
    if (call->kind != LK_CALL_KIND_BARRIER) {
        add(&w, " (");
        if (call->count > 0 || call->detail == 0)
            add(&w, "%llu ", (unsigned long long)call->count);
        add(&w, "%s", lk_dtype_name((lk_dtype)call->dtype));
        if (traits[call->kind].op)
            add_reduction(&w, call->op);
        if (call->root >= 0)
            add(&w, ", %s %ld", call->kind == LK_CALL_KIND_MESSAGE ? "to rank" : "root", (long)call->root);
        if (call->detail != 0)
            add(&w, ", split %08lx", (unsigned long)((call->detail ^ call->detail >> 32) & 0xffffffffu));
        add(&w, ")");
    }
    if (call->group != 0)
        add(&w, " in group %lu", (unsigned long)call->group);
    return text;
}

void lk__call_encode(const lk_call *call, uint8_t out[LK_CALL_BYTES])
{
    lk__bytes_put_le(out + AT_GROUP, call->group, 4);
    lk__bytes_put_le(out + AT_NUMBER, call->number, 4);
    out[AT_KIND] = call->kind;
    out[AT_KIND + 1] = call->dtype;
    out[AT_KIND + 2] = call->op;
    out[AT_KIND + 3] = 0;
    lk__bytes_put_le(out + AT_ROOT, (uint32_t)call->root, 4);
    lk__bytes_put_le(out + AT_COUNT, call->count, 8);
    lk__bytes_put_le(out + AT_DETAIL, call->detail, 8);
}

static bool possible(const lk_call *call)
{
    if (call->kind >= LK_CALL_KIND_COUNT || call->dtype >= LK_DTYPE_COUNT || call->op >= LK_REDUCTION_LIMIT)
        return false;
    if (call->op != 0 && !traits[call->kind].op)
        return false;
    /* The root of a message is the receiver, or -1. */
    int lowest = traits[call->kind].root ? 0 : -1;
    int highest = traits[call->kind].root || call->kind == LK_CALL_KIND_MESSAGE ? LK_MAX_RANKS - 1 : -1;
    if (call->root < lowest || call->root > highest)
        return false;
    return call->count <= (uint64_t)PTRDIFF_MAX / lk_dtype_size((lk_dtype)call->dtype);
}

bool lk__call_decode(const uint8_t in[LK_CALL_BYTES], lk_call *out)
{
    uint32_t root = (uint32_t)lk__bytes_get_le(in + AT_ROOT, 4);
    if (in[AT_KIND + 3] != 0 || (root > INT32_MAX && root != UINT32_MAX))
        return false;
    lk_call call = {
        .group = (uint32_t)lk__bytes_get_le(in + AT_GROUP, 4),
        .number = (uint32_t)lk__bytes_get_le(in + AT_NUMBER, 4),
        .kind = in[AT_KIND],
        .dtype = in[AT_KIND + 1],
        .op = in[AT_KIND + 2],
        .root = root == UINT32_MAX ? -1 : (int32_t)root,
        .count = lk__bytes_get_le(in + AT_COUNT, 8),
        .detail = lk__bytes_get_le(in + AT_DETAIL, 8),
    };
    if (!possible(&call))
        return false;
    *out = call;
    return true;
}
