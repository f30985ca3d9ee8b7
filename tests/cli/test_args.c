/* test_args.c - the program's table of options: sound in every command, with the defaults that documents promise. */
#include "check.h"
#include "cli/options/args.h"
#include "cli/options/options.h"

static void the_programs_table_is_sound(void **state)
{
    for (unsigned bit = LK_CMD_TRAIN; bit <= LK_CMD_PREDICT; bit <<= 1) {
        lk_options_set all = lk__args_options("train", bit, 0);
        lk_args args;
        assert_int_equal(lk__args_parse(&all, 0, NULL, &args), LK_OK);
        for (size_t i = 0; i < all.count; i++) {
            assert_true(all.rows[i].commands != 0);
            assert_null(strchr(all.rows[i].name, '_'));
            assert_false(all.ends_at_word && all.rows[i].kind == LK_OPTION_KIND_LIST && all.rows[i].commands & bit);
            for (size_t j = 0; j < i; j++)
                if (all.rows[i].commands & all.rows[j].commands)
                    assert_string_not_equal(all.rows[i].name, all.rows[j].name);
        }
    }
}

/* A word that is an option of its command would never be reached, or would hide the option. */
static void the_programs_foreign_words_are_no_options(void **state)
{
    size_t count = 0;
    for (unsigned bit = LK_CMD_TRAIN; bit <= LK_CMD_PREDICT; bit <<= 1) {
        lk_options_set all = lk__args_options("train", bit, 0);
        for (const lk_options_foreign *row = all.foreign; row->word; row++) {
            const char *fixed;
            if (!(row->commands & bit) || row->beside)
                continue;
            count++;
            assert_null(*row->word ? lk__options_find(&all, row->word + strspn(row->word, "-")) : NULL);
            assert_ptr_equal(lk__options_find_foreign(&all, row->word), row);
            bool meant = lk__options_foreign_option(&all, row, &fixed) || lk__options_foreign_is_key(&all, row);
            assert_true(meant || (row->instead && row->why));
        }
    }
    assert_true(count > 50);
}

static void the_reference_defaults(void **state)
{
    lk_options_set all = lk__args_options("train", LK_CMD_TRAIN, 0);
    lk_args args;
    assert_int_equal(lk__args_parse(&all, 0, NULL, &args), LK_OK);
    assert_int_equal(lk__args_complete(&args), LK_OK);
    assert_int_equal(args.train.batch, 64);
    assert_int_equal(args.train.test_batch, 1000);
    assert_int_equal(args.train.epochs, 14);
    assert_int_equal(args.train.seed, 1);
    assert_int_equal(args.train.shards, 16);
    assert_int_equal(args.log_interval, 10);
    assert_string_equal(args.train.model, "cnn");
    assert_string_equal(args.train.data, "digits");
    assert_string_equal(args.train.optimizer, "adadelta");
    assert_string_equal(args.train.schedule, "step:size=1,gamma=0.7");
    assert_null(args.train.save_model);
}

static void complete(lk_args *args, int argc, char *const *argv)
{
    lk_options_set all = lk__args_options("train", LK_CMD_TRAIN, 0);
    assert_int_equal(lk__args_parse(&all, argc, argv, args), LK_OK);
    assert_int_equal(lk__args_complete(args), LK_OK);
}

static void the_saved_models_name(void **state)
{
    lk_args args;
    complete(&args, 2, (char *[]){"--save-model", "--data=mnist"});
    assert_string_equal(args.train.save_model, "mnist_cnn.safetensors");
    complete(&args, 3, (char *[]){"--save-model", "--data=a/b-c/", "--model=cnn:dropout=0"});
    assert_string_equal(args.train.save_model, "b-c_cnn.safetensors");
    complete(&args, 1, (char *[]){"--save_model=x.safetensors"});
    assert_string_equal(args.train.save_model, "x.safetensors");
}

static void gamma_and_schedule_exclude_each_other(void **state)
{
    lk_options_set all = lk__args_options("train", LK_CMD_TRAIN, 0);
    lk_args args;
    char *const argv[] = {"--gamma=.5", "--schedule=constant"};
    assert_int_equal(lk__args_parse(&all, 2, argv, &args), LK_OK);
    assert_fails(lk__args_complete(&args), LK_STATUS_USAGE, "`gamma`");
}

TEST_MAIN(NULL, NULL, TEST(the_programs_table_is_sound), TEST(the_programs_foreign_words_are_no_options),
          TEST(the_reference_defaults), TEST(the_saved_models_name), TEST(gamma_and_schedule_exclude_each_other))
