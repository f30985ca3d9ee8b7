/* test_transform_draws.c - random parameters of transforms: their ranges, means and mean squares. A bound is
 * six standard deviations of a mean of DRAWS numbers plus the rounding to pixels. */
#include "fixture.h"

#include <math.h>

#include "data/transform/transform.h"

enum { DRAWS = 6000 };

static lk_rng stream(uint32_t sample)
{
    return lk__rng(7, LK_RNG_PURPOSE_AUGMENT, 2, 5, sample);
}

/* Statistics of a number that is uniform in [low,high). */
typedef struct sums {
    double low, high, sum, squares, least, most;
    size_t count;
} sums;

static sums between(double low, double high)
{
    return (sums){.low = low, .high = high, .least = high, .most = low};
}

static void add(sums *s, double value)
{
    s->sum += value;
    s->squares += value * value;
    s->least = value < s->least ? value : s->least;
    s->most = value > s->most ? value : s->most;
    s->count++;
}

/* Checks range, mean and mean square; the variance of u^2 for u in [-r,r] is 4 r^4 / 45. */
static void check_uniform(const sums *s, double rounding)
{
    double n = (double)s->count, middle = (s->low + s->high) / 2, r = (s->high - s->low) / 2;
    double mean = s->sum / n, square = s->squares / n - 2 * mean * middle + middle * middle;
    assert_true(s->least >= s->low - rounding && s->most <= s->high + rounding);
    assert_true(fabs(mean - middle) <= 6 * r / sqrt(3 * n) + rounding);
    assert_true(fabs(square - r * r / 3) <= 6 * r * r * sqrt(4 / 45. / n) + 2 * r * rounding + rounding * rounding);
}

static void check_share(size_t hits, size_t of, double probability)
{
    double deviation = sqrt(probability * (1 - probability) / (double)of);
    assert_true(fabs((double)hits / (double)of - probability) <= 6 * deviation);
}

/* How often a list changes an image that every change alters. */
static size_t count_changes(const char *text)
{
    static const uint8_t pixels[3 * 2 * 2] = {1, 90, 30, 200, 5, 6, 7, 8, 99, 100, 101, 102};
    lk_image image = {0}, scratch = {0};
    lk_transforms list = {0};
    size_t changed = 0;
    assert_ok(lk__transforms_parse(text, &list));
    for (uint32_t id = 0; id < DRAWS; id++) {
        assert_ok(lk__image_resize(&image, 3, 2, 2));
        memcpy(image.pixels, pixels, sizeof pixels);
        assert_ok(lk__transforms_apply(&list, (lk_transforms_address){.seed = 1, .epoch = 4, .sample = id}, &image,
                                       &scratch));
        changed += memcmp(image.pixels, pixels, sizeof pixels) != 0;
    }
    lk__image_fini(&image);
    lk__image_fini(&scratch);
    return changed;
}

static void chances(void **state)
{
    check_share(count_changes("flip"), DRAWS, .5);
    check_share(count_changes("vflip"), DRAWS, .5);
    check_share(count_changes("grayscale"), DRAWS, .1);
    check_share(count_changes("flip=.2"), DRAWS, .2);
    check_share(count_changes("vflip=.85"), DRAWS, .85);
    check_share(count_changes("grayscale=.03"), DRAWS, .03);
    assert_int_equal(count_changes("flip=0,vflip=0,grayscale=0"), 0);
    assert_int_equal(count_changes("flip=1"), DRAWS);
    assert_int_equal(count_changes("vflip=1"), DRAWS);
    assert_int_equal(count_changes("grayscale=1"), DRAWS);
    /* Every transform of a list has a random stream of its own. */
    check_share(count_changes("flip,vflip"), DRAWS, .75);
}

static void jitter(void **state)
{
    const double values[] = {.4, 2, .1, .3};
    sums s[] = {between(.6, 1.4), between(0, 3), between(.9, 1.1), between(-.3, .3)};
    size_t orders[256] = {0}, kinds = 0;
    for (uint32_t id = 0; id < DRAWS; id++) {
        lk_rng rng = stream(id);
        lk_image_jitter drawn = lk__draw_jitter(values, &rng);
        for (size_t i = 0; i < LK_JITTER_PARTS; i++) {
            assert_true(drawn.on[i]);
            add(&s[i], drawn.factor[i]);
        }
        orders[drawn.order[0] | drawn.order[1] << 2 | drawn.order[2] << 4 | drawn.order[3] << 6]++;
    }
    for (size_t i = 0; i < LK_JITTER_PARTS; i++)
        check_uniform(&s[i], 0);
    for (size_t i = 0; i < 256; i++)
        if (orders[i] > 0) {
            check_share(orders[i], DRAWS, 1 / 24.);
            kinds++;
        }
    assert_int_equal(kinds, 24);
    lk_rng rng = stream(0);
    lk_image_jitter off = lk__draw_jitter((const double[]){0, 0, .1, 0}, &rng);
    assert_false(off.on[0] || off.on[1] || off.on[3]);
    assert_true(off.on[2]);
}

/* Shifts are rounded to pixels, so they exceed the range by half a pixel at most. */
static void affine(void **state)
{
    const double values[] = {30, .1, .5, 2, 15};
    lk_image image = {.height = 400, .width = 800};
    sums angle = between(-30, 30), right = between(-80, 80), down = between(-40, 40), scale = between(.5, 2),
         shear = between(-15, 15);
    for (uint32_t id = 0; id < DRAWS; id++) {
        lk_rng rng = stream(id);
        lk_image_affine drawn = lk__draw_affine(values, &rng, &image);
        add(&angle, drawn.angle);
        add(&right, (double)drawn.shift[0]);
        add(&down, (double)drawn.shift[1]);
        add(&scale, drawn.scale);
        add(&shear, drawn.shear);
    }
    check_uniform(&angle, 0);
    check_uniform(&right, .5);
    check_uniform(&down, .5);
    check_uniform(&scale, 0);
    check_uniform(&shear, 0);
}

/* Every box with these areas and ratios fits, so the first try is used. Its sides are from sqrt(.08 * 3/4)
 * to sqrt(.5 * 4/3) of the image's. */
static void resized_crop(void **state)
{
    enum { SIDE = 1000 };
    const double values[] = {224, .08, .5, 3. / 4, 4. / 3};
    const double least = SIDE * .2449, most = SIDE * .8166;
    lk_image image = {.height = SIDE, .width = SIDE};
    sums area = between(.08, .5), ratio = between(-log(4. / 3), log(4. / 3)), top = between(0, 1), left = top;
    double together = 0;
    for (uint32_t id = 0; id < DRAWS; id++) {
        lk_rng rng = stream(id);
        lk_image_region box = lk__draw_resized_crop(values, &rng, &image);
        assert_true(box.top + box.height <= SIDE && box.left + box.width <= SIDE);
        add(&area, (double)(box.height * box.width) / (SIDE * SIDE));
        add(&ratio, log((double)box.width / (double)box.height));
        add(&top, (double)box.top / (double)(SIDE - box.height));
        add(&left, (double)box.left / (double)(SIDE - box.width));
        together +=
            ((double)box.top / (double)(SIDE - box.height) - .5) * ((double)box.left / (double)(SIDE - box.width) - .5);
    }
    /* The product of two independent numbers has a standard deviation of 1/12. */
    assert_true(fabs(together / DRAWS) <= 6 / 12. / sqrt(DRAWS) + 1 / (SIDE - most - 1));
    check_uniform(&area, (most + .25) / (SIDE * SIDE));
    check_uniform(&ratio, 1 / (least - 1));
    check_uniform(&top, 1 / (SIDE - most - 1));
    check_uniform(&left, 1 / (SIDE - most - 1));
}

static void check_box(const double *values, size_t height, size_t width, lk_image_region expected)
{
    lk_image image = {.height = height, .width = width};
    for (uint32_t id = 0; id < 20; id++) {
        lk_rng rng = stream(id);
        lk_image_region box = lk__draw_resized_crop(values, &rng, &image);
        assert_memory_equal(&box, &expected, sizeof box);
    }
}

/* If no box with the full area fits, the box is the largest one of an allowed ratio, in the middle. */
static void nothing_fits(void **state)
{
    const double whole[] = {224, 1, 1, 3. / 4, 4. / 3}, upright[] = {224, 1, 1, .5, .5}, wide[] = {224, 1, 1, 1.5, 2};
    check_box(whole, 1000, 10, (lk_image_region){493, 0, 13, 10});
    check_box(whole, 10, 1000, (lk_image_region){0, 493, 10, 13});
    check_box(upright, 100, 100, (lk_image_region){0, 25, 100, 50});
    check_box(wide, 101, 100, (lk_image_region){17, 0, 67, 100});
    check_box(whole, 1, 1, (lk_image_region){0, 0, 1, 1});
}

/* Tall images need several tries. The box lies in the image and has an allowed shape, up to rounding. */
static void tries(void **state)
{
    const double values[] = {224, .08, 1, 3. / 4, 4. / 3};
    lk_image image = {.height = 300, .width = 100};
    size_t middles = 0;
    for (uint32_t id = 0; id < DRAWS; id++) {
        lk_rng rng = stream(id);
        lk_image_region box = lk__draw_resized_crop(values, &rng, &image);
        double h = (double)box.height, w = (double)box.width;
        assert_true(box.top + box.height <= 300 && box.left + box.width <= 100);
        assert_true((w + .5) / (h - .5) >= 3. / 4 && (w - .5) / (h + .5) <= 4. / 3);
        assert_true((w + .5) * (h + .5) >= .08 * 300 * 100);
        middles += box.height == 133 && box.width == 100 && box.top == 83;
    }
    /* A try always fits if its area is below .25 of the image's, and never above .445. Ten tries fail with a
     * probability from (.555 / .92)^10 to (.75 / .92)^10. */
    assert_in_range(middles, 1, (uintmax_t)(DRAWS * (.130 + 6 * sqrt(.130 * .870 / DRAWS))));
}

TEST_MAIN(NULL, NULL, TEST(chances), TEST(jitter), TEST(affine), TEST(resized_crop), TEST(nothing_fits), TEST(tries))
