/* screen.c - draws the progress line. */
#include "cli/report/screen.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/job/signals.h"

/* Nanoseconds between two drawings. */
enum { EVERY_NS = 100 * 1000 * 1000 };
/* Columns of a terminal that does not know its width. */
enum { USUAL_COLUMNS = 80 };

int lk__screen_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && kind && *kind && strcmp(kind, "dumb") != 0 ? STDERR_FILENO : -1;
}

/* One write for each line, so that nothing comes between its parts. A line that a full terminal does not take is drawn
 * again later. */
static void put(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

static bool hinted;

void lk__screen_hint(void)
{
    hinted = lk__screen_terminal() >= 0;
    if (hinted)
        put(LK_SCREEN_ERASE "starting\r");
}

void lk__screen_unhint(void)
{
    if (hinted)
        put("\r" LK_SCREEN_ERASE);
    hinted = false;
}

void lk__screen_init(lk_screen *screen, int terminal, bool piped)
{
    const char *plain = getenv("NO_COLOR");
    pthread_condattr_t steady;
    if (!piped)
        lk__screen_unhint();
    *screen = (lk_screen){.terminal = terminal, .piped = piped, .color = !plain || !*plain};
    pthread_mutex_init(&screen->output, NULL);
    pthread_mutex_init(&screen->state, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&screen->wake, &steady);
    pthread_condattr_destroy(&steady);
}

static int columns(const lk_screen *screen)
{
    struct winsize size;
    return ioctl(screen->terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_COLUMNS;
}

/* The numbers of this moment. */
static lk_bar look(lk_screen *screen)
{
    pthread_mutex_lock(&screen->state);
    lk_bar bar = screen->bar;
    bar.doing_seconds = lk__clock() - screen->began;
    pthread_mutex_unlock(&screen->state);
    unsigned done = atomic_load_explicit(&screen->meter.done, memory_order_relaxed),
             total = atomic_load_explicit(&screen->meter.total, memory_order_relaxed);
    bar.inside = total ? (double)(done < total ? done : total) / (double)total : 0;
    bar.memory_mb = lk__mem_now_mb();
    bar.stopping = lk__job_signals_stop();
    return bar;
}

/* Whether the user's shell has put this process into the background: then the terminal belongs to others. A launcher
 * looks for its ranks. */
static bool is_behind(const lk_screen *screen)
{
    pid_t front = screen->piped ? -1 : tcgetpgrp(screen->terminal);
    return front >= 0 && front != getpgrp();
}

/* The caller holds `output`. */
static void draw(lk_screen *screen)
{
    lk_bar bar = look(screen);
    char text[LK_BAR_BYTES], frame[LK_BAR_BYTES + 16];
    lk__bar_text(&bar, columns(screen), screen->color, text);
    if ((screen->drawn && strcmp(text, screen->last) == 0) || is_behind(screen))
        return;
    snprintf(frame, sizeof frame, LK_SCREEN_ERASE "%s\r", text);
    put(frame);
    memcpy(screen->last, text, sizeof text);
    screen->drawn = true;
    screen->drawn_at = lk__clock();
}

/* The caller holds `output`. */
static void clear(lk_screen *screen)
{
    if (screen->drawn)
        put(screen->piped ? LK_SCREEN_ERASE "\r" : "\r" LK_SCREEN_ERASE);
    screen->drawn = false;
}

/* Returns true after a while, false if the screen ends. */
static bool pause_drawing(lk_screen *screen)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += EVERY_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&screen->state);
    while (!screen->ending && pthread_cond_timedwait(&screen->wake, &screen->state, &until) == 0)
        ;
    bool ending = screen->ending;
    pthread_mutex_unlock(&screen->state);
    return !ending;
}

static void *draw_on(void *arg)
{
    lk_screen *screen = arg;
    while (pause_drawing(screen)) {
        pthread_mutex_lock(&screen->output);
        draw(screen);
        pthread_mutex_unlock(&screen->output);
    }
    return NULL;
}

/* The signals of the process are for its other threads. */
static bool start_thread(lk_screen *screen)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = lk__thread_create(&screen->thread, draw_on, screen) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void lk__screen_show(lk_screen *screen, const lk_bar *bar)
{
    if (screen->terminal < 0)
        return;
    pthread_mutex_lock(&screen->state);
    bool goes_on = bar->doing && screen->bar.doing && strcmp(bar->doing, screen->bar.doing) == 0;
    if (!goes_on || !screen->started)
        screen->began = lk__clock();
    screen->bar = *bar;
    bool first = !screen->started && !screen->ending;
    screen->started = screen->started || first;
    pthread_mutex_unlock(&screen->state);
    if (!first)
        return;
    pthread_mutex_lock(&screen->output);
    draw(screen);
    pthread_mutex_unlock(&screen->output);
    screen->drawing = start_thread(screen); /* without the thread the line is drawn with other lines only */
}

void lk__screen_fini(lk_screen *screen)
{
    pthread_mutex_lock(&screen->state);
    bool join = screen->drawing;
    screen->drawing = false;
    screen->ending = true;
    pthread_cond_broadcast(&screen->wake);
    pthread_mutex_unlock(&screen->state);
    if (join)
        pthread_join(screen->thread, NULL);
    pthread_mutex_lock(&screen->output);
    clear(screen);
    pthread_mutex_unlock(&screen->output);
}

void lk__screen_begin_lines(lk_screen *screen)
{
    pthread_mutex_lock(&screen->output);
    if (!screen->piped)
        clear(screen);
}

void lk__screen_end_lines(lk_screen *screen)
{
    pthread_mutex_lock(&screen->state);
    bool shown = screen->started && !screen->ending;
    pthread_mutex_unlock(&screen->state);
    fflush(stdout);
    if (shown && !screen->piped && lk__clock() - screen->drawn_at > 1e-9 * EVERY_NS)
        draw(screen);
    pthread_mutex_unlock(&screen->output);
}
