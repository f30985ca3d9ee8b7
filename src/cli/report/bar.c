/* bar.c - chooses and writes the parts of the progress line. */
#include "cli/report/bar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { PART = 64, PARTS = 16, GAP = 2, METER_LEAST = 10, METER_MOST = 40 };

/* Seconds after which the part of a step that is done, or the time of an activity, is worth a look. */
static const double SLOW_STEP = 2, SLOW_ACTIVITY = 1;

typedef struct part {
    int rank;        /* by importance, 1 is the last to go; 0: left out */
    char text[PART]; /* "": the meter */
} part;

typedef struct line {
    part parts[PARTS]; /* in the order of the line */
    size_t count;
    double filled; /* of the meter */
} line;

/* Adds a part, whose text is written to the result. */
static char *add(line *l, int rank)
{
    part *p = &l->parts[l->count++];
    p->rank = rank;
    return p->text;
}

const char *lk__bar_time(double seconds, char text[LK_BAR_TIME])
{
    unsigned long long s = seconds < 1e15 ? (unsigned long long)(seconds + 0.5) : 0;
    if (s < 3600)
        snprintf(text, LK_BAR_TIME, "%llu:%02llu", s / 60, s % 60);
    else
        snprintf(text, LK_BAR_TIME, "%lluh%02llum", s / 3600, s / 60 % 60);
    return text;
}

static void add_activity(line *l, const lk_bar *bar)
{
    char time[LK_BAR_TIME];
    snprintf(add(l, 1), PART, "%s", bar->doing);
    if (bar->total > 0) {
        l->filled = (double)bar->done / (double)bar->total;
        add(l, 6);
        snprintf(add(l, 2), PART, "%zu/%zu", bar->done, bar->total);
    }
    if (bar->doing_seconds >= SLOW_ACTIVITY)
        snprintf(add(l, 3), PART, "%s", lk__bar_time(bar->doing_seconds, time));
    if (bar->epoch > 0)
        snprintf(add(l, 5), PART, "epoch %zu/%zu", bar->epoch, bar->epochs);
}

static void add_learning(line *l, const lk_bar *bar)
{
    if (!isnan(bar->loss))
        snprintf(add(l, 2), PART, "loss %.4f", bar->loss);
    if (!isnan(bar->accuracy))
        snprintf(add(l, 5), PART, "acc %.1f%%", bar->accuracy);
    snprintf(add(l, 8), PART, "lr %.4g", bar->lr);
}

static void add_steps(line *l, const lk_bar *bar)
{
    char time[LK_BAR_TIME];
    snprintf(add(l, 6), PART, "epoch %zu/%zu", bar->epoch, bar->epochs);
    l->filled = bar->steps ? (double)bar->step / (double)bar->steps : 1;
    add(l, 9);
    snprintf(add(l, 1), PART, "step %zu/%zu", bar->step, bar->steps);
    if (bar->doing_seconds >= SLOW_STEP && bar->step < bar->steps)
        snprintf(add(l, 3), PART, "next %.0f%% %s", 100 * bar->inside, lk__bar_time(bar->doing_seconds, time));
    add_learning(l, bar);
    if (bar->img_per_s > 0)
        snprintf(add(l, 7), PART, bar->img_per_s < 10 ? "%.2f img/s" : "%.0f img/s", bar->img_per_s);
    if (bar->eta >= 0)
        snprintf(add(l, 4), PART, "ETA %s", lk__bar_time(bar->eta, time));
}

/* Columns of the parts up to this importance, with the meter at its least. */
static size_t width_to(const line *l, int rank)
{
    size_t width = 0;
    for (size_t i = 0; i < l->count; i++) {
        const part *p = &l->parts[i];
        if (p->rank <= rank)
            width += (*p->text ? strlen(p->text) : METER_LEAST) + GAP;
    }
    return width > GAP ? width - GAP : 0;
}

/* The largest importance up to which all parts fit. */
static int choose(const line *l, size_t room)
{
    int most = 0;
    for (size_t i = 0; i < l->count; i++)
        most = l->parts[i].rank > most ? l->parts[i].rank : most;
    while (most > 1 && width_to(l, most) > room)
        most--;
    return most;
}

static void append(char *out, const char *text, size_t columns)
{
    size_t used = strlen(out);
    snprintf(out + used, LK_BAR_BYTES - used, "%.*s", (int)columns, text);
}

static void append_meter(char *out, double filled, size_t columns, bool color)
{
    static const char full[METER_MOST + 1] = "########################################",
                                        empty[METER_MOST + 1] = "........................................";
    size_t inner = columns - 2, done = (size_t)(filled * (double)inner);
    append(out, color ? "[\033[32m" : "[", 8);
    append(out, full, done < inner ? done : inner);
    append(out, color ? "\033[0m" : "", 8);
    append(out, empty, done < inner ? inner - done : 0);
    append(out, "]", 1);
}

static size_t write_parts(const line *l, int most, size_t room, bool color, char *out)
{
    size_t width = width_to(l, most), used = 0;
    size_t meter = METER_LEAST + (room > width ? room - width : 0);
    meter = meter < METER_MOST ? meter : METER_MOST;
    for (size_t i = 0; i < l->count; i++) {
        const part *p = &l->parts[i];
        if (p->rank > most)
            continue;
        if (used > 0 && room - used <= GAP)
            break;
        if (used > 0) {
            append(out, "  ", GAP);
            used += GAP;
        }
        size_t length = *p->text ? strlen(p->text) : meter;
        length = length < room - used ? length : room - used;
        if (*p->text)
            append(out, p->text, length);
        else
            append_meter(out, l->filled, length, color);
        used += length;
    }
    return used;
}

size_t lk__bar_text(const lk_bar *bar, int columns, bool color, char out[LK_BAR_BYTES])
{
    line l = {.count = 0};
    out[0] = '\0';
    if (columns < 2)
        return 0;
    if (bar->stopping)
        snprintf(add(&l, 1), PART, "stopping");
    (bar->doing ? add_activity : add_steps)(&l, bar);
    if (bar->memory_mb > 0)
        lk__text_amount((size_t)(1e6 * bar->memory_mb), add(&l, 10));
    if (bar->ranks > 1)
        snprintf(add(&l, 11), PART, "%d ranks", bar->ranks);
    size_t room = (size_t)columns - 1;
    return write_parts(&l, choose(&l, room), room, color, out);
}
