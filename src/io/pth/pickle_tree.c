/* pickle_tree.c - walks the values that pickle.c has read; errors with their position in the file. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/pth/pickle.h"

lk_status lk__pickle_fail(const lk_pickle_stream *stream, size_t at, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return lk__fail(LK_STATUS_FORMAT, "%s: %s%s%sbyte %zu: %s", stream->path, stream->member ? "member " : "",
                    stream->member ? stream->member : "", stream->member ? ", " : "", stream->base + at, text);
}

void lk__pickle_destroy(lk_pickle *pickle)
{
    if (!pickle)
        return;
    lk__mem_free(pickle->values);
    lk__mem_free(pickle->cells);
    lk__mem_free(pickle);
}

const lk_pickle_value *lk__pickle_next(const lk_pickle *pickle, uint32_t *cell)
{
    if (!*cell)
        return NULL;
    const struct lk_pickle_cell *now = &pickle->cells[*cell];
    *cell = now->next;
    return &pickle->values[now->value];
}

const lk_pickle_value *lk__pickle_item(const lk_pickle *pickle, const lk_pickle_value *value, size_t index)
{
    if (value->kind < LK_PICKLE_KIND_TUPLE || value->kind > LK_PICKLE_KIND_SET || index >= value->as.items.count)
        return NULL;
    uint32_t cell = value->as.items.first;
    const lk_pickle_value *item = lk__pickle_next(pickle, &cell);
    for (; index; index--)
        item = lk__pickle_next(pickle, &cell);
    return item;
}

bool lk__pickle_is_text(const lk_pickle_value *value, const char *text)
{
    return value->kind == LK_PICKLE_KIND_TEXT && strlen(text) == value->as.text.length &&
           memcmp(text, value->as.text.bytes, value->as.text.length) == 0;
}

const lk_pickle_value *lk__pickle_find(const lk_pickle *pickle, const lk_pickle_value *dict, const char *key)
{
    uint32_t cell = dict->as.items.first;
    for (const lk_pickle_value *item; (item = lk__pickle_next(pickle, &cell));) {
        const lk_pickle_value *value = lk__pickle_next(pickle, &cell);
        if (lk__pickle_is_text(item, key))
            return value;
    }
    return NULL;
}
