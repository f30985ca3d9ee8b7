/* option.c - the value of an option as text. */
#include "base/option.h"

#include <assert.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/spec.h"

_Static_assert((int)LK_OPTION_TEXT_BYTES >= (int)LK_NUMBER_TEXT, "a number fits");

const char *lk__option_field(const lk_option *row)
{
    const char *dot = strrchr(row->field, '.');
    return dot ? dot + 1 : row->field;
}

/* 0 means that the option was not given, unless the option has a default. */
static const char *whole_text(const lk_option *row, uint64_t value, char *text)
{
    if (value == 0 && !row->initial)
        return NULL;
    snprintf(text, LK_OPTION_TEXT_BYTES, "%" PRIu64, value);
    return text;
}

static const char *real_text(const lk_option *row, double value, char *text)
{
    return value == 0 && !row->initial ? NULL : lk__number_text(value, text);
}

const char *lk__option_value(const lk_option *row, const void *values, char text[LK_OPTION_TEXT_BYTES])
{
    const void *field = (const char *)values + row->offset;
    switch (row->kind) {
    case LK_OPTION_KIND_FLAG:
        return *(const bool *)field ? "true" : NULL;
    case LK_OPTION_KIND_COUNT:
        return whole_text(row, *(const size_t *)field, text);
    case LK_OPTION_KIND_INT:
        if (row->choices && *(const int *)field == LK_OPTION_WORD)
            return row->choices[0];
        snprintf(text, LK_OPTION_TEXT_BYTES, "%d", *(const int *)field);
        return *(const int *)field || row->initial ? text : NULL;
    case LK_OPTION_KIND_SEED:
        return whole_text(row, *(const uint64_t *)field, text);
    case LK_OPTION_KIND_REAL:
        return real_text(row, *(const double *)field, text);
    case LK_OPTION_KIND_CHOICE:
        return row->choices[*(const int *)field];
    case LK_OPTION_KIND_TEXT:
    case LK_OPTION_KIND_ONCE:
    case LK_OPTION_KIND_SPEC:
    case LK_OPTION_KIND_TERMS:
    case LK_OPTION_KIND_OPTIONAL:
        return *(const char *const *)field;
    case LK_OPTION_KIND_LIST:
        return *(const char *)field ? field : NULL;
    case LK_OPTION_KIND_ALIAS:
        break;
    }
    assert(false);
    return NULL;
}

const char *lk__option_shown(const lk_option *row, const char *value)
{
    if (value)
        return value;
    return row->kind == LK_OPTION_KIND_FLAG ? "false" : "(not given)";
}
