/* deadline.h - the end of a wait, with notices to the user before it. */
#ifndef LK_NET_DEADLINE_H
#define LK_NET_DEADLINE_H

#include <stdbool.h>

#include <lockstep/group.h>

/* Seconds between two notices. */
enum { LK_NOTICE_SECONDS = 5 };

typedef struct lk_deadline {
    double timeout;      /* seconds */
    double end, next;    /* lk__clock() times of the end and of the next notice */
    lk_notice_fn notice; /* may be NULL */
    void *arg;
} lk_deadline;

void lk__deadline_init(lk_deadline *deadline, double timeout, lk_notice_fn notice, void *arg);
bool lk__deadline_over(const lk_deadline *deadline);
/* lk__clock() time at which the waiting thread must wake up: for the next notice, or at the end. */
double lk__deadline_wake(const lk_deadline *deadline);
/* Gives the notice "WHAT, 35 s left" if it is time for one. */
void lk__deadline_notice(lk_deadline *deadline, const char *what);

#endif
