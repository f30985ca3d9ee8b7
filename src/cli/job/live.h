/* live.h - the live page of `train`: a child process that runs the server of `lockstep serve` on the folder of
 * --log-dir and ends with the run. */
#ifndef LK_CLI_JOB_LIVE_H
#define LK_CLI_JOB_LIVE_H

#include <stdbool.h>
#include <sys/types.h>

#include "serve/serve.h"

typedef struct lk_live {
    pid_t pid; /* 0: no page */
} lk_live;

/* Starts the page and prints its address on stderr. where: "", "PORT" or "HOST:PORT". The process must have no threads
 * but this one. Returns after the page can be opened, or with the reason why it cannot. */
lk_status lk__live_begin(const char *folder, const char *where, lk_live *out) LK_CHECKED;
/* Ends the page. It ends by itself, too, if the thread that has begun it ends. */
void lk__live_end(lk_live *live);

/* Lowers the priority of this process to the lowest: pages wait for training, never training for pages. */
void lk__live_yield(void);
/* Blocks the signals that end a page, for this thread and those that it starts; lk__live_await waits for one. They are
 * SIGTERM and, if `interrupts`, SIGINT and SIGHUP. */
void lk__live_block(bool interrupts);
void lk__live_await(bool interrupts);

#endif
