/* test_config.c - config files together with a command line, by the program's option table: values, which
 * of the two wins, and errors. */
#include "check.h"
#include "cli/options/args.h"
#include "cli/options/config.h"
#include "io/yaml.h"
#include "temp_folder.h"

enum { MAX_ARGS = 16 };

static char path[TEMP_FOLDER_BYTES + 16];

/* Parses "--config PATH" and a line that is split at single blanks. */
static lk_status parse_as(unsigned bit, const char *text, const char *line, lk_args *args)
{
    static char words[512];
    char *argv[MAX_ARGS] = {"--config", path};
    int argc = 2;
    size_t max_words = bit == LK_CMD_TRAIN ? 0 : 1;
    const char *name = bit == LK_CMD_TRAIN ? "train" : bit == LK_CMD_EVAL ? "eval" : "bench";
    lk_options_set set = lk__args_options(name, bit, max_words);
    temp_write(path, text, strlen(text));
    snprintf(words, sizeof words, "%s", line);
    for (char *word = words; *word && argc < MAX_ARGS;) {
        argv[argc++] = word;
        word += strcspn(word, " ");
        if (*word)
            *word++ = 0;
    }
    return lk__args_parse(&set, argc, argv, args);
}

static lk_args parsed_as(unsigned bit, const char *text, const char *line)
{
    lk_args args;
    if (parse_as(bit, text, line, &args) != LK_OK)
        fail_msg("'%s': %s", text, lk_error_detail());
    return args;
}

static lk_args parsed(const char *text, const char *line)
{
    return parsed_as(LK_CMD_TRAIN, text, line);
}

static void said(const char *text, const char *line_number, const char *part, const char *other)
{
    char origin[sizeof path + 16];
    snprintf(origin, sizeof origin, "%s:%s", path, line_number);
    const char *detail = lk_error_detail();
    if (!strstr(detail, origin) || !strstr(detail, part) || !strstr(detail, other))
        fail_msg("'%s' gives '%s', without '%s', '%s' and '%s'", text, detail, origin, part, other);
}

/* Parsing fails, and the detail has the line and both parts. */
static void refuse_as(unsigned bit, const char *text, const char *line_number, const char *part, const char *other)
{
    lk_args args;
    assert_int_equal(parse_as(bit, text, "", &args), LK_STATUS_USAGE);
    said(text, line_number, part, other);
}

static void refuse(const char *text, const char *line_number, const char *part, const char *other)
{
    refuse_as(LK_CMD_TRAIN, text, line_number, part, other);
}

static void keys_are_long_names(void **state)
{
    lk_args args = parsed("batch-size: 7\ntest_batch_size: 8\nlr: .5\nseed: 2020\nbn: shard\ndata: mnist\n", "");
    assert_int_equal(args.train.batch, 7);
    assert_int_equal(args.train.test_batch, 8);
    assert_true(args.train.lr == .5);
    assert_int_equal(args.train.seed, 2020);
    assert_int_equal(args.train.bn, LK_BN_MODE_SHARD);
    assert_string_equal(args.train.data, "mnist");
    assert_string_equal(args.config, path);
    assert_int_equal(args.train.epochs, 14);
}

static void flags_are_true_or_false(void **state)
{
    lk_args args = parsed("no-test: true\ndry-run: false\njson: True\nsync-bn: false\nsave-model: true\n", "");
    assert_true(args.train.no_test);
    assert_false(args.train.dry_run);
    assert_true(args.json);
    assert_string_equal(args.train.save_model, "");
    assert_null(parsed("save-model: false\n", "").train.save_model);
    assert_string_equal(parsed("save-model: m.safetensors\n", "").train.save_model, "m.safetensors");
    refuse("seed: 1\nno-test: maybe\n", "2:", "no-test 'maybe'", "true or false");
    refuse("no-test: 1\n", "1:", "no-test '1'", "true or false");
    refuse("no-test: 'true'\n", "1:", "no-test 'true'", "without quotes");
    /* Words that some YAML readers take for true or false are refused. */
    refuse("seed: 1\nno-test: yes\n", "2:", "'yes'", "write true");
    refuse("save-model: Yes\n", "1:", "'Yes'", "quotes");
    refuse("json: OFF\n", "1:", "'OFF'", "write false");
    refuse("model: {name: cnn, dropout2d: on}\n", "1:", "'on'", "write true");
    refuse("augment: {flip: no}\n", "1:", "'no'", "write false");
    assert_string_equal(parsed("save-model: 'yes'\n", "").train.save_model, "yes");
    refuse("data: true\n", "1:", "data wants NAME|DIR", "true");
    assert_string_equal(parsed("data: 'true'\n", "").train.data, "true");
}

static void specs_may_be_mappings(void **state)
{
    lk_args args = parsed("model: {name: cnn, dropout2d: true}\n"
                          "optimizer:\n  momentum: .9\n  name: sgd\n  nesterov: true\n  dampening: false\n"
                          "schedule: {name: multistep, milestones: [30, 60], gamma: 0.1}\n",
                          "");
    assert_string_equal(args.train.model, "cnn:dropout2d=1");
    assert_string_equal(args.train.optimizer, "sgd:momentum=.9,nesterov=1,dampening=0");
    assert_string_equal(args.train.schedule, "multistep:milestones=30/60,gamma=0.1");
    assert_true(args.schedule_given);
    args = parsed("model: {name: mlp}\noptimizer: sgd:momentum=.9,nesterov=1\n", "");
    assert_string_equal(args.train.model, "mlp");
    assert_string_equal(args.train.optimizer, "sgd:momentum=.9,nesterov=1");
    refuse("model: {dropout: 0}\n", "1:", "model", "name");
    refuse("model: {name: [a]}\n", "1:", "model", "name");
    refuse("optimizer:\n  name: sgd\n  momentum: {a: 1}\n", "3:", "'momentum'", "optimizer");
    refuse("optimizer:\n  name: sgd\n  momentum:\n", "3:", "'momentum'", "wants a value");
    refuse("optimizer:\n  name: sgd:momentum=.9\n", "2:", "'sgd:momentum=.9'", "one text");
    refuse("model: [cnn]\n", "1:", "model", "no list");
    refuse("lr: {a: 1}\n", "1:", "lr", "no mapping");
    refuse("no-test: [true]\n", "1:", "no-test", "no list");
}

static void terms_may_be_lists_or_mappings(void **state)
{
    assert_string_equal(parsed("augment: crop=4,flip\n", "").train.augment, "crop=4,flip");
    assert_string_equal(parsed("augment: [crop=4, flip]\n", "").train.augment, "crop=4,flip");
    assert_string_equal(parsed("augment: {crop: 4, vflip: false, flip: true}\n", "").train.augment, "crop=4,flip");
    lk_args args = parsed("augment:\n  - flip\n  - jitter: [.3, .2]\n  - vflip:\nstages: [fc1, fc2]\n", "");
    assert_string_equal(args.train.augment, "flip,jitter=.3/.2,vflip");
    assert_string_equal(args.train.stages, "fc1,fc2");
    refuse("augment: []\n", "1:", "--augment", "empty");
    refuse("augment: [[a]]\n", "1:", "augment", "plain values");
    refuse("augment: [jitter: []]\n", "1:", "'jitter'", "empty list");
    refuse("augment: {jitter: [[1]]}\n", "1:", "'jitter'", "plain values");
}

static void lists_are_joined(void **state)
{
    assert_string_equal(parsed("devices: [cpu:0, cpu:1]\n", "").device_names, "cpu:0,cpu:1");
    assert_string_equal(parsed("devices: cpu:0,cpu:1\n", "").device_names, "cpu:0,cpu:1");
    assert_string_equal(parsed("gpu_ids: [10, 2]\n", "").gpu_ids, "10,2");
    assert_string_equal(parsed("gpu-devices:\n  - 3\n", "").gpu_ids, "3");
    refuse("gpu-ids: [1, ~]\n", "1:", "gpu-ids", "plain values");
    refuse("gpu-ids: ',1'\n", "1:", "--gpu-ids", "a value is missing beside a comma");
}

static void the_command_line_wins(void **state)
{
    assert_int_equal(parsed("batch_size: 7\n", "--batch-size 8").train.batch, 8);
    assert_int_equal(parsed("batch-size: 7\n", "--batch_size=64").train.batch, 64);
    assert_string_equal(parsed("nproc: 2\n", "-n 3").run.nproc, "3");
    assert_string_equal(parsed("nproc: 2\n", "--nproc-per-node 3").run.nproc, "3");
    assert_string_equal(parsed("n: 2\n", "--nproc-per-node 3").run.nproc, "3");
    assert_string_equal(parsed("n: 2\n", "").run.nproc, "2");
    assert_string_equal(parsed("nproc_per_node: auto\n", "").run.nproc, "auto");
    assert_string_equal(parsed("gpu-ids: 1\n", "--gpu-devices 2 3").gpu_ids, "2,3");
    assert_int_equal(parsed("bn: shard\n", "--sync-bn").train.bn, LK_BN_MODE_BATCH);
    assert_int_equal(parsed("sync-bn: true\n", "--bn shard").train.bn, LK_BN_MODE_SHARD);
    assert_int_equal(parsed("bn: shard\n", "").train.bn, LK_BN_MODE_SHARD);
    assert_false(parsed("no-test: true\n", "--no-test=false").train.no_test);
    assert_true(parsed("no-test: false\n", "--no-test").train.no_test);
    assert_string_equal(parsed("model: pyramidnet\n", "--model mlp").train.model, "mlp");
    assert_string_equal(parsed("save-model: a\n", "--save-model").train.save_model, "");
}

static void typed_options_replace_their_rivals(void **state)
{
    lk_args args = parsed("devices: cpu\nno-cuda: true\n", "--gpu-ids 3");
    assert_string_equal(args.device_names, "");
    assert_false(args.no_cuda);
    assert_string_equal(args.gpu_ids, "3");
    args = parsed("gpu-ids: [0, 1]\n", "--no-cuda");
    assert_string_equal(args.gpu_ids, "");
    args = parsed("gpu-ids: [0, 1]\n", "--no-cuda=false");
    assert_string_equal(args.gpu_ids, "0,1");
    args = parsed("gpu-idx: 2\n", "--devices cpu:1");
    assert_string_equal(args.gpu_ids, "");
    args = parsed("gamma: .5\n", "--schedule constant");
    assert_false(args.gamma_given);
    assert_int_equal(lk__args_complete(&args), LK_OK);
    args = parsed("nproc: 2\nbind: core\n", "--rank 0 --world-size 2 --init-method file:///x");
    assert_null(args.run.nproc);
    assert_false(args.run.bind_given);
    args = parsed("rank: 0\nworld-size: 2\n", "-n 2");
    assert_false(args.run.rank_given);
    assert_int_equal(args.run.world_size, 0);
    args = parsed("init-method: tcp://a:1\n", "--master-addr b");
    assert_null(args.run.init_method);
    args = parsed("master-port: 12\n", "--master-addr b");
    assert_int_equal(args.run.master_port, 12);
}

static void a_launchers_ranks_start_none(void **state)
{
    assert_string_equal(parsed("nproc: 2\n", "").run.nproc, "2");
    setenv("RANK", "0", 1);
    lk_args args = parsed("nproc: 2\n", ""), typed = parsed("", "-n 2");
    unsetenv("RANK");
    assert_null(args.run.nproc);
    assert_string_equal(typed.run.nproc, "2");
}

/* Contradicting options are refused, and the origins of both are named. */
static void contradictions_name_both_origins(void **state)
{
    lk_args args = parsed("lr: 1\nschedule: constant\n", "--gamma .5");
    assert_int_equal(lk__args_complete(&args), LK_STATUS_USAGE);
    const char *said = lk__args_spell(lk_error_detail());
    assert_non_null(strstr(said, "--gamma belongs"));
    assert_non_null(strstr(said, " (--schedule is from"));
    assert_non_null(strstr(said, "test.yaml:2)"));
    assert_null(strstr(said, "--gamma is"));
    assert_null(strstr(said, "--lr"));
    refuse("nproc: 2\nlr: 1\nnproc-per-node: 3\n", "3:", "nproc", "test.yaml:1");
    refuse("bn: shard\nsync-bn: true\n", "2:", "sync-bn and bn", "test.yaml:1");
    refuse("batch-size: 1\nbatch_size: 1\n", "2:", "batch-size", "test.yaml:1 already");
    assert_string_equal(parsed("nproc: 2\nnproc-per-node: 2\n", "").run.nproc, "2");
}

/* The library's text as the program prints it; F stands for the path of the file. */
static void spells(const char *text, const char *expected)
{
    char said[512];
    const char *from = lk__args_spell(text);
    size_t used = 0;
    for (size_t length; *from && used + 1 < sizeof said; from += length) {
        length = strncmp(from, path, strlen(path)) == 0 ? strlen(path) : 1;
        said[used++] = length > 1 ? 'F' : *from;
    }
    said[used] = 0;
    assert_string_equal(said, expected);
}

static void fields_become_options(void **state)
{
    parsed("", "--gpu-devices 0 --nproc-per-node 2");
    spells("`max_steps` is 0", "--max-steps is 0");
    spells("`batch`, `workers` and `test_batch`", "--batch-size, --num-workers and --test-batch-size");
    spells("`device` `backend` `bucket_bytes`", "--devices --backend --bucket-mb");
    spells("`num_workers` `devices`", "--num-workers --devices");
    spells("`gpu_ids` 'x'", "--gpu-devices 'x'");
    spells("`nproc` 2", "-n 2");
    spells("`max-steps` ``lr` `lr` `nobody` `lr", "`max-steps` `--lr --lr `nobody` `lr");
    spells("", "");
    spells("`", "`");
}

static void origins_are_of_what_is_named(void **state)
{
    char few[8];
    parsed("nproc: 2\nlr: 1\ngpu-ids: 3\n", "");
    spells("`nproc` 2: too many", "-n 2: too many (--nproc is from F:1)");
    spells("`lr`, `gpu_ids`, `lr`", "--lr, --gpu-ids, --lr (--lr is from F:2, --gpu-ids is from F:3)");
    spells("`lr_decay`, lr, -n 4, --lr, `seed`", "`lr_decay`, lr, -n 4, --lr, --seed");
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    assert_string_equal(lk__options_spell(&set, NULL, "`lr` and `gpu_ids`", few, sizeof few), "--lr an");
    parsed("gpu_idx: 3\n", "");
    spells("`gpu_ids` 3", "--gpu-idx 3 (--gpu-idx is from F:1)");
    parsed("data: cifa10\n", "");
    spells("`data`: no data set 'cifa10'", "--data: no data set 'cifa10' (--data is from F:1)");
    parsed("seed: 1\n", "--seed 2");
    spells("`seed`", "--seed");
    parsed("", "--gamma .5");
    spells("`schedule` and `gamma`", "--schedule and --gamma (--schedule is from --gamma)");
    parsed("lr: 1\n", "");
    lk__args_release();
    spells("`lr`", "--lr");
}

static void bad_values_have_a_line_even_when_overridden(void **state)
{
    lk_args args;
    refuse("seed: 1\n\nlr: fast\n", "3:", "--lr 'fast'", "must be a number");
    refuse("batch-size: 0\n", "1:", "--batch-size '0'", "from 1 to");
    refuse("bn: bacth\n", "1:", "--bn 'bacth'", "did you mean 'batch'");
    refuse("lr:\n", "1:", "lr has no value", "leave the line out");
    refuse("data: ''\n", "1:", "--data", "empty");
    refuse("save-model: ''\n", "1:", "--save-model", "empty");
    assert_int_equal(parse_as(LK_CMD_TRAIN, "lr: fast\n", "--lr 1", &args), LK_STATUS_USAGE);
    said("lr: fast", "1:", "--lr 'fast'", "number");
}

static void unknown_keys_name_the_nearest(void **state)
{
    refuse("lr: 1\nbatchsize: 3\n", "2:", "'batchsize'", "'batch-size'");
    refuse("optimiser: sgd\n", "1:", "'optimiser'", "'optimizer'");
    refuse("qqqqqqqqqq: 1\n", "1:", "'qqqqqqqqqq'", "lockstep train --help");
    refuse("max-bytes: 1\n", "1:", "no option", "'max-bytes'");
    refuse("config: a.yaml\n", "1:", "'config'", "command line");
    refuse("help: true\n", "1:", "'help'", "command line");
    refuse("z: 2\n", "1:", "no option 'z'", "");
    refuse("h: true\n", "1:", "'h'", "command line");
    refuse("a: [\n", "2:", "not valid YAML", "");
}

static void one_file_serves_several_commands(void **state)
{
    const char *recipe = "model: mlp\ndata: mnist\nepochs: 3\nschedule: constant\nthreads: 2\n";
    lk_args args = parsed_as(LK_CMD_EVAL, recipe, "file");
    assert_string_equal(args.train.model, "mlp");
    assert_int_equal(args.train.threads, 2);
    assert_int_equal(args.train.epochs, 0);
    args = parsed_as(LK_CMD_BENCH, recipe, "train --threads 1");
    assert_string_equal(args.train.model, "mlp");
    assert_int_equal(args.train.threads, 1);
    assert_int_equal(parsed_as(LK_CMD_BENCH, "repeat: 3\n", "train").repeat, 3);
    refuse_as(LK_CMD_EVAL, "epochs: many\n", "1:", "--epochs 'many'", "whole number");
    refuse_as(LK_CMD_EVAL, "epoch: 3\n", "1:", "'epoch'", "'epochs'");
    refuse_as(LK_CMD_EVAL, "repeat: 3\n", "1:", "no option 'repeat'", "");
    args = parsed_as(LK_CMD_EVAL, "init-from: a\n", "file");
    assert_null(args.train.init_from);
    assert_string_equal(parsed_as(LK_CMD_EVAL, "init-from: a\n", "").train.init_from, "a");
}

static void there_is_one_file(void **state)
{
    lk_args args;
    assert_fails(parse_as(LK_CMD_TRAIN, "lr: 1\n", "--config other.yaml", &args), LK_STATUS_USAGE,
                 "--config is given twice");
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    char *argv[] = {"--config", "no-such-file.yaml", "--help"};
    assert_fails(lk__args_parse(&set, 2, argv, &args), LK_STATUS_NOT_FOUND, "no-such-file.yaml");
    assert_int_equal(lk__args_parse(&set, 3, argv, &args), LK_OK);
    assert_true(args.help);
}

static int setup(void **state)
{
    lk_yaml *yaml = NULL;
    if (lk__yaml_parse("", "", 0, &yaml) == LK_STATUS_UNSUPPORTED) {
        puts("skipped: this build has no libyaml");
        exit(0);
    }
    lk__yaml_destroy(yaml);
    unsetenv("RANK");
    temp_folder_create(temp_folder);
    snprintf(path, sizeof path, "%s/test.yaml", temp_folder);
    return 0;
}

static int teardown(void **state)
{
    lk__args_release();
    temp_folder_remove(temp_folder);
    return 0;
}

TEST_MAIN(setup, teardown, TEST(keys_are_long_names), TEST(flags_are_true_or_false), TEST(specs_may_be_mappings),
          TEST(terms_may_be_lists_or_mappings), TEST(lists_are_joined), TEST(the_command_line_wins),
          TEST(typed_options_replace_their_rivals), TEST(a_launchers_ranks_start_none),
          TEST(contradictions_name_both_origins), TEST(fields_become_options), TEST(origins_are_of_what_is_named),
          TEST(bad_values_have_a_line_even_when_overridden), TEST(unknown_keys_name_the_nearest),
          TEST(one_file_serves_several_commands), TEST(there_is_one_file))
