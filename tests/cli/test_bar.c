/* test_bar.c - the progress line: what it shows at which width. */
#include "check.h"
#include "cli/report/bar.h"

static lk_bar training(void)
{
    return (lk_bar){.epoch = 3,
                    .epochs = 14,
                    .step = 2000,
                    .steps = 13132,
                    .loss = 0.3123,
                    .accuracy = 91.24,
                    .lr = 0.49,
                    .img_per_s = 4521,
                    .eta = 3723,
                    .memory_mb = 210,
                    .ranks = 4};
}

static const char *text_at(const lk_bar *bar, int columns)
{
    static char text[LK_BAR_BYTES];
    size_t length = lk__bar_text(bar, columns, false, text);
    assert_int_equal(length, strlen(text));
    return text;
}

static void the_least_important_goes_first(void **state)
{
    lk_bar bar = training();
    assert_string_equal(
        text_at(&bar, 200),
        "epoch 3/14  [#####.................................]  step 2000/13132  loss 0.3123  acc 91.2%  "
        "lr 0.49  4521 img/s  ETA 1h02m  210 MB  4 ranks");
    assert_string_equal(text_at(&bar, 90),
                        "epoch 3/14  step 2000/13132  loss 0.3123  acc 91.2%  lr 0.49  4521 img/s  ETA 1h02m");
    assert_string_equal(text_at(&bar, 80),
                        "epoch 3/14  step 2000/13132  loss 0.3123  acc 91.2%  4521 img/s  ETA 1h02m");
    assert_string_equal(text_at(&bar, 40), "step 2000/13132  loss 0.3123  ETA 1h02m");
    assert_string_equal(text_at(&bar, 39), "step 2000/13132  loss 0.3123");
    assert_string_equal(text_at(&bar, 20), "step 2000/13132");
    assert_string_equal(text_at(&bar, 6), "step ");
    assert_string_equal(text_at(&bar, 1), "");
}

/* Wider lines have everything that narrower ones have, and no line fills the last column. */
static void no_line_is_too_wide(void **state)
{
    lk_bar bars[] = {
        training(), training(), {.doing = "testing", .done = 3, .total = 10, .doing_seconds = 70}, {.steps = 1}};
    bars[1].stopping = true;
    bars[1].doing_seconds = 4000;
    bars[1].memory_mb = 1e6;
    bars[1].loss = 1e30;
    bars[1].step = bars[1].steps = (size_t)-1;
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++)
        for (int columns = 0; columns < 400; columns++) {
            char plain[LK_BAR_BYTES], color[LK_BAR_BYTES];
            size_t width = lk__bar_text(&bars[i], columns, false, plain);
            assert_int_equal(width, strlen(plain));
            assert_true(width < (size_t)columns || columns == 0);
            assert_int_equal(lk__bar_text(&bars[i], columns, true, color), width);
            assert_true(strlen(color) < LK_BAR_BYTES - 1);
        }
}

static void activities_and_long_steps(void **state)
{
    lk_bar bar = {.doing = "planning", .memory_mb = 12};
    assert_string_equal(text_at(&bar, 80), "planning  12.0 MB");
    bar.doing_seconds = 75;
    assert_string_equal(text_at(&bar, 80), "planning  1:15  12.0 MB");
    bar = (lk_bar){.doing = "testing", .done = 5, .total = 10, .epoch = 1, .epochs = 2};
    assert_string_equal(text_at(&bar, 50), "testing  [##########...........]  5/10  epoch 1/2");
    assert_string_equal(text_at(&bar, 15), "testing  5/10");
    bar = training();
    bar.doing_seconds = 99;
    bar.inside = .4;
    bar.stopping = true;
    assert_string_equal(text_at(&bar, 60), "stopping  step 2000/13132  next 40% 1:39  loss 0.3123");
}

static void colours_are_apart_from_the_text(void **state)
{
    lk_bar bar = {.doing = "testing", .done = 5, .total = 10};
    char text[LK_BAR_BYTES];
    assert_int_equal(lk__bar_text(&bar, 28, true, text), 27);
    assert_string_equal(text, "testing  [\033[32m#####\033[0m.....]  5/10");
}

TEST_MAIN(NULL, NULL, TEST(the_least_important_goes_first), TEST(no_line_is_too_wide), TEST(activities_and_long_steps),
          TEST(colours_are_apart_from_the_text))
