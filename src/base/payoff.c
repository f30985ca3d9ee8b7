/* payoff.c - decides from gains and losses of recent runs whether help pays. */
#include "base/payoff.h"

bool lk__payoff_ask(lk_payoff *payoff)
{
    if (payoff->alone == 0)
        return true;
    payoff->alone--;
    return false;
}

static int next_pause(int pause)
{
    if (pause == 0)
        return LK_PAYOFF_FIRST_PAUSE;
    return pause < LK_PAYOFF_LONGEST_PAUSE ? 2 * pause : pause;
}

void lk__payoff_note(lk_payoff *payoff, double saved, double lost)
{
    payoff->balance += saved - lost - payoff->balance / LK_PAYOFF_TRIES;
    if (++payoff->tries < LK_PAYOFF_TRIES)
        return;
    if (payoff->balance < 0) {
        payoff->pause = next_pause(payoff->pause);
        *payoff = (lk_payoff){.alone = payoff->pause, .pause = payoff->pause};
    } else if (payoff->tries >= 8 * LK_PAYOFF_TRIES) {
        payoff->pause = 0; /* help has paid for long: a later loss starts from a short pause */
        payoff->tries = LK_PAYOFF_TRIES;
    }
}
