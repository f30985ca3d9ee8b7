/* patience.h - waiting with a deadline, and telling the user about it now and
 * then. */
#ifndef LK_COMM_PATIENCE_H
#define LK_COMM_PATIENCE_H

#include <stdbool.h>

#include <lockstep/group.h>

/* Seconds between two notices. */
enum { LK_NOTICE_SECONDS = 5 };

typedef struct lk_patience {
    double timeout;        /* seconds in all */
    double deadline, next; /* on lk__clock() */
    lk_notice_fn notice;   /* may be NULL */
    void *arg;
} lk_patience;

void lk__patience_init(lk_patience *patience, double timeout, lk_notice_fn notice, void *arg);
bool lk__patience_over(const lk_patience *patience);
/* When to look again at the latest: the next notice, or the end. */
double lk__patience_wake(const lk_patience *patience);
/* Gives the notice "WHAT, 35 s left" when it is time for one. */
void lk__patience_tell(lk_patience *patience, const char *what);

#endif
