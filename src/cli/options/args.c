/* args.c - the table of all options: those of training, from train/table.c, and those of the program itself.
 * Also sets values that depend on several options. */
#include "cli/options/args.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/option_rows.h"
#include "base/spec.h"
#include "base/tree.h"
#include "cli/options/config.h"
#include "cli/options/habits.h"
#include "cli/options/resume.h"
#include "parallel/engine/backend.h"

#define FIELD(name) LK_FIELD(lk_args, name)
/* Stands for the rows of lk__train_option in this group. */
#define TRAINING(group)                         \
    {                                           \
        group, NULL, 0, 0, 0, ALIAS, NULL, NULL \
    }

enum { TRAIN = LK_CMD_TRAIN, EVAL = LK_CMD_EVAL, COMPARE = LK_CMD_COMPARE, BENCH = LK_CMD_BENCH, INFO = LK_CMD_INFO };
enum { DATA = LK_CMD_DATA, RUN = LK_CMD_RUN, CONVERT = LK_CMD_CONVERT, VERIFY = LK_CMD_VERIFY, SERVE = LK_CMD_SERVE };
enum { PLOT = LK_CMD_PLOT, REPORT = LK_CMD_REPORT, SWEEP = LK_CMD_SWEEP, RECORDS = PLOT | REPORT | SWEEP };
enum { PREDICT = LK_CMD_PREDICT, MODELS = TRAIN | EVAL | BENCH, COMPUTES = MODELS | PREDICT };
enum { ALL = RECORDS | COMPUTES | COMPARE | INFO | RUN | DATA | CONVERT | VERIFY | SERVE | LK_CMD_HELP };

#define BIG 1e9

const char *const lk__args_parallel_names[] = {"auto", "single", "dp", "ddp", "pp", NULL};
const char *const lk__args_completion_names[] = {"none", "bash", "zsh", NULL};
static const char *const log_ranks_choices[] = {"0", "all", NULL};
static const char *const bind_choices[] = {"none", "core", NULL};

/* group, name, letter, commands, properties, value, default, help */
static const lk_option table[] = {
    {"what", "model", 0, INFO, 0, SPEC(train.model, "NAME[:key=val,...]"), NULL,
     "this network's layers, and what they cost to compute and in memory"},
    {"what", "data", 0, INFO, 0, TEXT(train.data, "NAME|DIR"), NULL,
     "the network for this data set; without it for what it was made for"},
    {"what", "input", 0, INFO, 0, TEXT(input, "CxHxW"), NULL, "or for such images, as in 3x32x32"},
    {"what", "classes", 0, INFO, 0, COUNT(classes, 1, BIG), NULL, "and for so many classes"},
    {"what", "devices", 0, INFO, 0, LIST(device_names, "cuda:0"), NULL,
     "what computes its convolutions and linear layers on this GPU, found by a step of training there"},
    {"what", "precision", 0, INFO, 0, CHOICE(train.precision, lk__device_precision_names), "auto",
     "of that step, as for train; auto: tf32conv on GPUs, fp32 on the CPU"},
    {"what", "group", 0, INFO, 0, FLAG(group), NULL,
     "this process as a task of Slurm, MPI, PBS or torchrun: rank, size, hosts, and which variables say so"},
    {"what", "model", 0, PREDICT, 0, SPEC(train.model, "NAME[:key=val,...]"), NULL,
     "the network, where the file does not say it"},
    {"what", "data", 0, PREDICT, 0, TEXT(train.data, "NAME|DIR"), NULL,
     "the data set that it was trained on, where the file does not say how images are prepared"},
    {"what", "test-augment", 0, PREDICT, 0, TERMS(train.test_augment, "auto|none|LIST"), "auto",
     "changes to the images, as in 'resize=28,center_crop=28'; auto: as the file says"},
    TRAINING("what"),
    {"what", "data-dir", 0, DATA, 0, TEXT(train.data_dir, "DIR"), NULL,
     "data get: the folder to write to, without it ~/.cache/lockstep; list, verify: look only in this folder"},
    {"what", "url", 0, DATA, 0, TEXT(data_url, "URL"), NULL,
     "data get: fetch the files from this folder; without it $LOCKSTEP_DATA_URL, or where they are published"},
    {"what", "input", 0, BENCH, 0, TEXT(input, "CxHxW"), NULL,
     "bench train, layers: random images of this shape instead of a data set, as in 3x224x224"},
    {"what", "classes", 0, BENCH, 0, COUNT(classes, 1, BIG), NULL,
     "bench train, layers: classes of the random images; without it those of the data that the model was made for"},
    {"what", "config", 0, MODELS, 0, ONCE(config, "FILE.yaml"), NULL,
     "options from a file such as configs/mnist-cnn.yaml, whose keys are names of options; options of this line "
     "override it"},

    TRAINING("training"),
    {"address", "host", 0, SERVE, 0, TEXT(host, "ADDR"), NULL,
     "listen at this address, for other machines, with a token in the page's address; without it 127.0.0.1"},
    {"address", "port", 0, SERVE, 0, INTEGER(port, 1, 65535), NULL,
     "port of the page; without it 6060, or any free port if 6060 is taken"},

    {"training", "dry-run", 0, EVAL, 0, FLAG(train.dry_run), NULL, "one batch only"},

    TRAINING("learning"),
    {"learning", "gamma", 0, TRAIN, 0, REAL(gamma, "FACTOR", 0, 1e3), ".7",
     "factor of the learning rate from epoch to epoch"},

    {"how", "devices", 0, TRAIN, 0, LIST(device_names, "auto|cpu|cuda:0,cuda:1|..."), NULL,
     "where to compute: cpu, cuda:0, or several with a rank on each, as in 'cuda:0,cuda:1'; auto (the default): all "
     "GPUs, or the CPU if there are no GPUs, or fewer than the ranks of -n"},
    {"how", "devices", 0, EVAL, 0, LIST(device_names, "auto|cpu|cuda:0,cuda:1|..."), NULL,
     "where to compute: cpu, cuda:0, or several with a rank on each, as in 'cuda:0,cuda:1'; auto (the default): the "
     "first GPU, with -n all GPUs in turn, or the CPU if there are no GPUs"},
    {"how", "devices", 0, PREDICT, 0, LIST(device_names, "auto|cpu|cuda:0"), NULL,
     "where to compute, on one device: cpu, cuda:0; auto (the default): the first GPU, or the CPU if there are no "
     "GPUs"},
    {"how", "devices", 0, BENCH, 0, LIST(device_names, "auto|cpu|cuda:0"), NULL,
     "bench train, predict: where to compute, on one device, which all ranks share: cpu, cuda:0; auto (the default): "
     "the first GPU, or the CPU if there are no GPUs. Other benchmarks are of the CPU"},
    {"how", "gpu-ids", 0, BENCH | PREDICT, 0, LIST(gpu_ids, "0"), NULL, "the GPU by number: '1' is --devices cuda:1"},
    {"how", "gpu-ids", 0, TRAIN | EVAL, 0, LIST(gpu_ids, "0,1,..."), NULL,
     "GPUs by number: '1,6,3' is cuda:1,cuda:6,cuda:3"},
    {"how", "gpu-idx", 0, BENCH | PREDICT, 0, LIST(gpu_ids, "0"), NULL, "the same as --gpu-ids"},
    {"how", "gpu-idx", 0, TRAIN | EVAL, 0, LIST(gpu_ids, "0,1,..."), NULL, "the same as --gpu-ids"},
    {"how", "gpu-devices", 0, BENCH | PREDICT, 0, LIST(gpu_ids, "0"), NULL, "the same as --gpu-ids"},
    {"how", "gpu-devices", 0, TRAIN | EVAL, 0, LIST(gpu_ids, "0,1,..."), NULL, "the same, as in '--gpu-devices 0 1'"},
    {"how", "no-cuda", 0, COMPUTES, 0, FLAG(no_cuda), NULL, "no GPUs; the same as --devices cpu"},
    {"how", "parallel", 0, TRAIN, 0, CHOICE(parallel, lk__args_parallel_names), "auto",
     "dp: the ranks are threads of one process, each with a device; ddp: processes; pp: stages of the model"},
    {"how", "stages", 0, BENCH, 0, TERMS(train.stages, "K|NAME,NAME"), NULL,
     "bench train: cut the model into K stages, or before the layers of these names"},
    {"how", "threads", 0, EVAL | PREDICT, 0, INTEGER(train.threads, 1, 1024), NULL,
     "threads; without it one for each core"},
    {"how", "threads", 0, BENCH, 0, INTEGER(train.threads, 1, 1024), NULL,
     "threads of a rank; without it the ranks share the cores evenly (bench kernels, layers, predict: 1)"},
    TRAINING("how"),
    {"how", "sync-bn", 0, TRAIN | BENCH, 0, ALIAS, "bn=batch", "the same as --bn batch"},

    {"bench", "steps", 0, BENCH, 0, COUNT(steps, 1, BIG), "50",
     "bench train, layers, predict: steps, or calls, to time"},
    {"bench", "repeat", 0, BENCH, 0, COUNT(repeat, 1, 1000), "7", "bench kernels: timings of which the median counts"},
    {"bench", "nproc", 'n', BENCH, 0, INTEGER(nproc, 1, 256), NULL,
     "bench train, allreduce: ranks to start; without it train has 1, allreduce 2"},
    {"ranks", "nproc", 'n', EVAL, 0, INTEGER(nproc, 1, LK_EVALUATE_MAX_RANKS), NULL,
     "ranks that share the evaluation, threads of this process; the same result for any number up to --shards"},
    {"bench", "independent", 0, BENCH, 0, FLAG(independent), NULL,
     "bench train: each rank trains alone, on its part of the batch; their rates are added"},
    {"bench", "in-step", 0, BENCH, 0, FLAG(in_step), NULL,
     "bench train --independent: ranks wait for each other after each step, and exchange nothing else"},
    {"bench", "backend", 0, BENCH, 0, TEXT(backend, "auto|shm|tcp|mpi|nccl"), NULL,
     "bench train, allreduce: what moves data between ranks; nccl: for bench train only"},
    {"bench", "max-bytes", 0, BENCH, 0, COUNT(max_bytes, 4, BIG), "100000000", "bench allreduce: the largest vector"},
    {"bench", "runs", 0, BENCH, 0, COUNT(runs, 1, 99), NULL,
     "runs of which the median counts; without it 1 (train), 3 (data), 5 (allreduce)"},

    {"ranks", "nproc-per-node", 'n', RUN, 0, TEXT(run.nproc, "N|auto|gpu"), "1",
     "ranks on this node; auto: one for each core, gpu: one for each GPU"},
    {"ranks", "nproc", 0, RUN, 0, TEXT(run.nproc, "N|auto|gpu"), NULL, "the same as --nproc-per-node"},
    {"ranks", "nproc", 'n', TRAIN, 0, TEXT(run.nproc, "N|auto|gpu"), NULL,
     "start this many ranks on this node; auto: one for each core, gpu: one for each GPU"},
    {"ranks", "nproc-per-node", 0, TRAIN, 0, TEXT(run.nproc, "N|auto|gpu"), NULL, "the same as --nproc"},
    {"ranks", "max-restarts", 0, RUN, 0, INTEGER(run.max_restarts, 0, 1e6), "0",
     "start all ranks again after one has failed, at most this many times"},
    {"ranks", "backend", 0, RUN, 0, TEXT(backend, "auto|shm|tcp|mpi|nccl"), NULL,
     "what moves data between the ranks of Lockstep programs; without it $LOCKSTEP_BACKEND, or auto"},
    {"ranks", "backend", 0, TRAIN, 0, TEXT(backend, "auto|shm|tcp|mpi|nccl"), NULL,
     "what moves data between ranks. nccl: gradients and activations go from GPU to GPU; auto does the same if each "
     "rank has a GPU of its own, or all share one; mpi: for ranks that mpirun or srun --mpi has started. Without it "
     "$LOCKSTEP_BACKEND, or auto"},
    {"ranks", "bind", 0, RUN | TRAIN, 0, CHOICE(run.bind, bind_choices), "none",
     "core: bind each rank to its share of the cores"},
    {"ranks", "log-dir", 0, RUN, 0, TEXT(run.log_dir, "DIR"), NULL, "also write each rank's output to DIR/rank_R.log"},
    {"ranks", "timeout", 0, RUN | TRAIN, 0, REAL(run.timeout, "SECONDS", .1, 1e7), NULL,
     "seconds to wait for a node or rank that is missing or stopped; without it $LOCKSTEP_TIMEOUT, or 300"},
    {"ranks", "grace", 0, RUN, 0, REAL(run.grace, "SECONDS", .1, 86400), NULL,
     "seconds that interrupted ranks have to save and end before they are killed; without it 5"},

    {"nodes", "nnodes", 0, RUN | TRAIN, 0, INTEGER(run.nnodes, 1, 1024), "1",
     "nodes of the job; run the same line on each"},
    {"nodes", "node-rank", 0, RUN | TRAIN, 0, INTEGER(run.node_rank, 0, 4095), NULL, "number of this node, from 0"},
    {"nodes", "master-addr", 0, RUN | TRAIN, 0, TEXT(run.master_addr, "HOST"), NULL,
     "node 0's host, to which nodes and ranks connect; without it 127.0.0.1"},
    {"nodes", "master-port", 0, RUN | TRAIN, 0, INTEGER(run.master_port, 1, 65535), NULL,
     "port of node 0 for this; without it any free port, or 29400 with several nodes"},
    {"nodes", "init-method", 0, RUN, 0, TEXT(run.init_method, "URL"), NULL,
     "rendezvous of nodes: tcp://HOST:PORT, or file://PATH in a folder that all see"},
    {"nodes", "rdzv-endpoint", 0, RUN, 0, TEXT(run.rdzv_endpoint, "HOST[:PORT]"), NULL,
     "the same as --master-addr and --master-port"},
    {"nodes", "standalone", 0, RUN | TRAIN, 0, FLAG(run.standalone), NULL,
     "one node, which is the default; tasks of a scheduler do not join each other"},

    {"by hand", "init-method", 0, TRAIN, 0, TEXT(run.init_method, "URL"), NULL,
     "rendezvous of ranks (with --nnodes: nodes): tcp://HOST:PORT, file://PATH in a folder that all see, env://"},
    {"by hand", "rank", 0, TRAIN, 0, INTEGER(run.rank, 0, 4095), NULL,
     "number of this process in the job, from 0; without it the number of the task of Slurm or MPI, or of the job "
     "array"},
    {"by hand", "world-size", 0, TRAIN, 0, INTEGER(run.world_size, 1, 4096), NULL,
     "processes of the job; without it the number of tasks of Slurm or MPI, or of the job array"},

    TRAINING("checkpoints"),
    {"checkpoints", "resume", 0, TRAIN, 0, OPTIONAL(resume, "DIR|auto"), NULL,
     "go on from this checkpoint, or from the newest that is whole; auto: in the folder of --checkpoint, or of an "
     "earlier run of this line in --log-dir, where there may be none yet"},
    {"checkpoints", "requeue", 0, TRAIN, 0, FLAG(requeue), NULL,
     "in a job of Slurm: at the signal before its time limit (sbatch --signal=USR1@120) save, end and let Slurm start "
     "the job again; its next run goes on, as with --resume auto"},

    TRAINING("output"),
    {"output", "top", 0, PREDICT, 0, COUNT(top, 1, BIG), "5", "number of classes that are printed for an image"},
    {"output", "log-interval", 0, TRAIN, 0, COUNT(log_interval, 1, BIG), "10",
     "batches between two lines of output; on a terminal, without it, the progress line replaces them"},
    {"output", "log-dir", 0, TRAIN, 0, TEXT(log_dir, "DIR"), NULL,
     "create a folder for this run in DIR, with log, metrics, event files for TensorBoard, configuration, first and "
     "final state, and with `save_every` also checkpoints"},
    {"output", "serve", 0, TRAIN, 0, OPTIONAL(serve, "PORT|HOST:PORT"), NULL,
     "with `log_dir`: show its runs on a page while training, as 'lockstep serve DIR' does; prints the address"},
    {"output", "log-ranks", 0, TRAIN, 0, CHOICE(log_ranks, log_ranks_choices), "0",
     "all: every rank also prints lines of its own"},
    {"output", "quiet", 'q', TRAIN, 0, FLAG(quiet), NULL,
     "print results only; with `json`, `log_interval` or `log_ranks` all, leave out progress only"},
    {"output", "quiet", 'q', EVAL, 0, FLAG(quiet), NULL, "no progress line"},
    {"output", "quiet", 'q', COMPARE | CONVERT | VERIFY, 0, FLAG(quiet), NULL,
     "print nothing; the exit status is the result"},
    {"output", "output", 'o', PLOT, 0, TEXT(output, "FILE"), "plot.svg", "the picture: .svg, .png or .pdf"},
    {"sweep", "output", 'o', SWEEP, 0, TEXT(output, "DIR"), "sweep",
     "folder of the sweep: a folder for each cell, the picture and the page"},
    {"sweep", "slurm", 0, SWEEP, 0, OPTIONAL(slurm, "=OPTIONS"), NULL,
     "submit each cell as a job of Slurm, with these options of sbatch, as in '--slurm=\"-p long -t 60\"'"},
    {"output", "output", 'o', REPORT, 0, TEXT(output, "FILE"), "report.html", "the page"},
    {"output", "quiet", 'q', DATA, 0, FLAG(quiet), NULL, "print errors only"},
    {"output", "json", 0, COMPUTES | DATA | INFO | VERIFY, 0, FLAG(json), NULL, "one JSON object a line"},
    {"output", "man", 0, LK_CMD_HELP, 0, FLAG(man), NULL, "the source of the man page, for man -l -"},
    {"output", "completion", 0, LK_CMD_HELP, 0, CHOICE(completion, lk__args_completion_names), "none",
     "the script by which this shell completes lockstep's commands, options and their values"},
    {"output", "help", 'h', ALL, 0, FLAG(help), NULL, "show this text"},
};

/* The table, with the options of training inserted. */
static lk_option rows[LK_OPTIONS_MAX];
static size_t row_count;

static void add_row(const lk_option *row, size_t base)
{
    assert(row_count < (size_t)LK_OPTIONS_MAX);
    rows[row_count] = *row;
    rows[row_count++].offset += base;
}

static void build_rows(void)
{
    const lk_option *row;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].name)
            add_row(&table[i], 0);
        for (size_t k = 0; !table[i].name && (row = lk__train_option(k)) != NULL; k++)
            if (strcmp(row->group, table[i].group) == 0)
                add_row(row, offsetof(lk_args, train));
    }
}

/* An option of a file is overridden not only by the same option on the command line, but also by others with
 * the same purpose. --gamma beside a schedule of the file is an error instead: it would not be clear which
 * schedule it belongs to. */
static const lk_options_rival rivals[] = {
    {{"devices", "gpu-ids", "no-cuda"}, {"devices", "gpu-ids", "no-cuda"}},
    {{"gamma"}, {"schedule"}},
    {{"init-from"}, {""}}, /* eval FILE */
    /* Ranks started by this command, by hand, or by a launcher. */
    {{"nproc", "nnodes", "node-rank", "bind", "master-addr", "master-port"}, {"rank", "world-size", "$RANK"}},
    {{"rank", "world-size"}, {"nproc", "nnodes"}},
    {{"rank", "world-size", "init-method"}, {"$RANK"}},
    {{"master-addr", "master-port"}, {"init-method"}},
    {{"init-method"}, {"master-addr", "master-port"}},
    {{NULL}, {NULL}},
};

/* Fields of the library whose options have another name. */
static const lk_options_field fields[] = {{"device", "devices"}, {"bucket_bytes", "bucket_mb"}, {NULL, NULL}};

lk_options_set lk__args_options(const char *command, unsigned bit, size_t max_words)
{
    if (!row_count)
        build_rows();
    return (lk_options_set){.rows = rows,
                            .count = row_count,
                            .commands = bit,
                            .command = command,
                            .max_words = max_words,
                            .ends_at_word = bit == LK_CMD_RUN || bit == LK_CMD_SWEEP,
                            .swept = bit == LK_CMD_SWEEP ? LK_CMD_TRAIN : 0,
                            .foreign = lk__habits_words,
                            .foreign_values = lk__habits_values,
                            .rivals = rivals,
                            .fields = fields};
}

/* The last command line and file of options, for messages. */
static struct {
    lk_options_set set;
    lk_options_parsed parsed;
    bool typed[LK_OPTIONS_MAX]; /* by row: on the command line */
} learned;

const char *lk__args_spell(const char *text)
{
    static _Thread_local char spelt[4096];
    if (!learned.set.rows)
        learned.set = lk__args_options("train", LK_CMD_TRAIN, 0);
    return lk__options_spell(&learned.set, &learned.parsed, text, spelt, sizeof spelt);
}

/* --gamma is another way to write --schedule. */
static void learn(const lk_options_set *set, const lk_options_parsed *parsed)
{
    const lk_option *schedule = lk__options_find(set, "schedule");
    learned.set = *set;
    learned.parsed = *parsed;
    for (size_t i = 0; i < set->count; i++)
        learned.typed[i] = parsed->given[i] && !parsed->from[i];
    if (schedule && lk__options_given(set, parsed, "gamma") && !lk__options_given(set, parsed, "schedule"))
        learned.parsed.from[schedule - set->rows] = "--gamma";
    for (size_t i = 0; i < set->count; i++)
        if (parsed->said[i] && parsed->given[i] && !parsed->from[i])
            learned.parsed.from[i] = parsed->said[i];
}

bool lk__args_typed(const char *name)
{
    const lk_option *row = lk__options_find(&learned.set, name);
    for (size_t i = 0; row && i < learned.set.count; i++)
        if (learned.typed[i] && lk__options_same(&learned.set.rows[i], row))
            return true;
    for (size_t i = 0; row && i < learned.parsed.foreign_count; i++) {
        const char *means = learned.parsed.foreign[i].row->means;
        size_t length = strcspn(means, ":");
        if (strncmp(means, row->name, length) == 0 && !row->name[length])
            return true;
    }
    return false;
}

lk_status lk__args_parse(const lk_options_set *set, int argc, char *const *argv, lk_args *out)
{
    lk_args args = {0};
    lk_options_parsed parsed;
    LK_TRY(lk__options_parse(set, argc, argv, &args, &parsed));
    if (args.config && !args.help) {
        lk_options_set recipe = lk__args_options("train", LK_CMD_TRAIN, 0);
        LK_TRY(lk__config_load(set, &recipe, args.config, &args, &parsed));
    }
    if (!args.help)
        LK_TRY(lk__habits_take_lr(set, &args, &parsed));
    learn(set, &parsed);
    args.precision_given = lk__options_given(set, &parsed, "precision");
    if (args.requeue && args.train.checkpoint && !args.resume)
        args.resume = "auto";
    if (args.resume && !args.help)
        LK_TRY(lk__cli_resume_options(&(lk_cli_run_line){set, argc, argv}, &args, &parsed));
    if (set->commands & (LK_CMD_EVAL | LK_CMD_PREDICT) && !args.help)
        LK_TRY(lk__cli_resume_model(set, &args, &parsed));
    if (!args.help)
        LK_TRY(lk__habits_complete(set, &args, &parsed));
    memcpy(args.words, parsed.words, sizeof args.words);
    args.word_count = parsed.word_count;
    args.schedule_given = lk__options_given(set, &parsed, "schedule");
    args.gamma_given = lk__options_given(set, &parsed, "gamma");
    args.save_every_given = lk__options_given(set, &parsed, "save-every");
    args.shards_given = lk__options_given(set, &parsed, "shards");
    args.log_interval_typed = lk__options_typed(set, &parsed, "log-interval");
    args.run.nnodes_given = lk__options_given(set, &parsed, "nnodes");
    args.run.node_rank_given = lk__options_given(set, &parsed, "node-rank");
    args.run.rank_given = lk__options_given(set, &parsed, "rank");
    args.run.bind_given = lk__options_given(set, &parsed, "bind");
    args.run.program = parsed.rest;
    memcpy(args.swept, parsed.swept, sizeof args.swept);
    args.swept_count = parsed.swept_count;
    for (size_t i = 0; i < row_count; i++)
        args.options_given += parsed.given[i];
    *out = args;
    return LK_OK;
}

void lk__args_release(void)
{
    lk__config_unload();
    lk__cli_resume_unload();
    learned.parsed = (lk_options_parsed){0};
}

static lk_status complete_schedule(lk_args *args)
{
    if (args->schedule_given && args->gamma_given)
        return lk__fail(LK_STATUS_USAGE,
                        "`gamma` belongs to the default schedule; with `schedule` write it there, as "
                        "in '`schedule` step:size=1,gamma=%g'",
                        args->gamma);
    if (args->schedule_given)
        return LK_OK;
    char gamma[LK_NUMBER_TEXT];
    snprintf(args->schedule, sizeof args->schedule, "step:size=1,gamma=%s", lk__number_text(args->gamma, gamma));
    args->train.schedule = args->schedule;
    return LK_OK;
}

/* The last part of a data set's name or folder. */
static void data_name(const char *data, char *out, size_t bytes)
{
    size_t length;
    const char *last = lk__path_last(data, &length);
    snprintf(out, bytes, "%.*s", (int)length, last);
    if (!*out || strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        snprintf(out, bytes, "data");
}

static void complete_save_path(lk_args *args)
{
    if (!args->train.save_model || *args->train.save_model)
        return;
    char data[256];
    data_name(args->train.data ? args->train.data : LK_ARGS_DATA, data, sizeof data);
    snprintf(args->save_path, sizeof args->save_path, "%s_%.*s.safetensors", data, (int)strcspn(args->train.model, ":"),
             args->train.model);
    args->train.save_model = args->save_path;
}

/* Refuses options that would have no effect. */
static lk_status complete_checkpoints(lk_args *args)
{
    lk_train_opts *opts = &args->train;
    if (!opts->checkpoint && !args->log_dir && args->save_every_given)
        return lk__fail(LK_STATUS_USAGE,
                        "`save_every` saves nowhere: give the folder with `checkpoint` DIR or `log_dir` DIR");
    if (args->resume_searched && !opts->checkpoint && !args->save_every_given)
        return lk__fail(
            LK_STATUS_USAGE,
            "`resume` auto: no run of this line in `log_dir` %s has a checkpoint, and this line saves none: "
            "add `save_every` N, or `save_every` epoch%s%s",
            args->log_dir, *args->notice ? ". " : "", args->notice);
    if (args->requeue && !opts->checkpoint)
        return lk__fail(LK_STATUS_USAGE,
                        "`requeue` lets the next run go on from a checkpoint: give the folder with `checkpoint` DIR");
    if (args->requeue && args->resume_exact)
        return lk__fail(LK_STATUS_USAGE,
                        "`requeue` starts the same line again, and `resume` %s would go back to that checkpoint: write "
                        "`resume` auto",
                        args->resume);
    if (opts->reshard && !args->resume)
        return lk__fail(LK_STATUS_USAGE,
                        "`reshard` goes on from a checkpoint with other shards: give that with `resume`");
    return LK_OK;
}

static lk_status complete_serve(const lk_args *args)
{
    if (args->serve && !args->log_dir)
        return lk__fail(LK_STATUS_USAGE, "`serve` shows the runs of a folder: give that with `log_dir` DIR");
    return LK_OK;
}

/* The words of --backend: the backend of the group, and that of an engine whose gradients are summed over the tree, or
 * in an order of their own. NCCL sums gradients only; the group of such a job is chosen by itself. */
static const struct backend {
    const char *name, *group;
    lk_engine_backend tree, own;
} backends[] = {
    {"auto", "auto", LK_ENGINE_BACKEND_AUTO, LK_ENGINE_BACKEND_AUTO},
    {"shm", "shm", LK_ENGINE_BACKEND_HOST, LK_ENGINE_BACKEND_HOST},
    {"tcp", "tcp", LK_ENGINE_BACKEND_HOST, LK_ENGINE_BACKEND_HOST},
    {"mpi", "mpi", LK_ENGINE_BACKEND_HOST, LK_ENGINE_BACKEND_MPI},
    {"nccl", "auto", LK_ENGINE_BACKEND_COUNT, LK_ENGINE_BACKEND_COUNT},
};
enum { BACKENDS = sizeof backends / sizeof *backends };

static const char *next_backend(const void *arg, size_t index)
{
    (void)arg;
    return index < BACKENDS ? backends[index].name : NULL;
}

lk_status lk__args_check_backend(const char *name)
{
    const lk_names names = {
        .what = name ? "`backend`" : "the variable LOCKSTEP_BACKEND", .kind = "backend", .next = next_backend};
    const char *text = name ? name : getenv("LOCKSTEP_BACKEND");
    size_t found;
    return name || (text && *text) ? lk__names_find(&names, text, &found) : LK_OK;
}

/* Finds a mistake before there are ranks. */
static lk_status check_trace(const lk_train_opts *opts)
{
    size_t first, last;
    if (opts->trace_file && !opts->trace)
        return lk__fail(LK_STATUS_USAGE, "`trace_file` %s: give the steps too, as in `trace` 10-14", opts->trace_file);
    return opts->trace ? lk__train_trace_range(opts->trace, &first, &last) : LK_OK;
}

/* An unknown word of the variable is found when the group is made. */
static lk_status complete_backend(lk_args *args)
{
    const char *word = args->backend ? args->backend : getenv("LOCKSTEP_BACKEND");
    size_t i = 0;
    if (args->backend)
        LK_TRY(lk__args_check_backend(args->backend));
    while (word && i < BACKENDS && strcmp(backends[i].name, word) != 0)
        i++;
    if (!word || i == BACKENDS)
        return LK_OK;
    lk_engine_backend backend = args->train.reduce == LK_REDUCE_ORDER_ENGINE ? backends[i].own : backends[i].tree;
    args->train.backend = backend == LK_ENGINE_BACKEND_COUNT ? word : lk__engine_backend_names[backend];
    if (strcmp(backends[i].group, word) != 0)
        args->backend = backends[i].group;
    return LK_OK;
}

/* A number of --input and the character after it. */
static bool parse_side(const char **text, char after, size_t *out)
{
    char digits[16];
    size_t length = strcspn(*text, "x");
    long long value;
    if (length >= sizeof digits || (*text)[length] != after)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)length, *text);
    if (!lk__number_parse_int(digits, 1, 1 << 24, &value))
        return false;
    *text += length + 1;
    *out = (size_t)value;
    return true;
}

lk_status lk__args_change_shape(const lk_args *args, lk_model_shape *shape)
{
    const char *text = args->input;
    lk_model_shape given = *shape;
    if (text && !(parse_side(&text, 'x', &given.channels) && parse_side(&text, 'x', &given.height) &&
                  parse_side(&text, '\0', &given.width)))
        return lk__fail(LK_STATUS_USAGE, "`input` wants channels, height and width, as in `input` 3x32x32");
    if (args->classes)
        given.classes = args->classes;
    *shape = given;
    return LK_OK;
}

lk_status lk__args_check_data(const lk_args *args)
{
    if (args->train.data && args->input)
        return lk__fail(LK_STATUS_USAGE, "`data` and `input` both say what a sample is; give one of them");
    if (!args->train.data_dir || args->train.data)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "`data_dir` %s says where data are, but not which: add `data` NAME, as in `data` mnist `data_dir` "
                    "%s; for a folder of images write `data` %s alone",
                    args->train.data_dir, args->train.data_dir, args->train.data_dir);
}

lk_status lk__args_complete_devices(lk_args *args)
{
    lk_devices_choice choice = {.devices = args->device_names, .gpu_ids = args->gpu_ids, .no_cuda = args->no_cuda};
    return lk__devices_choose(&choice, lk__device_list, &args->devices);
}

lk_status lk__args_complete(lk_args *args)
{
    LK_TRY(complete_schedule(args));
    LK_TRY(lk__args_complete_devices(args));
    LK_TRY(lk__train_accumulate(&args->train));
    LK_TRY(complete_checkpoints(args));
    LK_TRY(complete_serve(args));
    LK_TRY(check_trace(&args->train));
    complete_save_path(args);
    LK_TRY(complete_backend(args));
    LK_TRY(lk__args_check_data(args));
    if (!args->train.data && !args->input)
        args->train.data = LK_ARGS_DATA;
    return LK_OK;
}
