/* test_transform.c - lists of transforms: syntax, errors, output shapes, the lists of splits, and what
 * transforms do not change. tests/golden compares the pixels. */
#include "fixture.h"

#include "data/transform/transform.h"

static void refuse(const char *text, const char *part)
{
    lk_transforms list = {.count = 99};
    assert_int_equal(lk__transforms_parse(text, &list), LK_STATUS_USAGE);
    assert_int_equal(list.count, 99);
    assert_detail(part);
}

static void messages(void **state)
{
    refuse("reszie=3", "did you mean 'resize'");
    refuse("resize", "resize=N[/W] with N a whole number from 1 to 8192");
    refuse("resize=", "resize=N[/W] with N");
    refuse("resize=0", "with N a whole number from 1 to 8192");
    refuse("resize=2.5", "with N a whole number");
    refuse("resize=9000", "from 1 to 8192");
    refuse("resize=20/", "with W a whole number from 1 to 8192");
    refuse("resize=20/x", "with W a whole number from 1 to 8192");
    refuse("resize=20/30/40", "a value too many: write resize=N[/W]");
    refuse("center_crop=-3", "from 1 to 8192");
    refuse("flip=1.5", "flip[=P] with P from 0 to 1");
    refuse("flip=nan", "with P from 0 to 1");
    refuse("grayscale=.2/1", "a value too many");
    refuse("jitter", "jitter=B[/C][/S][/H] with B from 0 to 100");
    refuse("jitter=.4/.4/.4/.6", "with H from 0 to 0.5");
    refuse("resized_crop=224/.5/.2", "smallest area or ratio is above the largest");
    refuse("resized_crop=224/.1/1/2/1", "smallest area or ratio is above the largest");
    refuse("resized_crop=224/0", "with AREA_MIN from 0.0001 to 1");
    refuse("affine=181", "with DEGREES from 0 to 180");
    refuse("affine=10/.1/1.2/.8", "smallest scale is above the largest");
    refuse("resize=10,center_crop=8,resize=6", "resize is there twice");
    refuse("resize=10,none", "stands alone");
    refuse(
        "resize=1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "000000000000000000000000000000",
        "too long");
}

/* Every row has a description of its values and can be parsed. */
static void table(void **state)
{
    size_t count = 0;
    const lk_transform_info *info;
    for (; (info = lk_transform_list(count)) != NULL; count++) {
        lk_transforms list = {0};
        char text[64];
        snprintf(text, sizeof text, "%s=1", info->name);
        assert_ok(lk__transforms_parse(text, &list));
        assert_int_equal(list.count, 1);
        assert_int_equal(list.steps[0].row, count);
        assert_int_equal(info->summary[0], '=');
    }
    assert_int_equal(count, 9);
}

static void defaults(void **state)
{
    lk_transforms list = {0};
    assert_ok(lk__transforms_parse("resized_crop=224/.2,flip,affine=10/.5,jitter=.4/.3", &list));
    assert_int_equal(list.count, 4);
    const double crop[] = {224, .2, 1, 3. / 4, 4. / 3}, affine[] = {10, .5, 1, 1, 0}, jitter[] = {.4, .3, 0, 0};
    assert_memory_equal(list.steps[0].values, crop, sizeof crop);
    assert_true(list.steps[1].values[0] == .5);
    assert_memory_equal(list.steps[2].values, affine, sizeof affine);
    assert_memory_equal(list.steps[3].values, jitter, sizeof jitter);
}

static void check_shape(const char *text, lk_sample_shape from, size_t height, size_t width)
{
    lk_transforms list = {0};
    assert_ok(lk__transforms_parse(text, &list));
    lk_sample_shape shape = lk__transforms_shape(&list, from);
    assert_int_equal(shape.channels, from.channels);
    assert_int_equal(shape.height, height);
    assert_int_equal(shape.width, width);
}

static void shapes(void **state)
{
    lk_sample_shape any = {3, 0, 0}, fixed = {1, 60, 45};
    check_shape("none", fixed, 60, 45);
    check_shape("none", any, 0, 0);
    check_shape("crop=4,flip,vflip,jitter=1,affine=9,grayscale", fixed, 60, 45);
    check_shape("crop=4,flip,affine=9", any, 0, 0);
    check_shape("resize=30", fixed, 40, 30);
    check_shape("resize=31", fixed, 41, 31);
    check_shape("resize=30", any, 0, 0);
    check_shape("resize=30/20", any, 30, 20);
    check_shape("resize=30,center_crop=28", any, 28, 28);
    check_shape("center_crop=28/70", fixed, 28, 70);
    check_shape("resized_crop=17", any, 17, 17);
    check_shape("resized_crop=17,resize=34", any, 34, 34);
}

static lk_dataset made(lk_split split, size_t height, size_t width)
{
    return (lk_dataset){.info = {.name = "made", .channels = 3, .height = height, .width = width},
                        .split = split,
                        .augment = "resized_crop=20,flip",
                        .test_augment = "resize=24,center_crop=20"};
}

static void augmented_shape(void **state)
{
    lk_dataset any = made(LK_SPLIT_TRAIN, 0, 0), test = made(LK_SPLIT_TEST, 0, 0);
    lk_sample_shape shape = {7, 7, 7};
    assert_fails(lk_augmented_shape(&any, "flip", &shape), LK_STATUS_USAGE, "sizes of their own");
    assert_detail("resized_crop=N");
    assert_int_equal(lk_augmented_shape(&any, "resize=20", &shape), LK_STATUS_USAGE);
    assert_int_equal(shape.height, 7);
    assert_ok(lk_augmented_shape(&any, "auto", &shape));
    assert_int_equal(shape.height, 20);
    assert_ok(lk_augmented_shape(&any, NULL, &shape));
    assert_int_equal(shape.width, 20);
    assert_ok(lk_augmented_shape(&test, "auto", &shape));
    assert_int_equal(shape.height, 20);
    test.test_augment = NULL;
    assert_int_equal(lk_augmented_shape(&test, "auto", &shape), LK_STATUS_USAGE);
}

/* A test split refuses random transforms and accepts all others. */
static void test_split(void **state)
{
    static const char *const random[] = {
        "crop=1",   "flip",        "vflip=.9",        "resized_crop=9",   "jitter=.1", "jitter=0/0/0/.1",
        "affine=1", "affine=0/.1", "affine=0/0/.5/1", "affine=0/0/1/1/3", "grayscale", "resize=9,flip"};
    static const char *const steady[] = {"none",           "flip=1",        "flip=0",           "vflip=1",
                                         "resize=9",       "center_crop=9", "jitter=0",         "affine=0",
                                         "affine=0/0/2/2", "grayscale=1",   "resize=9/8,flip=1"};
    lk_dataset test = made(LK_SPLIT_TEST, 30, 30), train = made(LK_SPLIT_TRAIN, 30, 30);
    lk_transforms list = {0};
    for (size_t i = 0; i < sizeof random / sizeof *random; i++) {
        assert_fails(lk__transforms_choose(&test, random[i], &list), LK_STATUS_USAGE, "is random");
        assert_detail("`test_augment` '");
        assert_detail(random[i]);
        assert_ok(lk__transforms_choose(&train, random[i], &list));
    }
    for (size_t i = 0; i < sizeof steady / sizeof *steady; i++)
        assert_ok(lk__transforms_choose(&test, steady[i], &list));
    assert_fails(lk__transforms_choose(&test, "foo", &list), LK_STATUS_USAGE, "`test_augment`: no transform 'foo'");
    assert_fails(lk__transforms_choose(&train, "foo", &list), LK_STATUS_USAGE, "`augment`: no transform 'foo'");
    assert_null(strstr(lk_error_detail(), "`test_augment`"));
}

static void check_test_augment(lk_dataset test, lk_sample_shape shape, const char *expected)
{
    char text[LK_AUGMENT_TEXT] = "";
    lk_sample_shape got = {0};
    assert_ok(lk__transforms_for_test(&test, shape, true, text));
    assert_string_equal(text, expected);
    assert_ok(lk_augmented_shape(&test, text, &got));
    assert_memory_equal(&got, &shape, sizeof got);
}

static void test_augment(void **state)
{
    lk_dataset any = made(LK_SPLIT_TEST, 0, 0), fixed = made(LK_SPLIT_TEST, 32, 28);
    check_test_augment(any, (lk_sample_shape){3, 20, 20}, "resize=24,center_crop=20"); /* its own */
    check_test_augment(any, (lk_sample_shape){3, 224, 224}, "resize=256,center_crop=224");
    check_test_augment(any, (lk_sample_shape){3, 28, 28}, "resize=32,center_crop=28");
    check_test_augment(any, (lk_sample_shape){3, 96, 96}, "resize=110,center_crop=96");
    check_test_augment(any, (lk_sample_shape){3, 96, 40}, "resize=110,center_crop=96/40");
    fixed.test_augment = NULL;
    check_test_augment(fixed, (lk_sample_shape){3, 32, 28}, "none");
    check_test_augment(fixed, (lk_sample_shape){3, 28, 32}, "resize=28/32");
    fixed.test_augment = "none";
    check_test_augment(fixed, (lk_sample_shape){3, 32, 28}, "none");
    check_test_augment(fixed, (lk_sample_shape){3, 64, 64}, "resize=64/64");
}

static void fill(lk_image *image, size_t channels, size_t height, size_t width)
{
    assert_ok(lk__image_resize(image, channels, height, width));
    for (size_t i = 0; i < channels * height * width; i++)
        image->pixels[i] = (uint8_t)(i * i * 7 + i / 3);
}

/* Changes of colour leave an image of one channel as it is. */
static void grey_stays(void **state)
{
    lk_image image = {0}, before = {0}, scratch = {0};
    fill(&before, 1, 13, 9);
    lk_transforms list = {0};
    assert_ok(lk__transforms_parse("jitter=0/0/.9/.5,grayscale=1", &list));
    for (uint32_t id = 0; id < 50; id++) {
        fill(&image, 1, 13, 9);
        assert_ok(lk__transforms_apply(&list, (lk_transforms_address){.seed = 3, .sample = id}, &image, &scratch));
        assert_memory_equal(image.pixels, before.pixels, 13 * 9);
    }
    lk__image_fini(&image);
    lk__image_fini(&before);
    lk__image_fini(&scratch);
}

/* Resampling keeps an image of one colour as it is; weights that do not add up to 1 would change it. */
static void flat_stays_flat(void **state)
{
    lk_image image = {0}, scratch = {0};
    for (size_t size = 1; size < 400; size += 37)
        for (unsigned level = 0; level < 256; level += 51) {
            assert_ok(lk__image_resize(&image, 1, 90, 400 - size));
            memset(image.pixels, (int)level, 90 * (400 - size));
            lk_image_region box = {.height = 90, .width = 400 - size};
            assert_ok(lk__image_resample(&image, &box, size, 2 * size, &scratch));
            assert_int_equal(image.height, size);
            for (size_t i = 0; i < 2 * size * size; i++)
                assert_int_equal(image.pixels[i], level);
        }
    lk__image_fini(&image);
    lk__image_fini(&scratch);
}

static void image_memory(void **state)
{
    lk_image image = {0};
    assert_ok(lk__image_resize(&image, 3, 10, 10));
    uint8_t *pixels = image.pixels;
    size_t room = image.room;
    assert_true(room >= 300);
    assert_ok(lk__image_resize(&image, 1, 5, 4));
    assert_ptr_equal(image.pixels, pixels);
    assert_int_equal(image.room, room);
    assert_int_equal(image.height, 5);
    assert_int_equal(lk__image_resize(&image, 3, SIZE_MAX / 2, 9), LK_STATUS_MEMORY);
    assert_ptr_equal(image.pixels, pixels);
    assert_int_equal(image.height, 5);
    assert_int_equal(image.width, 4);
    lk__image_fini(&image);
    lk__image_fini(&image);
    assert_null(image.pixels);
}

TEST_MAIN(NULL, NULL, TEST(messages), TEST(table), TEST(defaults), TEST(shapes), TEST(augmented_shape),
          TEST(test_split), TEST(test_augment), TEST(grey_stays), TEST(flat_stays_flat), TEST(image_memory))
