/* bar.h - the text of the progress line: what fits into a terminal of a given width.
 *
 * The line has parts, each with its importance. The least important parts are left out until the rest fits, so the
 * line never wraps. All characters have a width of one column. */
#ifndef LK_CLI_REPORT_BAR_H
#define LK_CLI_REPORT_BAR_H

#include <stdbool.h>
#include <stddef.h>

/* Room for the longest line with its colours. */
enum { LK_BAR_BYTES = 512 };

typedef struct lk_bar {
    const char *doing;     /* "testing", with done and total; NULL: steps are taken */
    size_t done, total;    /* of doing; total 0: unknown */
    double doing_seconds;  /* since doing began; while steps are taken, since the last step ended */
    double inside;         /* part of the step under way, 0 to 1; shown when a step takes seconds */
    bool stopping;         /* the run ends after this step */
    size_t epoch, epochs;  /* epoch 0: unknown, as before the first step */
    size_t step, steps;    /* done, and of the run */
    double loss, accuracy; /* means of this epoch's steps so far; accuracy in percent. NaN: none yet */
    double lr, img_per_s;  /* img_per_s 0: unknown */
    double eta;            /* seconds; below 0: unknown */
    double memory_mb;      /* 0: unknown */
    int ranks;
} lk_bar;

/* Writes the line for a terminal of so many columns: at most columns - 1 of them, because a terminal wraps after a
 * character in its last one. Colours do not count. Returns the number of columns that the line takes. */
size_t lk__bar_text(const lk_bar *bar, int columns, bool color, char out[LK_BAR_BYTES]);

/* "1:02", "3h04m", for a number of seconds that is not negative. */
enum { LK_BAR_TIME = 32 };
const char *lk__bar_time(double seconds, char text[LK_BAR_TIME]);

#endif
