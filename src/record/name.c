/* name.c - the name of a run folder. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/spec.h"
#include "record/write.h"

/* Bytes of one part. Nine parts follow the time; what does not fit into LK_RECORD_NAME is cut off at the end. */
enum { PART = 24 };

static bool is_legal(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("._=-", c));
}

/* Appends "_" and the first bytes of text; what is not legal becomes "-". */
static void add(char out[LK_RECORD_NAME], const char *letter, const char *text)
{
    size_t used = strlen(out), room = LK_RECORD_NAME - used;
    int length = snprintf(out + used, room, "_%s%.*s", letter, PART, text);
    for (char *c = out + used; length > 0 && *c; c++)
        *c = is_legal(*c) ? *c : '-';
}

void lk__record_name(const lk_record_scenario *scenario, double seconds, char out[LK_RECORD_NAME])
{
    time_t when = (time_t)seconds;
    struct tm local;
    char text[LK_NUMBER_TEXT], data[PART + 1];
    size_t length;
    if (!localtime_r(&when, &local) || strftime(out, LK_RECORD_NAME, "%Y-%m-%d_%H-%M-%S", &local) == 0)
        snprintf(out, LK_RECORD_NAME, "%.0f", seconds);
    const char *last = lk__path_last(scenario->data, &length);
    snprintf(data, sizeof data, "%.*s", (int)length, last);
    add(out, "", data);
    add(out, "", scenario->model);
    add(out, "", scenario->init ? scenario->init : "default");
    snprintf(text, sizeof text, "%d", scenario->ranks);
    add(out, "n", text);
    snprintf(text, sizeof text, "%zu", scenario->batch);
    add(out, "b", text);
    add(out, "", scenario->optimizer);
    add(out, "lr", lk__number_text(scenario->lr, text));
    add(out, "", scenario->schedule);
    snprintf(text, sizeof text, "%zu", scenario->epochs);
    add(out, "e", text);
}
