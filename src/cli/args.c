/* args.c - the table of all options, their defaults and what they set. */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#include "base/tree.h"

#define FIELD(name) offsetof(lk_args, name)

enum { TRAIN = LK_CMD_TRAIN, EVAL = LK_CMD_EVAL, COMPARE = LK_CMD_COMPARE, BENCH = LK_CMD_BENCH, INFO = LK_CMD_INFO };
enum { RUN = LK_CMD_RUN };
enum { MODELS = TRAIN | EVAL | BENCH, ALL = MODELS | COMPARE | INFO | RUN | LK_CMD_HELP };

#define BIG 1e9

static const char *const devices_choices[] = {"auto", "cpu", NULL};
static const char *const bn_choices[] = {"batch", "shard", NULL};
static const char *const bind_choices[] = {"none", "core", NULL};

/* The middle of a row: kind, field, the value's name in the help, its range. */
#define FLAG(f) LK_OPTION_FLAG, FIELD(f), NULL, 0, 0, NULL
#define TEXT(f, arg) LK_OPTION_TEXT, FIELD(f), arg, 0, 0, NULL
#define OPTIONAL(f, arg) LK_OPTION_OPTIONAL, FIELD(f), arg, 0, 0, NULL
#define COUNT(f, min, max) LK_OPTION_COUNT, FIELD(f), "N", min, max, NULL
#define INTEGER(f, min, max) LK_OPTION_INT, FIELD(f), "N", min, max, NULL
#define SEED(f) LK_OPTION_SEED, FIELD(f), "N", 0, 0, NULL
#define REAL(f, arg, min, max) LK_OPTION_REAL, FIELD(f), arg, min, max, NULL
#define CHOICE(f, words) LK_OPTION_CHOICE, FIELD(f), NULL, 0, 0, words
#define ALIAS LK_OPTION_ALIAS, 0, NULL, 0, 0, NULL

/* group, name, letter, commands, value, default, help */
static const lk_option table[] = {
    {"what", "model", 0, MODELS, TEXT(train.model, "NAME[:key=val,...]"), "cnn",
     "the network; 'lockstep info' lists them"},
    {"what", "data", 0, MODELS, TEXT(train.data, "NAME|DIR"), NULL, "the data set; without it the built-in digits"},
    {"what", "data-dir", 0, MODELS, TEXT(train.data_dir, "DIR"), NULL,
     "look for data here first, then in $LOCKSTEP_DATA, ./data, ~/.cache/lockstep, /usr/share/datasets"},
    {"what", "augment", 0, TRAIN, TEXT(train.augment, "auto|none|LIST"), "auto",
     "changes to training images, as in 'crop=4,flip'"},
    {"what", "init-from", 0, TRAIN | EVAL, TEXT(train.init_from, "FILE"), NULL,
     "take the weights from a .safetensors file"},

    {"training", "batch-size", 0, TRAIN | BENCH, COUNT(train.batch, 1, BIG), "64",
     "samples a step, all shards together"},
    {"training", "test-batch-size", 0, TRAIN | EVAL, COUNT(train.test_batch, 1, BIG), "1000",
     "samples a batch in evaluation"},
    {"training", "epochs", 0, TRAIN, COUNT(train.epochs, 0, 1e6), "14", "passes over the data"},
    {"training", "max-steps", 0, TRAIN, COUNT(train.max_steps, 1, BIG), NULL, "stop after so many steps"},
    {"training", "dry-run", 0, TRAIN, FLAG(train.dry_run), NULL, "one batch of training and one of testing"},
    {"training", "dry-run", 0, EVAL, FLAG(train.dry_run), NULL, "one batch only"},
    {"training", "no-test", 0, TRAIN, FLAG(train.no_test), NULL, "no evaluation after epochs"},
    {"training", "seed", 0, TRAIN | BENCH, SEED(train.seed), "1", "all that is random follows from it"},

    {"learning", "optimizer", 0, TRAIN | BENCH, TEXT(train.optimizer, "NAME[:key=val,...]"), "adadelta",
     "the update rule; 'lockstep info' lists them"},
    {"learning", "lr", 0, TRAIN | BENCH, REAL(train.lr, "RATE", 1e-30, 1e6), NULL,
     "learning rate; without it the optimiser's own"},
    {"learning", "gamma", 0, TRAIN, REAL(gamma, "FACTOR", 0, 1e3), ".7",
     "the learning rate's factor from epoch to epoch"},
    {"learning", "schedule", 0, TRAIN, TEXT(train.schedule, "NAME[:key=val,...]"), NULL,
     "the learning rate's course; without it step:size=1,gamma=GAMMA"},

    {"how", "devices", 0, MODELS, CHOICE(devices, devices_choices), "auto", "where to compute"},
    {"how", "no-cuda", 0, MODELS, ALIAS, "devices=cpu", "the same as --devices cpu"},
    {"how", "threads", 0, TRAIN | EVAL, INTEGER(train.threads, 1, 1024), NULL, "without it as many as there are cores"},
    {"how", "threads", 0, BENCH, INTEGER(train.threads, 1, 1024), NULL,
     "without it as many as there are cores (bench kernels: 1)"},
    {"how", "num-workers", 0, TRAIN | EVAL, INTEGER(train.workers, 0, 256), "1",
     "threads that prepare batches; 0 for none"},
    {"how", "shards", 0, MODELS, INTEGER(train.shards, 1, LK_MAX_SHARDS), "16",
     "parts that a batch is summed in; belongs to the result"},
    {"how", "micro-batch", 0, TRAIN | BENCH, COUNT(train.micro_batch, 1, BIG), NULL,
     "samples in memory at once, the same result; BatchNorm under --bn batch needs all"},
    {"how", "bn", 0, TRAIN | BENCH, CHOICE(bn, bn_choices), "batch", "what BatchNorm normalises over"},
    {"how", "sync-bn", 0, TRAIN | BENCH, ALIAS, "bn=batch", "the same as --bn batch"},

    {"bench", "steps", 0, BENCH, COUNT(steps, 1, BIG), "50", "bench train: steps to time"},
    {"bench", "repeat", 0, BENCH, COUNT(repeat, 1, 1000), "7", "bench kernels: timings of which the median counts"},

    {"bench", "nproc", 'n', BENCH, INTEGER(nproc, 1, 256), "2", "bench allreduce: ranks to start"},
    {"bench", "backend", 0, BENCH, TEXT(backend, "auto|shm|tcp"), NULL, "bench allreduce: what moves the bytes"},
    {"bench", "max-bytes", 0, BENCH, COUNT(max_bytes, 4, BIG), "100000000", "bench allreduce: the largest vector"},
    {"bench", "runs", 0, BENCH, COUNT(runs, 1, 99), "5", "bench allreduce: runs of which the median counts"},

    {"ranks", "nproc-per-node", 'n', RUN, TEXT(run.nproc, "N|auto"), "1",
     "ranks on this node; auto: as many as there are cores"},
    {"ranks", "nproc", 0, RUN, TEXT(run.nproc, "N|auto"), NULL, "the same as --nproc-per-node"},
    {"ranks", "max-restarts", 0, RUN, INTEGER(run.max_restarts, 0, 1e6), "0",
     "start all ranks again, so many times, after one has failed"},
    {"ranks", "backend", 0, RUN, TEXT(backend, "auto|shm|tcp"), NULL,
     "what moves the bytes of Lockstep programs' groups; without it $LOCKSTEP_BACKEND, or auto"},
    {"ranks", "bind", 0, RUN, CHOICE(run.bind, bind_choices), "none", "core: a share of the cores for each rank"},
    {"ranks", "log-dir", 0, RUN, TEXT(run.log_dir, "DIR"), NULL, "also write each rank's output to DIR/rank_R.log"},
    {"ranks", "timeout", 0, RUN, REAL(run.timeout, "SECONDS", .1, 1e7), "300",
     "how long nodes that are missing and ranks that are stopped are waited for"},
    {"nodes", "nnodes", 0, RUN, INTEGER(run.nnodes, 1, 1024), "1", "nodes of the job; run the same line on each"},
    {"nodes", "node-rank", 0, RUN, INTEGER(run.node_rank, 0, 4095), NULL, "which of them this is, from 0"},
    {"nodes", "master-addr", 0, RUN, TEXT(run.master_addr, "HOST"), NULL,
     "node 0's host, where nodes and ranks meet; without it 127.0.0.1"},
    {"nodes", "master-port", 0, RUN, INTEGER(run.master_port, 1, 65535), NULL,
     "without it any free port; with several nodes 29400"},
    {"nodes", "init-method", 0, RUN, TEXT(run.init_method, "URL"), NULL,
     "where nodes meet: tcp://HOST:PORT, or file://PATH in a folder that all see"},
    {"nodes", "rdzv-endpoint", 0, RUN, TEXT(run.rdzv_endpoint, "HOST[:PORT]"), NULL,
     "the same as --master-addr and --master-port"},
    {"nodes", "standalone", 0, RUN, FLAG(run.standalone), NULL, "one node, which is the default"},

    {"output", "save-model", 0, TRAIN, OPTIONAL(train.save_model, "PATH"), NULL,
     "save the final model; without PATH as DATA_MODEL.safetensors"},
    {"output", "log-interval", 0, TRAIN, COUNT(log_interval, 1, BIG), "10", "batches between two lines of output"},
    {"output", "quiet", 'q', TRAIN, FLAG(quiet), NULL, "no progress line"},
    {"output", "quiet", 'q', COMPARE, FLAG(quiet), NULL, "print nothing; the exit status tells"},
    {"output", "json", 0, MODELS, FLAG(json), NULL, "one JSON object a line"},
    {"output", "help", 'h', ALL, FLAG(help), NULL, "show this text"},
};

#define ROWS (sizeof table / sizeof *table)

_Static_assert(ROWS <= (size_t)LK_OPTIONS_MAX, "lk_parsed has no room for all options");

/* What torchrun, torch.distributed.launch and well-known scripts call things. */
static const lk_foreign_option run_foreign[] = {
    {"-nr", "write --node-rank: lockstep run --nnodes 2 --node-rank 1 --master-addr HOST -n 4 PROGRAM"},
    {"--nr", "write --node-rank: lockstep run --nnodes 2 --node-rank 1 --master-addr HOST -n 4 PROGRAM"},
    {"-ip", "write --master-addr: lockstep run --nnodes 2 --node-rank 1 --master-addr HOST -n 4 PROGRAM"},
    {"--nodes", "write --nnodes: lockstep run --nnodes 2 --node-rank 1 --master-addr HOST -n 4 PROGRAM"},
    {"-g", "write -n for the ranks on this node: lockstep run -n 4 PROGRAM"},
    {"--gpus", "write -n for the ranks on this node: lockstep run -n 4 PROGRAM"},
    {"-m", "any program can be run: lockstep run -n 2 python3 -m MODULE"},
    {"--module", "any program can be run: lockstep run -n 2 python3 -m MODULE"},
    {"--no-python", "nothing is put before the program: lockstep run -n 2 PROGRAM; a script is 'python3 SCRIPT'"},
    {"--use-env", "LOCAL_RANK is always in the environment: leave it out"},
    {"--rdzv-backend", "leave it out and give each node its rank: lockstep run --nnodes 2 --node-rank 1 "
                       "--rdzv-endpoint HOST:PORT -n 4 PROGRAM"},
    {"--rdzv-id", "leave it out; LOCKSTEP_TOKEN, the same on all nodes, tells jobs apart"},
    {NULL, NULL},
};

lk_option_set lk__args_options(const char *command, unsigned bit, size_t max_words)
{
    return (lk_option_set){.rows = table,
                           .count = ROWS,
                           .commands = bit,
                           .command = command,
                           .max_words = max_words,
                           .ends_at_word = bit == LK_CMD_RUN,
                           .foreign = bit == LK_CMD_RUN ? run_foreign : NULL};
}

lk_status lk__args_parse(const lk_option_set *set, int argc, char *const *argv, lk_args *out)
{
    lk_args args = {0};
    lk_parsed parsed;
    LK_TRY(lk__options_parse(set, argc, argv, &args, &parsed));
    memcpy(args.words, parsed.words, sizeof args.words);
    args.word_count = parsed.word_count;
    args.schedule_given = lk__options_given(set, &parsed, "schedule");
    args.gamma_given = lk__options_given(set, &parsed, "gamma");
    args.run.node_rank_given = lk__options_given(set, &parsed, "node-rank");
    args.run.program = parsed.rest;
    *out = args;
    return LK_OK;
}

static lk_status complete_schedule(lk_args *args)
{
    if (args->schedule_given && args->gamma_given)
        return lk__fail(LK_STATUS_USAGE,
                        "--gamma belongs to the default schedule; with --schedule write it there, as "
                        "in '--schedule step:size=1,gamma=%g'",
                        args->gamma);
    if (args->schedule_given)
        return LK_OK;
    snprintf(args->schedule, sizeof args->schedule, "step:size=1,gamma=%.17g", args->gamma);
    args->train.schedule = args->schedule;
    return LK_OK;
}

/* The last part of a data set's name or folder. */
static void data_name(const char *data, char *out, size_t bytes)
{
    size_t length = strlen(data);
    while (length > 0 && data[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && data[start - 1] != '/')
        start--;
    snprintf(out, bytes, "%.*s", (int)(length - start), data + start);
    if (!*out || strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        snprintf(out, bytes, "data");
}

static void complete_save_path(lk_args *args)
{
    if (!args->train.save_model || *args->train.save_model)
        return;
    char data[256];
    data_name(args->train.data ? args->train.data : "digits", data, sizeof data);
    snprintf(args->save_path, sizeof args->save_path, "%s_%.*s.safetensors", data, (int)strcspn(args->train.model, ":"),
             args->train.model);
    args->train.save_model = args->save_path;
}

lk_status lk__args_complete(lk_args *args)
{
    LK_TRY(complete_schedule(args));
    complete_save_path(args);
    if (!args->train.data)
        args->train.data = "digits";
    args->train.bn = args->bn == 0 ? LK_BN_BATCH : LK_BN_SHARD;
    /* Both choices of --devices are the CPU: this build has no other. */
    args->train.device = "cpu";
    return LK_OK;
}
