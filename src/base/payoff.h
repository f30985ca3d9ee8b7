/* payoff.h - whether help pays: the account of one kind of work that helpers may share.
 *
 * Each time that helpers were asked, the account notes the seconds that they saved and the seconds that waking them and
 * waiting for them cost. When the losses of recent runs outweigh the gains, the caller does the next
 * LK_PAYOFF_FIRST_PAUSE runs alone, then tries help again. Each further loss doubles the pause, up to
 * LK_PAYOFF_LONGEST_PAUSE runs; after 8 * LK_PAYOFF_TRIES runs with help without a pause, the next pause is short
 * again. The account depends on time, so it must never decide what a result is. */
#ifndef LK_BASE_PAYOFF_H
#define LK_BASE_PAYOFF_H

#include <stdbool.h>

/* Zeroed: asks for help. */
typedef struct lk_payoff {
    double balance; /* seconds won; older runs count less */
    int tries;      /* runs with help since the last pause */
    int alone;      /* runs of the pause that are left */
    int pause;      /* length of the last pause, in runs */
} lk_payoff;

enum { LK_PAYOFF_TRIES = 8, LK_PAYOFF_FIRST_PAUSE = 16, LK_PAYOFF_LONGEST_PAUSE = 512 };

/* Whether the next run is done with help. The first LK_PAYOFF_TRIES runs are, and as many after each pause. */
bool lk__payoff_ask(lk_payoff *payoff);
/* Notes what a run with help saved and lost, in seconds. */
void lk__payoff_note(lk_payoff *payoff, double saved, double lost);

#endif
