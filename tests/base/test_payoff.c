/* test_payoff.c - accounts of help, with times that the test hands in: nothing here depends on a clock. */
#include "base/payoff.h"

#include "check.h"

/* Returns how many of the next runs are done without help, until one is done with help. */
static int count_alone(lk_payoff *payoff)
{
    int alone = 0;
    while (!lk__payoff_ask(payoff))
        alone++;
    return alone;
}

/* Notes runs with help, and checks that no run before any of them is done without. */
static void note_many(lk_payoff *payoff, int runs, double saved, double lost)
{
    for (int i = 0; i < runs; i++) {
        assert_int_equal(count_alone(payoff), 0);
        lk__payoff_note(payoff, saved, lost);
    }
}

static void note_losses(lk_payoff *payoff)
{
    note_many(payoff, LK_PAYOFF_TRIES, 1e-6, 2e-6);
}

static void help_that_pays_goes_on(void **state)
{
    lk_payoff payoff = {0};
    note_many(&payoff, 1000, 2e-6, 1e-6);
    note_many(&payoff, 1, 0, 5e-6); /* one loss does not outweigh recent gains */
    note_many(&payoff, 1000, 2e-6, 1e-6);
}

static void help_without_gain_or_loss_goes_on(void **state)
{
    lk_payoff payoff = {0};
    note_many(&payoff, 1000, 1e-6, 1e-6);
}

/* The account is looked at after LK_PAYOFF_TRIES runs, however large the first losses are. */
static void help_is_tried_for_some_runs(void **state)
{
    lk_payoff payoff = {0};
    note_many(&payoff, LK_PAYOFF_TRIES - 1, 0, 1);
    assert_true(lk__payoff_ask(&payoff));
    lk__payoff_note(&payoff, 0, 1);
    assert_false(lk__payoff_ask(&payoff));
}

static void recent_losses_outweigh_old_gains(void **state)
{
    lk_payoff payoff = {0};
    note_many(&payoff, 1000, 2e-6, 1e-6);
    int losses = 0;
    for (; lk__payoff_ask(&payoff); losses++)
        lk__payoff_note(&payoff, 0, 1e-6);
    assert_in_range(losses, 2, LK_PAYOFF_TRIES); /* the gains of a thousand runs count as those of LK_PAYOFF_TRIES */
    assert_int_equal(1 + count_alone(&payoff), LK_PAYOFF_FIRST_PAUSE);
}

static void each_further_loss_doubles_the_pause(void **state)
{
    lk_payoff payoff = {0};
    for (int pause = LK_PAYOFF_FIRST_PAUSE; pause < LK_PAYOFF_LONGEST_PAUSE; pause *= 2) {
        note_losses(&payoff);
        assert_int_equal(count_alone(&payoff), pause);
    }
    for (int i = 0; i < 3; i++) {
        note_losses(&payoff);
        assert_int_equal(count_alone(&payoff), LK_PAYOFF_LONGEST_PAUSE);
    }
}

static void pauses_are_short_again_after_help_has_paid_for_long(void **state)
{
    lk_payoff payoff = {0};
    note_losses(&payoff);
    assert_int_equal(count_alone(&payoff), LK_PAYOFF_FIRST_PAUSE);
    note_losses(&payoff);
    assert_int_equal(count_alone(&payoff), 2 * LK_PAYOFF_FIRST_PAUSE);
    note_many(&payoff, 8 * LK_PAYOFF_TRIES, 2e-6, 1e-6);
    note_many(&payoff, 1, 0, 1e-3);
    assert_int_equal(count_alone(&payoff), LK_PAYOFF_FIRST_PAUSE);
}

static void pauses_stay_long_if_help_has_paid_for_a_short_time(void **state)
{
    lk_payoff payoff = {0};
    note_losses(&payoff);
    assert_int_equal(count_alone(&payoff), LK_PAYOFF_FIRST_PAUSE);
    note_many(&payoff, LK_PAYOFF_TRIES, 2e-6, 1e-6);
    note_many(&payoff, 1, 0, 1e-3);
    assert_int_equal(count_alone(&payoff), 2 * LK_PAYOFF_FIRST_PAUSE);
}

TEST_MAIN(NULL, NULL, TEST(help_that_pays_goes_on), TEST(help_without_gain_or_loss_goes_on),
          TEST(help_is_tried_for_some_runs), TEST(recent_losses_outweigh_old_gains),
          TEST(each_further_loss_doubles_the_pause), TEST(pauses_are_short_again_after_help_has_paid_for_long),
          TEST(pauses_stay_long_if_help_has_paid_for_a_short_time))
