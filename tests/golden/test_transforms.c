/* test_transforms.c - transforms with given parameters against torchvision's on PIL images: equal bytes. Both
 * sides make the same images of random bytes. */
#include "golden/golden.h"

#include "data/transform/transform.h"

typedef struct fixture {
    lk_state *golden;
    lk_image image, scratch;
} fixture;

static int setup(void **state)
{
    fixture *fx = golden_alloc(1, sizeof *fx);
    fx->golden = golden_load(LK_TESTS_DIR "/golden/data", "transforms.safetensors");
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    lk_state_destroy(fx->golden);
    lk__image_fini(&fx->image);
    lk__image_fini(&fx->scratch);
    free(fx);
    return 0;
}

static void fill(lk_image *image, size_t c, size_t h, size_t w)
{
    char name[64];
    assert_ok(lk__image_resize(image, c, h, w));
    snprintf(name, sizeof name, "transforms/%zux%zux%zu", c, h, w);
    for (size_t i = 0; i < c * h * w; i++)
        image->pixels[i] = (uint8_t)(golden_word(name, i) >> 24);
}

static void compare(const lk_image *ours, const lk_state_entry *truth)
{
    const uint8_t *bytes = truth->data;
    assert_int_equal(truth->dtype, LK_DTYPE_U8);
    assert_int_equal(truth->ndim, 3);
    assert_int_equal(ours->channels, truth->dims[0]);
    assert_int_equal(ours->height, truth->dims[1]);
    assert_int_equal(ours->width, truth->dims[2]);
    for (size_t i = 0; i < truth->bytes; i++)
        if (ours->pixels[i] != bytes[i])
            fail_msg("%s[%zu] is %d, torchvision has %d", truth->name, i, ours->pixels[i], bytes[i]);
}

/* Applies one kind of transform with the parameters of a golden case. */
typedef void change(fixture *fx, const double *values, const lk_state_entry *truth);

static void check_all(fixture *fx, const char *kind, change *apply)
{
    size_t cases = 0;
    for (;; cases++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s/%zu", kind, cases);
        const lk_state_entry *shape = golden_find(fx->golden, prefix, "x"), *y = golden_find(fx->golden, prefix, "y");
        if (shape == NULL)
            break;
        const int64_t *x = shape->data;
        assert_non_null(y);
        fill(&fx->image, (size_t)x[0], (size_t)x[1], (size_t)x[2]);
        apply(fx, golden_get(fx->golden, prefix, "values")->data, y);
        compare(&fx->image, y);
    }
    assert_true(cases >= 3);
}

static void apply_resize(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk_image_region box = {(size_t)values[0], (size_t)values[1], (size_t)values[2], (size_t)values[3]};
    assert_ok(lk__image_resample(&fx->image, &box, truth->dims[1], truth->dims[2], &fx->scratch));
}

static void resizes(void **state)
{
    check_all(*state, "resize", apply_resize);
}

static void apply_brightness(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk__image_brightness(&fx->image, values[0]);
}

static void apply_contrast(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk__image_contrast(&fx->image, values[0]);
}

static void apply_saturation(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk__image_saturation(&fx->image, values[0]);
}

static void apply_hue(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk__image_hue(&fx->image, values[0]);
}

static void colours(void **state)
{
    check_all(*state, "brightness", apply_brightness);
    check_all(*state, "contrast", apply_contrast);
    check_all(*state, "saturation", apply_saturation);
    check_all(*state, "hue", apply_hue);
}

static void apply_jitter(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk_image_jitter jitter = {.on = {true, true, true, true}};
    for (size_t i = 0; i < LK_JITTER_PARTS; i++) {
        jitter.order[i] = (size_t)values[i];
        jitter.factor[i] = values[LK_JITTER_PARTS + i];
    }
    lk__image_jitter(&fx->image, &jitter);
}

static void jitters(void **state)
{
    check_all(*state, "jitter", apply_jitter);
}

static void apply_affine(fixture *fx, const double *values, const lk_state_entry *truth)
{
    lk_image_affine affine = {
        .angle = values[0], .shift = {(long)values[1], (long)values[2]}, .scale = values[3], .shear = values[4]};
    assert_ok(lk__image_affine(&fx->image, &affine, &fx->scratch));
}

static void affines(void **state)
{
    check_all(*state, "affine", apply_affine);
}

/* "list/resize=20 of 3x23x31": the result and the announced shape of a list without random transforms. */
static void lists(void **state)
{
    fixture *fx = *state;
    size_t cases = 0;
    for (size_t i = 0; i < lk_state_count(fx->golden); i++) {
        const lk_state_entry *entry = lk_state_at(fx->golden, i);
        char text[64];
        size_t c, h, w;
        if (sscanf(entry->name, "list/%63s of %zux%zux%zu", text, &c, &h, &w) != 4)
            continue;
        lk_transforms list = {0};
        assert_ok(lk__transforms_parse(text, &list));
        lk_sample_shape shape = lk__transforms_shape(&list, (lk_sample_shape){c, h, w});
        assert_int_equal(shape.channels, entry->dims[0]);
        assert_int_equal(shape.height, entry->dims[1]);
        assert_int_equal(shape.width, entry->dims[2]);
        fill(&fx->image, c, h, w);
        assert_ok(lk__transforms_apply(&list, (lk_transforms_address){0}, &fx->image, &fx->scratch));
        compare(&fx->image, entry);
        cases++;
    }
    assert_true(cases >= 15);
}

TEST_MAIN(setup, teardown, TEST(resizes), TEST(colours), TEST(jitters), TEST(affines), TEST(lists))
