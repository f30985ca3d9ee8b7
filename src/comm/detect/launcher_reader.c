/* launcher_reader.c - reads variables, and sets values: what all rows of launchers.c share. */
#include <stdio.h>
#include <string.h>

#include "base/spec.h"
#include "comm/detect/launchers.h"

enum { MOST = 1 << 24 };

const char *lk__launcher_get(const lk_launcher_reader *reader, const char *name)
{
    const char *text = reader->lookup(reader->arg, name);
    return text && *text ? text : NULL;
}

int lk__launcher_number(const lk_launcher_reader *reader, const char *const *names, const char **name)
{
    long long number;
    for (; *names; names++) {
        const char *text = lk__launcher_get(reader, *names);
        if (!text || !lk__number_parse_int(text, 0, MOST, &number))
            continue;
        if (name)
            *name = *names;
        return (int)number;
    }
    return -1;
}

void lk__launcher_set(lk_task_value *value, int number, const char *text, const char *source)
{
    *value = (lk_task_value){.known = true, .number = number};
    if (text)
        snprintf(value->text, sizeof value->text, "%s", text);
    else
        snprintf(value->text, sizeof value->text, "%d", number);
    snprintf(value->source, sizeof value->source, "%s", source);
}
