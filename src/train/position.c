/* position.c - writes the position of a run as notes of a checkpoint, and reads it; one table for both. Real
 * numbers are hexadecimal, so that no bit is lost. */
#include <stdint.h>
#include <stdio.h>

#include "base/spec.h"
#include "train/parts.h"

enum { TEXT = 64 };

typedef struct field {
    const char *name;
    size_t offset;
    bool real; /* double; false: size_t */
    /* The note may be missing, as in checkpoints of earlier versions. The number is then 0 or, if `count` is not 0,
     * that of the size_t at offset `count`, which an earlier row reads. Not written if it is this number. */
    bool optional;
    size_t count;
} field;

#define FIELD(name, member, ...)                         \
    {                                                    \
        name, offsetof(lk_position, member), __VA_ARGS__ \
    }
#define WHOLE(name, member) FIELD(name, member, false, false, 0)
#define REAL(name, member) FIELD(name, member, true, false, 0)
#define LATER(name, member) FIELD(name, member, false, true, 0)
#define LATER_REAL(name, member) FIELD(name, member, true, true, 0)
#define WEIGHT(name, member, count) FIELD(name, member, true, true, offsetof(lk_position, count))

static const field fields[] = {
    WHOLE("step", step),
    WHOLE("epoch", epoch),
    WHOLE("batch", batch),
    WHOLE("epoch-samples", samples),
    REAL("epoch-loss", loss),
    WHOLE("tested", tested),
    WHOLE("test-count", test.count),
    WHOLE("test-correct", test.correct),
    WHOLE("test-top5", test.top5),
    REAL("test-loss", test.loss),
    WHOLE("best-step", best_step),
    WHOLE("best-correct", best_correct),
    LATER("agreed", agreed),
    LATER("val-count", val.count),
    LATER("val-correct", val.correct),
    LATER("val-top5", val.top5),
    LATER_REAL("val-loss", val.loss),
    LATER_REAL("watch-best", watch.best),
    LATER("watch-results", watch.results),
    LATER("watch-bad", watch.bad),
    LATER("watch-cooldown", watch.cooldown),
    LATER("watch-drops", watch.drops),
    LATER("watch-dropped", dropped),
    LATER("judged", judged),
    LATER("judged-best", judged_best),
    LATER("stale", stale),
    LATER_REAL("test-absolute-error", test.absolute_error),
    LATER_REAL("test-squared-error", test.squared_error),
    LATER_REAL("val-absolute-error", val.absolute_error),
    LATER_REAL("val-squared-error", val.squared_error),
    LATER_REAL("best-loss", best_loss),
    LATER_REAL("judged-loss", judged_loss),
    WEIGHT("epoch-weight", weight, samples),
    WEIGHT("test-weight", test.weight, test.count),
    WEIGHT("val-weight", val.weight, val.count),
};

enum { FIELDS = sizeof fields / sizeof *fields };

/* The number of an optional field without a note. */
static size_t default_of(const field *f, const lk_position *position)
{
    return f->count ? *(const size_t *)(const void *)((const char *)position + f->count) : 0;
}

static bool is_default(const field *f, const lk_position *position, const void *value)
{
    size_t number = default_of(f, position);
    return f->real ? *(const double *)value == (double)number : *(const size_t *)value == number;
}

static void set_default(const field *f, const lk_position *position, void *out)
{
    if (f->real)
        *(double *)out = (double)default_of(f, position);
    else
        *(size_t *)out = default_of(f, position);
}

lk_status lk__position_note(const lk_position *position, lk_checkpoint *checkpoint)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const void *value = (const char *)position + fields[i].offset;
        char text[TEXT];
        if (fields[i].optional && is_default(&fields[i], position, value))
            continue;
        if (fields[i].real)
            snprintf(text, sizeof text, "%a", *(const double *)value);
        else
            snprintf(text, sizeof text, "%zu", *(const size_t *)value);
        LK_TRY(lk_checkpoint_set_note(checkpoint, fields[i].name, text));
    }
    return LK_OK;
}

static bool parse(const field *f, const char *text, void *out)
{
    long long whole;
    if (f->real)
        return lk__number_parse_double(text, out);
    if (!lk__number_parse_int(text, 0, INT64_MAX, &whole))
        return false;
    *(size_t *)out = (size_t)whole;
    return true;
}

lk_status lk__position_read(const lk_checkpoint *checkpoint, const char *path, lk_position *out)
{
    lk_position position = {0};
    for (size_t i = 0; i < FIELDS; i++) {
        const char *text = lk_checkpoint_note(checkpoint, fields[i].name);
        void *at = (char *)&position + fields[i].offset;
        if (!text && fields[i].optional) {
            set_default(&fields[i], &position, at);
            continue;
        }
        if (!text)
            return lk__fail(LK_STATUS_FORMAT, "%s has no note '%s'; it is not a checkpoint of 'lockstep train'", path,
                            fields[i].name);
        if (!parse(&fields[i], text, at))
            return lk__fail(LK_STATUS_FORMAT, "%s: the note '%s' is '%s', which is no such number", path,
                            fields[i].name, text);
    }
    *out = position;
    return LK_OK;
}
