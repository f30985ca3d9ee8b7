/* test_spec.c - specs such as "sgd:momentum=.9": names, parameters, numbers, and the nearest known word. */
#include "base/spec.h"
#include "check.h"

static void names(void **state)
{
    char name[LK_SPEC_MAX_NAME];
    assert_int_equal(lk__spec_name("sgd:momentum=.9", "--optimizer", name), LK_OK);
    assert_string_equal(name, "sgd");
    assert_int_equal(lk__spec_name("adam", "--optimizer", name), LK_OK);
    assert_string_equal(name, "adam");
    assert_fails(lk__spec_name(":lr=1", "--optimizer", name), LK_STATUS_USAGE, "--optimizer");
    char longest[LK_SPEC_MAX_NAME + 1];
    memset(longest, 'a', LK_SPEC_MAX_NAME);
    longest[LK_SPEC_MAX_NAME] = '\0';
    assert_int_equal(lk__spec_name(longest, "--model", name), LK_STATUS_USAGE);
    assert_int_equal(lk__spec_name(longest + 1, "--model", name), LK_OK);
    assert_string_equal(name, longest + 1);
}

typedef struct fixture {
    double momentum, weight_decay, nesterov;
    lk_spec_key keys[3];
} fixture;

static fixture *fresh(void)
{
    static fixture f;
    f = (fixture){.momentum = .5, .weight_decay = .25, .nesterov = 0};
    f.keys[0] = (lk_spec_key){"momentum", &f.momentum, 0, 1, false};
    f.keys[1] = (lk_spec_key){"weight_decay", &f.weight_decay, 0, 10, false};
    f.keys[2] = (lk_spec_key){"nesterov", &f.nesterov, 0, 1, true};
    return &f;
}

static void params(void **state)
{
    fixture *f = fresh();
    assert_int_equal(lk__spec_params("sgd", "--optimizer", f->keys, 3), LK_OK);
    assert_true(f->momentum == .5 && f->weight_decay == .25 && f->nesterov == 0);
    assert_int_equal(lk__spec_params("sgd:nesterov,weight-decay=1e-2,momentum=1", "--optimizer", f->keys, 3), LK_OK);
    assert_true(f->momentum == 1 && f->weight_decay == 1e-2 && f->nesterov == 1);
}

static void refuse(const char *text, const char *part)
{
    fixture *f = fresh();
    assert_fails(lk__spec_params(text, "--optimizer", f->keys, 3), LK_STATUS_USAGE, "--optimizer");
    assert_detail(part);
    /* Nothing is stored, also not the parameters before the mistake. */
    assert_true(f->momentum == .5 && f->weight_decay == .25 && f->nesterov == 0);
}

static void bad_params(void **state)
{
    refuse("sgd:momentun=.9", "did you mean 'momentum'");
    refuse("sgd:momentum=.9,xyzzy=1", "known: momentum, weight_decay, nesterov");
    refuse("sgd:momentum=.9,weight_decay=11", "from 0 to 10");
    refuse("sgd:momentum=-0.1", "from 0 to 1");
    refuse("sgd:momentum=fast", "'fast' is not a number");
    refuse("sgd:momentum=", "not a number");
    refuse("sgd:momentum=.9x", "not a number");
    refuse("sgd:momentum=nan", "not a number");
    refuse("sgd:momentum=1,nesterov=.5", "nesterov=0.5 must be a whole number (from 0 to 1)");
    refuse("sgd:momentum=1,momentum=1", "twice");
    refuse("sgd:", "missing");
    refuse("sgd:momentum=1,", "missing");
    refuse("sgd:=1", "missing");
    assert_fails(lk__spec_params("mlp:a=1", "--model", NULL, 0), LK_STATUS_USAGE, "none can be set");
}

static void values(void **state)
{
    const lk_spec_param rows[] = {{"size", 7, 1, 1e9, true}, {"gamma", .5, 0, 1, false}, {NULL, 0, 0, 0, false}};
    double got[3] = {-1, -1, -1};
    assert_int_equal(lk__spec_values("step", "--schedule", rows, 3, got), LK_OK);
    assert_true(got[0] == 7 && got[1] == .5 && got[2] == -1);
    assert_int_equal(lk__spec_values("step:gamma=.25,size=1000000000", "--schedule", rows, 2, got), LK_OK);
    assert_true(got[0] == 1e9 && got[1] == .25);
    assert_fails(lk__spec_values("step:size=2.5", "--schedule", rows, 3, got), LK_STATUS_USAGE,
                 "--schedule: size=2.5 must be a whole number (from 1 to 1000000000)");
    assert_fails(lk__spec_values("step:gamma=1", "--schedule", rows, 1, got), LK_STATUS_USAGE, "known: size");
}

static const lk_spec_param list_rows[] = {{"gamma", .5, 0, 1, false}, {NULL, 0, 0, 0, false}};
static const lk_spec_list list_default = {
    .name = "milestones", .min = 1, .max = 100, .whole = true, .count = 2, .values = {30, 60}};

static void lists(void **state)
{
    double gamma[2] = {0};
    lk_spec_list list = list_default;
    assert_int_equal(lk__spec_values_list("m", "--schedule", list_rows, 2, gamma, &list), LK_OK);
    assert_memory_equal(&list, &list_default, sizeof list);
    assert_int_equal(lk__spec_values_list("m:milestones=5", "--schedule", list_rows, 2, gamma, &list), LK_OK);
    assert_true(list.count == 1 && list.values[0] == 5 && gamma[0] == .5);
    assert_int_equal(lk__spec_values_list("m:milestones=1/2/3,gamma=1", "--schedule", list_rows, 2, gamma, &list),
                     LK_OK);
    assert_true(list.count == 3 && list.values[0] == 1 && list.values[2] == 3 && gamma[0] == 1);
    assert_int_equal(lk__spec_values_list("m:milestones=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16", "--schedule",
                                          list_rows, 2, gamma, &list),
                     LK_OK);
    assert_true(list.count == LK_SPEC_MAX_LIST && list.values[15] == 16);
    list.name = NULL;
    assert_int_equal(lk__spec_values_list("m:gamma=.25", "--schedule", list_rows, 2, gamma, &list), LK_OK);
    assert_true(gamma[0] == .25);
}

static void refuse_list(const char *text, const char *part)
{
    double gamma[2] = {0};
    lk_spec_list list = list_default;
    assert_fails(lk__spec_values_list(text, "--schedule", list_rows, 2, gamma, &list), LK_STATUS_USAGE, "--schedule");
    assert_detail(part);
    assert_true(gamma[0] == .5);
    assert_memory_equal(&list, &list_default, sizeof list);
}

static void bad_lists(void **state)
{
    refuse_list("m:gamma=1,milestones", "'milestones' needs values, as in 'milestones=30/60'");
    refuse_list("m:milestones=", "'' is not a number for 'milestones'");
    refuse_list("m:milestones=30/", "'' is not a number");
    refuse_list("m:milestones=/30", "'' is not a number");
    refuse_list("m:milestones=3/x/5", "'x' is not a number");
    refuse_list("m:milestones=3/4.5", "milestones=4.5 must be a whole number");
    refuse_list("m:milestones=3/101", "milestones=101 is out of range (from 1 to 100)");
    refuse_list("m:milestones=30/20", "the values of 'milestones' must rise, but after 30 comes 20");
    refuse_list("m:milestones=30/30", "must rise");
    refuse_list("m:milestones=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", "at most 16 values");
    refuse_list("m:milestones=1,milestones=2", "given twice");
    refuse_list("m:milestone=1", "did you mean 'milestones'? (known: gamma, milestones)");
    refuse_list("m:gamma=1/2", "'1/2' is not a number for 'gamma'");
}

static void numbers(void **state)
{
    double real = 7;
    assert_true(lk__number_parse_double(".5", &real) && real == .5);
    assert_true(lk__number_parse_double("-1e-3", &real) && real == -1e-3);
    const char *not_real[] = {"", " 1", "1 ", "1,5", "inf", "nan", "1e999", "--1"};
    for (size_t i = 0; i < sizeof not_real / sizeof *not_real; i++)
        assert_false(lk__number_parse_double(not_real[i], &real));
    assert_true(real == -1e-3);
    long long whole = 7;
    assert_true(lk__number_parse_int("-5", -5, 5, &whole) && whole == -5);
    assert_true(lk__number_parse_int("9223372036854775807", 0, INT64_MAX, &whole) && whole == INT64_MAX);
    const char *not_whole[] = {"", " 1", "1.0", "6", "-6", "0x1", "9223372036854775808", "1k"};
    for (size_t i = 0; i < sizeof not_whole / sizeof *not_whole; i++)
        assert_false(lk__number_parse_int(not_whole[i], -5, 5, &whole));
    assert_true(whole == INT64_MAX);
}

static const char *word_at(const void *arg, size_t index)
{
    const char *const *words = arg;
    return words[index];
}

static void nearest(void **state)
{
    const char *words[] = {"batch-size", "test-batch-size", "epochs", "lr", "seed", NULL};
    assert_string_equal(lk__names_nearest("batch_size", word_at, words), "batch-size");
    assert_string_equal(lk__names_nearest("bacth-size", word_at, words), "batch-size");
    assert_string_equal(lk__names_nearest("epoch", word_at, words), "epochs");
    assert_null(lk__names_nearest("test-batch", word_at, words));
    assert_null(lk__names_nearest("momentum", word_at, words));
    assert_null(lk__names_nearest("x", word_at, words));
    assert_null(lk__names_nearest("", word_at, words));
    /* A word that shares only half of its letters is not suggested. */
    const char *augments[] = {"crop", "flip", "auto", "none", "layer1", NULL};
    assert_null(lk__names_nearest("cutout", word_at, augments));
    assert_null(lk__names_nearest("nolayer", word_at, augments));
    assert_null(lk__names_nearest("blur", word_at, augments));
    assert_string_equal(lk__names_nearest("crpo", word_at, augments), "crop");
    const char *none[] = {NULL};
    assert_null(lk__names_nearest("lr", word_at, none));
}

static void finding(void **state)
{
    const char *words[] = {"sgd", "adam", "adadelta", NULL};
    const lk_names optimisers = {.what = "--optimizer", .kind = "optimiser", .next = word_at, .arg = words};
    size_t index = 7;
    assert_int_equal(lk__spec_find("adam", &optimisers, &index), LK_OK);
    assert_int_equal(index, 1);
    assert_int_equal(lk__spec_find("adadelta:rho=.5", &optimisers, &index), LK_OK);
    assert_int_equal(index, 2);
    assert_int_equal(lk__spec_find("ada", &optimisers, &index), LK_STATUS_USAGE);
    assert_detail("--optimizer: no optimiser 'ada'; did you mean 'adam'? (known: sgd, adam, adadelta)");
    assert_int_equal(lk__spec_find("sdg:momentum=1", &optimisers, &index), LK_STATUS_USAGE);
    assert_detail("'sdg'; did you mean 'sgd'?");
    assert_fails(lk__spec_find("momentum", &optimisers, &index), LK_STATUS_USAGE,
                 "no optimiser 'momentum' (known: sgd, adam, adadelta)");
    assert_fails(lk__spec_find(":rho=1", &optimisers, &index), LK_STATUS_USAGE, "missing");
    assert_int_equal(lk__names_find(&optimisers, "adam:", &index), LK_STATUS_USAGE);
    assert_int_equal(index, 2);
    char text[8];
    lk__names_join(&optimisers, text, sizeof text);
    assert_string_equal(text, "sgd, ad");
}

TEST_MAIN(NULL, NULL, TEST(names), TEST(params), TEST(bad_params), TEST(values), TEST(numbers), TEST(nearest),
          TEST(finding), TEST(lists), TEST(bad_lists))
