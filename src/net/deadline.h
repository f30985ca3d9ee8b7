/* deadline.h - waiting with a deadline, and telling the user about it now and
 * then. */
#ifndef LK_NET_DEADLINE_H
#define LK_NET_DEADLINE_H

#include <stdbool.h>

#include <lockstep/group.h>

/* Seconds between two notices. */
enum { LK_NOTICE_SECONDS = 5 };

typedef struct lk_deadline {
    double timeout;      /* seconds in all */
    double end, next;    /* on lk__clock() */
    lk_notice_fn notice; /* may be NULL */
    void *arg;
} lk_deadline;

void lk__deadline_init(lk_deadline *deadline, double timeout, lk_notice_fn notice, void *arg);
bool lk__deadline_over(const lk_deadline *deadline);
/* When to look again at the latest: the next notice, or the end. */
double lk__deadline_wake(const lk_deadline *deadline);
/* Gives the notice "WHAT, 35 s left" when it is time for one. */
void lk__deadline_notice(lk_deadline *deadline, const char *what);

#endif
