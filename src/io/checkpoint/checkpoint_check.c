/* checkpoint_check.c - checks that a file of a checkpoint has the saved bits, and says what
 * differs. Reads in pieces, because a checkpoint may be larger than memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint_impl.h"
#include "io/safetensors.h"
#include "tensor/state.h"

enum { CHUNK = 256 * 1024, LAYOUT_TEXT = sizeof(lk_json_quoted) + 32 + 22 * LK_MAX_DIMS };

typedef struct check {
    const lk_state_source *in;
    const lk_manifest_part *sum;
    uint8_t *chunk;
    lk_hasher *file, *tensor;
    size_t filled;  /* tensors with at least one byte */
    size_t wrong;   /* tensors that differ */
    size_t example; /* index of the first tensor that differs */
} check;

/* Adds bytes [at, at + bytes) to the hash of the file, and to `other` unless it is NULL. */
static lk_status add_range(check *c, uint64_t at, uint64_t bytes, lk_hasher *other)
{
    while (bytes > 0) {
        size_t now = bytes < CHUNK ? (size_t)bytes : CHUNK;
        LK_TRY(lk__state_source_read(c->in, at, c->chunk, now));
        lk__hasher_add(c->file, c->chunk, now);
        if (other)
            lk__hasher_add(other, c->chunk, now);
        at += now;
        bytes -= now;
    }
    return LK_OK;
}

static lk_status add_tensors(check *c)
{
    uint64_t at = c->sum->bytes - c->sum->data;
    LK_TRY(add_range(c, 0, at, NULL));
    for (size_t i = 0; i < c->sum->count; i++) {
        const lk_manifest_tensor *tensor = &c->sum->tensors[i];
        lk__hasher_reset(c->tensor, lk__state_entry_seed(&tensor->entry));
        LK_TRY(add_range(c, at, tensor->entry.bytes, c->tensor));
        at += tensor->entry.bytes;
        c->filled += tensor->entry.bytes > 0;
        if (lk__hasher_value(c->tensor) != tensor->hash && c->wrong++ == 0)
            c->example = i;
    }
    return LK_OK;
}

/* Compares the saved tensors with those in a file's header. */
typedef struct layout {
    const lk_manifest_part *sum;
    size_t count;
    bool same;
    char first[LAYOUT_TEXT]; /* the first tensor that was not saved */
} layout;

static void describe(const lk_state_entry *entry, char out[LAYOUT_TEXT])
{
    size_t used = (size_t)snprintf(out, LAYOUT_TEXT, "%s %s ", lk__json_quote_short(entry->name).text,
                                   lk_dtype_name(entry->dtype));
    lk__text_dims(entry->dims, entry->ndim, out + used, LAYOUT_TEXT - used);
}

static bool same_layout(const lk_state_entry *a, const lk_state_entry *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

static void ignore(void *arg, const lk_state_entry *entry)
{
    (void)arg;
    (void)entry;
}

static void compare_entry(void *arg, const lk_state_entry *entry)
{
    layout *l = arg;
    size_t i = l->count++;
    if (l->same && (i >= l->sum->count || !same_layout(entry, &l->sum->tensors[i].entry))) {
        l->same = false;
        describe(entry, l->first);
    }
}

/* FORMAT unless the file's header has exactly the saved tensors. */
static lk_status check_layout(const lk_state_source *in, const lk_manifest_part *sum)
{
    layout l = {.sum = sum, .same = true};
    char saved[LAYOUT_TEXT] = "none";
    LK_TRY(lk__safetensors_list(in, compare_entry, &l));
    if (l.same && l.count == sum->count)
        return LK_OK;
    if (sum->count)
        describe(&sum->tensors[0].entry, saved);
    return lk__fail(LK_STATUS_FORMAT,
                    "%s is another file than was saved: it has %zu tensors%s%s, and saved were %zu, %s the first",
                    in->path, l.count, *l.first ? " with " : "", l.first, sum->count, saved);
}

/* For a file that is known to be wrong: whether it is a valid file with other tensors. */
static bool is_other(const lk_state_source *in, const lk_manifest_part *sum)
{
    return lk__safetensors_list(in, ignore, NULL) == LK_OK && check_layout(in, sum) != LK_OK;
}

static lk_status size_error(const lk_state_source *in, const lk_manifest_part *sum)
{
    if (is_other(in, sum))
        return LK_STATUS_FORMAT;
    if (in->size < sum->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s is cut short: %" PRIu64 " of %" PRIu64 " bytes", in->path, in->size,
                        sum->bytes);
    return lk__fail(LK_STATUS_FORMAT, "%s differs from what was saved: it has %" PRIu64 " bytes instead of %" PRIu64,
                    in->path, in->size, sum->bytes);
}

static lk_status difference_error(const check *c)
{
    const char *path = c->in->path;
    if (c->wrong == 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: its header differs from what was saved", path);
    if (c->wrong == c->filled && is_other(c->in, c->sum))
        return LK_STATUS_FORMAT;
    if (c->wrong == c->filled && c->wrong > 1)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is another file than was saved: its tensors have the same names and shapes, and all differ",
                        path);
    const char *name = c->sum->tensors[c->example].entry.name;
    if (c->wrong == 1)
        return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s differs from what was saved", path,
                        lk__json_quote_short(name).text);
    return lk__fail(LK_STATUS_FORMAT, "%s: tensor %s and %zu more differ from what was saved", path,
                    lk__json_quote_short(name).text, c->wrong - 1);
}

lk_status lk__manifest_part_check(const lk_state_source *in, const lk_manifest_part *sum)
{
    check c = {.in = in, .sum = sum};
    lk_status status;
    if (in->size != sum->bytes)
        return size_error(in, sum);
    LK_TRY(lk__hasher_create(&c.file));
    LK_TRY_GOTO(lk__hasher_create(&c.tensor), destroy_file);
    LK_TRY_GOTO(LK_ALLOC(CHUNK, "a piece of a checkpoint", &c.chunk), destroy_tensor);
    LK_TRY_GOTO(add_tensors(&c), free_chunk);
    bool same = lk__hasher_value(c.file) == sum->hash && c.wrong == 0;
    status = same ? check_layout(in, sum) : difference_error(&c);
free_chunk:
    lk__mem_free(c.chunk);
destroy_tensor:
    lk__hasher_destroy(c.tensor);
destroy_file:
    lk__hasher_destroy(c.file);
    return status;
}
