/* test_options.c - the option parser, with a table of the test. */
#include "base/option_rows.h"
#include "check.h"
#include "cli/options/options.h"

typedef struct values {
    bool loud;
    const char *name, *save, *once;
    size_t count;
    int ranks;
    uint64_t seed;
    double rate;
    int mode;
    char ids[LK_LIST_BYTES];
} values;

static const char *const modes[] = {"batch", "shard", NULL};

#define AT(field) LK_FIELD(values, field)

static const lk_option rows[] = {
    {"a", "loud", 'l', 1, 0, LK_OPTION_KIND_FLAG, AT(loud), NULL, 0, 0, NULL, NULL, "makes noise"},
    {"a", "name", 0, 1, 0, LK_OPTION_KIND_TEXT, AT(name), "TEXT", 0, 0, NULL, "anna", "a name"},
    {"a", "save-model", 0, 1, 0, LK_OPTION_KIND_OPTIONAL, AT(save), "PATH", 0, 0, NULL, NULL, "saves"},
    {"b", "batch-size", 0, 1, 0, LK_OPTION_KIND_COUNT, AT(count), "N", 1, 100, NULL, "64", "samples"},
    {"b", "nproc", 'n', 1, 0, LK_OPTION_KIND_INT, AT(ranks), "N", 1, 8, NULL, NULL, "ranks"},
    {"b", "seed", 0, 1, 0, LK_OPTION_KIND_SEED, AT(seed), "N", 0, 0, NULL, "1", "randomness"},
    {"b", "rate", 0, 1, 0, LK_OPTION_KIND_REAL, AT(rate), "X", 0, 2, NULL, ".5", "a rate"},
    {"b", "mode", 0, 1, 0, LK_OPTION_KIND_CHOICE, AT(mode), NULL, 0, 0, modes, "batch", "a mode"},
    {"b", "by-shard", 0, 1, 0, LK_OPTION_KIND_ALIAS, 0, "", NULL, 0, 0, NULL, "mode=shard", "the same as --mode shard"},
    {"b", "by-batch", 0, 1, 0, LK_OPTION_KIND_ALIAS, 0, "", NULL, 0, 0, NULL, "mode=batch", "the same as --mode batch"},
    {"c", "ids", 'i', 1, 0, LK_OPTION_KIND_LIST, AT(ids), "N,N,...", 0, 0, NULL, NULL, "numbers"},
    {"c", "numbers", 0, 1, 0, LK_OPTION_KIND_LIST, AT(ids), "N,N,...", 0, 0, NULL, NULL, "the same as --ids"},
    {"c", "ranks", 0, 1, 0, LK_OPTION_KIND_INT, AT(ranks), "N", 1, 8, NULL, NULL, "the same as --nproc"},
    {"c", "once", 0, 1, 0, LK_OPTION_KIND_ONCE, AT(once), "FILE", 0, 0, NULL, NULL, "a file"},
    {"b", "elsewhere", 0, 2, 0, LK_OPTION_KIND_FLAG, AT(loud), NULL, 0, 0, NULL, NULL, "another command's"},
};

static const lk_options_set set = {
    .rows = rows, .count = sizeof rows / sizeof *rows, .commands = 1, .command = "try", .max_words = 1};

enum { MAX_ARGS = 8 };

/* Parses a line that is split at single blanks. */
static lk_status parse_with(const lk_options_set *options, const char *line, values *out, lk_options_parsed *parsed)
{
    static char text[256];
    static char *argv[MAX_ARGS]; /* `parsed` points into it */
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = text; *word && argc < MAX_ARGS;) {
        argv[argc++] = word;
        word += strcspn(word, " ");
        if (*word)
            *word++ = 0;
    }
    *out = (values){0};
    return lk__options_parse(options, argc, argv, out, parsed);
}

static lk_status parse(const char *line, values *out, lk_options_parsed *parsed)
{
    return parse_with(&set, line, out, parsed);
}

static values parsed_ok(const char *line)
{
    values out;
    lk_options_parsed parsed;
    assert_int_equal(parse(line, &out, &parsed), LK_OK);
    return out;
}

/* Parsing the line fails, and the detail has both words. */
static void refuse(const char *line, const char *word, const char *other)
{
    values out;
    lk_options_parsed parsed;
    assert_fails(parse(line, &out, &parsed), LK_STATUS_USAGE, word);
    assert_detail(other);
}

static void defaults_come_from_the_table(void **state)
{
    values out = parsed_ok("");
    assert_false(out.loud);
    assert_string_equal(out.name, "anna");
    assert_null(out.save);
    assert_int_equal(out.count, 64);
    assert_int_equal(out.ranks, 0);
    assert_int_equal(out.seed, 1);
    assert_true(out.rate == .5);
    assert_int_equal(out.mode, 0);
}

static void spellings_are_interchangeable(void **state)
{
    assert_int_equal(parsed_ok("--batch-size 7").count, 7);
    assert_int_equal(parsed_ok("--batch_size 7").count, 7);
    assert_int_equal(parsed_ok("--batch-size=7").count, 7);
    assert_int_equal(parsed_ok("--batch_size=7").count, 7);
    assert_int_equal(parsed_ok("-n 4").ranks, 4);
    assert_int_equal(parsed_ok("-n4").ranks, 4);
    assert_int_equal(parsed_ok("--nproc=4").ranks, 4);
    assert_true(parsed_ok("-l").loud);
    assert_true(parsed_ok("--rate 1e0").rate == 1);
    assert_string_equal(parsed_ok("--name a=b").name, "a=b");
    assert_string_equal(parsed_ok("--name=a=b").name, "a=b");
    assert_true(parsed_ok("--seed 9223372036854775807").seed == INT64_MAX);
}

static void the_last_one_wins(void **state)
{
    assert_int_equal(parsed_ok("--batch-size 7 --batch-size 8").count, 8);
    assert_int_equal(parsed_ok("--mode batch --by-shard").mode, 1);
    assert_int_equal(parsed_ok("--by-shard --mode batch").mode, 0);
}

static void contradictions_are_refused(void **state)
{
    assert_int_equal(parsed_ok("--mode shard --by-shard").mode, 1);
    refuse("--mode shard --by-batch", "--mode shard", "--by-batch");
    refuse("--by-batch --mode shard", "--mode shard", "--by-batch");
}

static void flags_may_have_true_or_false(void **state)
{
    assert_true(parsed_ok("--loud=true").loud);
    assert_false(parsed_ok("--loud=false").loud);
    assert_false(parsed_ok("--loud --loud=false").loud);
    refuse("--loud=no", "--loud", "no value");
    refuse("--by-shard=true", "--by-shard", "no value");
}

static void some_options_are_given_once(void **state)
{
    assert_string_equal(parsed_ok("--once a").once, "a");
    refuse("--once a --once b", "--once is given twice", "'a' and 'b'");
    refuse("--once a --once=a", "--once is given twice", "give one");
    refuse("--once=", "--once", "empty");
}

/* Fills options from a file; its entries are three words each: option, value, line of the file. */
static lk_status fill(const lk_options_set *options, const char *line, const char *const *words, values *out)
{
    lk_options_entry entries[4];
    lk_options_parsed parsed;
    size_t count = 0;
    assert_int_equal(parse_with(options, line, out, &parsed), LK_OK);
    for (; words[3 * count]; count++) {
        entries[count].row = lk__options_find(options, words[3 * count]);
        assert_non_null(entries[count].row);
        entries[count].value = words[3 * count + 1];
        entries[count].source = words[3 * count + 2];
    }
    return lk__options_fill(options, entries, count, out, &parsed);
}

static void the_line_wins_over_the_file(void **state)
{
    static const char *const file[] = {"batch-size", "7", "f:1", "loud", NULL, "f:2", "by-shard", NULL, "f:3", NULL};
    static const lk_options_rival rivals[] = {{{"mode"}, {"rate"}}, {{"loud"}, {""}}, {{NULL}, {NULL}}};
    lk_options_set options = set;
    values out;
    assert_int_equal(fill(&set, "", file, &out), LK_OK);
    assert_int_equal(out.count, 7);
    assert_true(out.loud);
    assert_int_equal(out.mode, 1);
    assert_int_equal(fill(&set, "--batch-size 8 --loud=false --by-batch", file, &out), LK_OK);
    assert_int_equal(out.count, 8);
    assert_false(out.loud);
    assert_int_equal(out.mode, 0);
    assert_int_equal(fill(&set, "--rate 1 word", file, &out), LK_OK);
    assert_int_equal(out.mode, 1);
    assert_true(out.loud);
    options.rivals = rivals;
    assert_int_equal(fill(&options, "--rate 1 word", file, &out), LK_OK);
    assert_int_equal(out.mode, 0);
    assert_false(out.loud);
}

static void mistakes_in_a_file_name_its_line(void **state)
{
    static const char *const bad[] = {"batch-size", "0", "f:1", NULL};
    static const char *const apart[] = {"mode", "batch", "f:1", "by-shard", NULL, "f:2", NULL};
    static const char *const twice[] = {"seed", "1", "f:1", "seed", "1", "f:2", NULL};
    values out;
    assert_fails(fill(&set, "--batch-size 3", bad, &out), LK_STATUS_USAGE, "f:1: --batch-size '0'");
    assert_int_equal(out.count, 3);
    assert_fails(fill(&set, "", apart, &out), LK_STATUS_USAGE, "f:2: by-shard and mode, at f:1");
    assert_fails(fill(&set, "", twice, &out), LK_STATUS_USAGE, "f:2: seed is at f:1 already");
}

static void short_options_are_not_joined(void **state)
{
    refuse("-ln", "'-l -n'", "one by one");
    refuse("-l=3", "-l takes no value", "'=3'");
    refuse("--save-model=", "--save-model is empty", "PATH");
}

static void optional_values_stop_at_options(void **state)
{
    assert_string_equal(parsed_ok("--save-model").save, "");
    assert_string_equal(parsed_ok("--save-model a.safetensors").save, "a.safetensors");
    assert_string_equal(parsed_ok("--save-model=a.safetensors").save, "a.safetensors");
    values out = parsed_ok("--save-model --loud");
    assert_string_equal(out.save, "");
    assert_true(out.loud);
    assert_true(parsed_ok("--save-model -l").loud);
}

/* In a command without words, a list takes all words that follow. */
static lk_options_set wordless(void)
{
    lk_options_set options = set;
    options.max_words = 0;
    return options;
}

static void list_is(const char *line, const char *ids)
{
    lk_options_set options = wordless();
    values out;
    lk_options_parsed parsed;
    assert_int_equal(parse_with(&options, line, &out, &parsed), LK_OK);
    assert_string_equal(out.ids, ids);
    assert_string_equal(parsed_ok(line).ids, ids);
}

static void lists_are_words_or_commas(void **state)
{
    list_is("", "");
    list_is("--ids 1,6,3", "1,6,3");
    list_is("--ids=1,6,3", "1,6,3");
    list_is("--ids 1 6 3", "1,6,3");
    list_is("--ids 1 6,3", "1,6,3");
    list_is("--ids 10 11", "10,11");
    list_is("-i 0 1", "0,1");
    list_is("-i0,1", "0,1");
    list_is("--ids 7", "7");
    list_is("--ids 0 1 --loud", "0,1");
    list_is("--ids 0 1 -l", "0,1");
    list_is("--ids 0 1 --", "0,1");
    list_is("--ids 0 -1", "0,-1");
    list_is("--ids 0 1 --ids 2", "2");
}

static void lists_leave_words_to_the_command(void **state)
{
    lk_options_set options = wordless();
    values out;
    lk_options_parsed parsed;
    assert_int_equal(parse("--ids 0 1 file", &out, &parsed), LK_OK);
    assert_string_equal(out.ids, "0,1");
    assert_string_equal(parsed.words[0], "file");
    assert_int_equal(parse("--ids 0 01_first", &out, &parsed), LK_OK);
    assert_string_equal(out.ids, "0");
    assert_string_equal(parsed.words[0], "01_first");
    assert_int_equal(parse("--ids=0 1", &out, &parsed), LK_OK);
    assert_string_equal(out.ids, "0");
    assert_string_equal(parsed.words[0], "1");
    assert_int_equal(parse_with(&options, "--ids 0 one", &out, &parsed), LK_OK);
    assert_string_equal(out.ids, "0,one");
    assert_int_equal(parse("--ids one 2", &out, &parsed), LK_OK);
    assert_string_equal(out.ids, "one,2");
}

static void lists_have_no_empty_values(void **state)
{
    refuse("--ids", "--ids needs a value", "N,N,...");
    refuse("--ids --loud", "--ids needs a value", "N,N,...");
    refuse("--ids -l", "--ids needs a value", "N,N,...");
    refuse("--ids=", "--ids is empty", "N,N,...");
    refuse("--ids=1,,3", "--ids '1,,3'", "a value is missing beside a comma");
    refuse("--ids 1,", "--ids '1,'", "a value is missing beside a comma");
    refuse("--ids ,1", "--ids ',1'", "a value is missing beside a comma");
    refuse("--ids ,", "--ids ','", "a value is missing beside a comma");
    values out = {0};
    lk_options_parsed parsed;
    char *alone[] = {"--ids", ""};
    assert_int_equal(lk__options_parse(&set, 2, alone, &out, &parsed), LK_STATUS_USAGE);
    lk_options_set options = wordless();
    char *first[] = {"--ids", "", "1"}, *last[] = {"--ids", "1", ""};
    assert_int_equal(lk__options_parse(&options, 3, first, &out, &parsed), LK_STATUS_USAGE);
    assert_int_equal(lk__options_parse(&options, 3, last, &out, &parsed), LK_STATUS_USAGE);
    assert_string_equal(out.ids, "");
}

/* The longest list that fits its field is accepted; a longer one is refused. */
static void lists_have_an_end(void **state)
{
    char digits[LK_LIST_BYTES + 1], word[LK_LIST_BYTES + 16];
    char *joined[] = {"--ids", digits}, *split[] = {"--ids", digits, "2"}, *equals[] = {word};
    values out = {0};
    lk_options_parsed parsed;
    memset(digits, '1', sizeof digits);
    digits[LK_LIST_BYTES - 1] = 0;
    assert_int_equal(lk__options_parse(&set, 2, joined, &out, &parsed), LK_OK);
    assert_string_equal(out.ids, digits);
    assert_int_equal(lk__options_parse(&set, 3, split, &out, &parsed), LK_STATUS_USAGE);
    digits[LK_LIST_BYTES - 1] = '1';
    digits[LK_LIST_BYTES] = 0;
    assert_int_equal(lk__options_parse(&set, 2, joined, &out, &parsed), LK_STATUS_USAGE);
    snprintf(word, sizeof word, "--ids=%s", digits);
    assert_fails(lk__options_parse(&set, 1, equals, &out, &parsed), LK_STATUS_USAGE, "--ids is longer");
}

static void spellings_of_one_option_must_agree(void **state)
{
    list_is("--numbers 3 4", "3,4");
    list_is("--ids 3,4 --numbers 3 4", "3,4");
    assert_int_equal(parsed_ok("--ranks 3").ranks, 3);
    assert_int_equal(parsed_ok("--ranks 3 -n 3").ranks, 3);
    refuse("--ids 3,4 --numbers 3", "--ids 3,4", "--numbers 3");
    refuse("--numbers=3 --ids=3,4", "--ids 3,4", "--numbers 3");
    refuse("--ids 1 --numbers 1 --ids 2", "--ids 2", "--numbers 1");
    refuse("--ranks 3 -n 4", "--ranks 3", "--nproc 4");
    values out;
    lk_options_parsed parsed;
    assert_int_equal(parse("--numbers 3", &out, &parsed), LK_OK);
    assert_true(lk__options_given(&set, &parsed, "numbers"));
    assert_true(lk__options_given(&set, &parsed, "ids"));
    assert_false(lk__options_given(&set, &parsed, "nproc"));
}

static void words_and_what_was_given(void **state)
{
    values out;
    lk_options_parsed parsed;
    assert_int_equal(parse("file --name x --by-shard", &out, &parsed), LK_OK);
    assert_int_equal(parsed.word_count, 1);
    assert_string_equal(parsed.words[0], "file");
    assert_true(lk__options_given(&set, &parsed, "name"));
    assert_true(lk__options_given(&set, &parsed, "mode"));
    assert_false(lk__options_given(&set, &parsed, "rate"));
    assert_int_equal(parse("-- --odd-name", &out, &parsed), LK_OK);
    assert_string_equal(parsed.words[0], "--odd-name");
    refuse("one two", "two", "too many");
}

static void a_line_may_end_at_the_first_word(void **state)
{
    lk_options_set open = set;
    open.ends_at_word = true;
    values out = {0};
    lk_options_parsed parsed;
    char *line[] = {"-n", "3", "program", "--loud", "-n", "4", "--", "--unknown", NULL};
    assert_int_equal(lk__options_parse(&open, 8, line, &out, &parsed), LK_OK);
    assert_int_equal(out.ranks, 3);
    assert_false(out.loud);
    assert_ptr_equal(parsed.rest, line + 2);
    char *dashes[] = {"--loud", "--", "--name", NULL};
    assert_int_equal(lk__options_parse(&open, 3, dashes, &out, &parsed), LK_OK);
    assert_ptr_equal(parsed.rest, dashes + 2);
    assert_string_equal(out.name, "anna");
    char *none[] = {"--loud", NULL};
    assert_int_equal(lk__options_parse(&open, 1, none, &out, &parsed), LK_OK);
    assert_null(parsed.rest);
}

/* Words of another program: each is either an option, a parameter, or refused. */
static const char *const node_words[] = {"-nr", NULL};
static const lk_options_foreign foreign[] = {
    {.word = "--title", .commands = 1, .value = LK_OPTIONS_VALUE_ONE, .means = "name"},
    {.word = "-t", .commands = 1, .value = LK_OPTIONS_VALUE_ONE, .means = "name"},
    {.word = "--sharded", .commands = 1, .means = "mode=shard"},
    {.word = "--size", .commands = 1, .value = LK_OPTIONS_VALUE_ONE, .means = "name:size"},
    {.word = "--folder",
     .commands = 1,
     .value = LK_OPTIONS_VALUE_MAYBE,
     .means = "save-model",
     .instead = "--save-model x",
     .why = "it wants a file"},
    {.word = "--later",
     .commands = 1,
     .value = LK_OPTIONS_VALUE_ONE,
     .means = "not-there",
     .instead = "--name {}",
     .why = "not yet"},
    {.word = "-n",
     .commands = 1,
     .value = LK_OPTIONS_VALUE_ONE,
     .instead = "--batch-size {}",
     .why = "",
     .beside = node_words},
    {.word = "-nr",
     .commands = 1,
     .value = LK_OPTIONS_VALUE_ONE,
     .instead = "--ranks {}",
     .why = "ranks are counted",
     .needs = {"--rate 1"}},
    {.word = "--old-name", .commands = 1, .instead = "", .why = "leave it out"},
    {.word = "--test", .commands = 1, .instead = "lockstep test {name|FILE}{--rate}", .why = "a command of its own"},
    {.word = "--loud", .commands = 1, .instead = "", .why = "an option is never hidden by a row"},
    {.word = "--other", .commands = 2, .instead = "", .why = "of another command"},
    {.word = NULL}};

static lk_options_set with_foreign(void)
{
    lk_options_set open = set;
    open.foreign = foreign;
    return open;
}

static void refuse_foreign(const char *line, const char *answer)
{
    const lk_options_set open = with_foreign();
    lk_options_parsed parsed;
    values out;
    assert_int_equal(parse_with(&open, line, &out, &parsed), LK_STATUS_USAGE);
    assert_string_equal(lk_error_detail(), answer);
}

static void foreign_words_are_taken_for_options(void **state)
{
    const lk_options_set open = with_foreign();
    lk_options_parsed parsed;
    values out;
    assert_int_equal(parse_with(&open, "--title x --sharded --loud", &out, &parsed), LK_OK);
    assert_string_equal(out.name, "x");
    assert_int_equal(out.mode, 1);
    assert_true(out.loud);
    assert_true(lk__options_given(&open, &parsed, "name"));
    assert_int_equal(parse_with(&open, "-t y --folder=z --size 3", &out, &parsed), LK_OK);
    assert_string_equal(out.name, "y");
    assert_string_equal(out.save, "z");
    assert_int_equal(parsed.foreign_count, 1);
    assert_string_equal(parsed.foreign[0].value, "3");
    assert_int_equal(parse_with(&open, "--title x --name x", &out, &parsed), LK_OK);
    refuse_foreign("--title x --name y", "try: --title x and --name y contradict each other; give one");
    refuse_foreign("--sharded --mode batch",
                   "try: --sharded (--mode shard) and --mode batch contradict each other; give one");
    refuse_foreign("--sharded=1", "try: --sharded takes no value; leave '=1' out");
    refuse_foreign("--size", "try: --size needs a value (a number)");
    refuse_foreign("--other", "try: no option '--other'; 'lockstep try --help' lists those there are");
    refuse_foreign("--titel x", "try: no option '--titel'; did you mean '--title'?");
}

static void foreign_words_are_answered_with_the_line(void **state)
{
    refuse_foreign("--loud -nr 1 --name a*b",
                   "try: no option '-nr'; ranks are counted: lockstep try --loud --ranks 1 --name 'a*b' --rate 1");
    refuse_foreign("-n 2 -nr=1 --rate 2",
                   "try: no option '-nr'; ranks are counted: lockstep try --batch-size 2 --ranks 1 --rate 2");
    refuse_foreign("--old_name --rate .5", "try: no option '--old_name'; leave it out: lockstep try --rate .5");
    refuse_foreign("--later a", "try: no option '--later'; not yet: lockstep try --name a");
    refuse_foreign("--folder --loud", "try: no option '--folder'; it wants a file: lockstep try --save-model x --loud");
    refuse_foreign("--old-name --test --title t --size 4",
                   "try: no option '--old-name', '--test'; leave it out; a command of its own: lockstep test t");
    refuse_foreign("--test --rate .5", "try: no option '--test'; a command of its own: lockstep test FILE --rate .5");
    refuse_foreign("--size 4 -nr 1",
                   "try: no option '-nr'; ranks are counted: lockstep try --size 4 --ranks 1 --rate 1");
}

static void unknown_options_name_the_nearest(void **state)
{
    refuse("--batchsize 3", "--batchsize", "'--batch-size'");
    refuse("--sede=3", "--sede", "'--seed'");
    refuse("--zzzzzzzz", "--zzzzzzzz", "--help");
    refuse("-z", "-z", "--help");
    refuse("--elsewhere", "--elsewhere", "no option");
}

static void bad_values_name_flag_and_range(void **state)
{
    refuse("--batch-size", "--batch-size needs a value", "64");
    refuse("--batch-size --loud", "--batch-size needs a value", "64");
    refuse("--batch-size 0", "--batch-size", "from 1 to 100");
    refuse("--batch-size 101", "--batch-size", "from 1 to 100");
    refuse("--batch-size -3", "--batch-size", "from 1 to 100");
    refuse("--batch-size 7x", "--batch-size", "'7x'");
    refuse("--batch-size=", "--batch-size", "from 1 to 100");
    refuse("--batch-size 1.5", "--batch-size", "whole number");
    refuse("--seed -1", "--seed", "whole number");
    refuse("--rate fast", "--rate", "from 0 to 2");
    refuse("--rate nan", "--rate", "from 0 to 2");
    refuse("--rate 2.01", "--rate", "from 0 to 2");
    refuse("--mode bacth", "batch|shard", "'batch'");
    refuse("--mode xyzzyx", "batch|shard", "--mode");
    refuse("--name=", "--name", "empty");
    refuse("--loud=1", "--loud", "no value");
    refuse("--by-shard=1", "--by-shard", "no value");
}

static void help_shows_each_row_once(void **state)
{
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    lk__options_help(&set, out);
    fclose(out);
    for (size_t i = 0; i < set.count; i++)
        assert_true((strstr(text, rows[i].help) != NULL) == (rows[i].commands == 1));
    assert_contains(text, "--save-model [PATH]");
    assert_contains(text, "--mode batch|shard");
    assert_contains(text, "-n, --nproc N");
    assert_contains(text, "samples (default 64)");
}

/* A set that sweeps: options of another command take texts of several values. */
static void swept_options_take_texts(void **state)
{
    lk_options_set sweep = set;
    lk_options_parsed parsed;
    values v;
    sweep.commands = 2;
    sweep.swept = 1;
    sweep.ends_at_word = true;
    assert_ok(parse_with(&sweep, "--elsewhere -n 1,2 --rate=.5,x -- name --rate 1", &v, &parsed));
    assert_true(v.loud);
    assert_int_equal(parsed.swept_count, 2);
    assert_string_equal(parsed.swept[0].row->name, "nproc");
    assert_string_equal(parsed.swept[0].text, "1,2");
    assert_string_equal(parsed.swept[1].text, ".5,x");
    assert_string_equal(parsed.rest[0], "name");
    static const char *const bad[][2] = {{"--ratee 1,2", "did you mean '--rate'?"}, {"--rate", "needs values"},
                                         {"--rate --elsewhere", "needs values"},    {"--rate=", "needs values"},
                                         {"--nproc 1 --ranks 2", "given twice"},    {"-x 1", "no option '-x'"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(parse_with(&sweep, bad[i][0], &v, &parsed), LK_STATUS_USAGE, bad[i][1]);
    /* Sets that do not sweep refuse options of other commands. */
    sweep.swept = 0;
    assert_fails(parse_with(&sweep, "--rate 1,2", &v, &parsed), LK_STATUS_USAGE, "no option '--rate'");
}

TEST_MAIN(NULL, NULL, TEST(defaults_come_from_the_table), TEST(spellings_are_interchangeable), TEST(the_last_one_wins),
          TEST(contradictions_are_refused), TEST(flags_may_have_true_or_false), TEST(some_options_are_given_once),
          TEST(the_line_wins_over_the_file), TEST(mistakes_in_a_file_name_its_line), TEST(short_options_are_not_joined),
          TEST(optional_values_stop_at_options), TEST(lists_are_words_or_commas),
          TEST(lists_leave_words_to_the_command), TEST(lists_have_no_empty_values), TEST(lists_have_an_end),
          TEST(spellings_of_one_option_must_agree), TEST(words_and_what_was_given),
          TEST(a_line_may_end_at_the_first_word), TEST(foreign_words_are_taken_for_options),
          TEST(foreign_words_are_answered_with_the_line), TEST(unknown_options_name_the_nearest),
          TEST(bad_values_name_flag_and_range), TEST(help_shows_each_row_once), TEST(swept_options_take_texts))
