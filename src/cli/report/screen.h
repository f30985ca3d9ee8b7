/* screen.h - the terminal of a process: a progress line that a thread redraws, and lines that other threads print
 * above it.
 *
 * Without a terminal nothing is drawn, there is no thread, and the functions only keep lines of ranks apart. The
 * threads of the ranks never write the progress line: they hand over numbers, which costs a lock that is free. */
#ifndef LK_CLI_REPORT_SCREEN_H
#define LK_CLI_REPORT_SCREEN_H

#include <pthread.h>

#include "cli/report/bar.h"
#include "parallel/step/meter.h"

/* What begins a progress line: "erase to the end of the line". The line ends with \r, so that whatever is printed next
 * begins in the first column. A launcher knows the progress line of its rank by it (launch/output.h). */
#define LK_SCREEN_ERASE "\033[K"

typedef struct lk_screen {
    int terminal; /* descriptor of the terminal, whose width is asked for at each drawing; -1: nothing is drawn */
    bool piped;   /* stderr leads to a launcher, which draws on that terminal and keeps lines apart */
    bool color;
    lk_engine_meter meter;   /* of the steps, for the drawing thread */
    pthread_mutex_t output;  /* held while lines or the progress line are written */
    bool drawn;              /* the cursor is at the begin of a progress line */
    double drawn_at;         /* lk__clock() of the last drawing */
    char last[LK_BAR_BYTES]; /* the text of that line */
    pthread_mutex_t state;   /* protects the fields below */
    pthread_cond_t wake;
    pthread_t thread;
    bool started; /* a progress line was asked for */
    bool drawing; /* the thread runs */
    bool ending;
    lk_bar bar;
    double began; /* lk__clock() when bar.doing began, or the last step ended */
} lk_screen;

/* The terminal of stderr, if there is one on which a line can be redrawn; -1: none. */
int lk__screen_terminal(void);
/* Writes "starting" on the terminal of stderr, if there is one, because looking for devices may take a second.
 * lk__screen_init erases the word. If a message is printed before that, it overwrites the word. */
void lk__screen_hint(void);
/* Erases the word "starting". */
void lk__screen_unhint(void);
/* terminal and piped as in the struct. Must not be moved until lk__screen_fini. */
void lk__screen_init(lk_screen *screen, int terminal, bool piped);
/* Ends the thread and removes the progress line. A second call does nothing. */
void lk__screen_fini(lk_screen *screen);

/* Draws the progress line with these numbers from now on; the first call draws it at once. Times, memory, `inside` and
 * `stopping` are filled in at each drawing. */
void lk__screen_show(lk_screen *screen, const lk_bar *bar);
/* Before and after lines on stdout or stderr: removes the progress line, and draws it again below them; at once, or
 * where lines follow each other quickly, when the thread draws next. */
void lk__screen_begin_lines(lk_screen *screen);
void lk__screen_end_lines(lk_screen *screen);

#endif
