/* patience.c - waiting with a deadline. */
#include "comm/patience.h"

#include <stdio.h>

#include "base/clock.h"

void lk__patience_init(lk_patience *patience, double timeout, lk_notice_fn notice, void *arg)
{
    double now = lk__clock();
    *patience = (lk_patience){
        .timeout = timeout, .deadline = now + timeout, .next = now + LK_NOTICE_SECONDS, .notice = notice, .arg = arg};
}

bool lk__patience_over(const lk_patience *patience)
{
    return lk__clock() >= patience->deadline;
}

double lk__patience_wake(const lk_patience *patience)
{
    return patience->next < patience->deadline ? patience->next : patience->deadline;
}

void lk__patience_tell(lk_patience *patience, const char *what)
{
    double now = lk__clock();
    if (now < patience->next || now >= patience->deadline)
        return;
    patience->next += LK_NOTICE_SECONDS;
    if (!patience->notice)
        return;
    char text[1200];
    snprintf(text, sizeof text, "%s, %.0f s left", what, patience->deadline - now);
    patience->notice(patience->arg, text);
}
