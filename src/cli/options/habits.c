/* habits.c - the table of words that users of other programs type. */
#include "cli/options/habits.h"

enum { TRAIN = LK_CMD_TRAIN, EVAL = LK_CMD_EVAL, BENCH = LK_CMD_BENCH, INFO = LK_CMD_INFO, RUN = LK_CMD_RUN };
enum { MODELS = TRAIN | EVAL | BENCH, RANKS = TRAIN | RUN };
#define NONE LK_OPTIONS_VALUE_NONE
#define ONE LK_OPTIONS_VALUE_ONE
#define MAYBE LK_OPTIONS_VALUE_MAYBE

/* The fields of a word that means an option here, and of a word that is refused. */
#define MEANS(foreign, bits, takes, option) .word = foreign, .commands = bits, .value = takes, .means = option
#define REFUSED(foreign, bits, takes, words, reason) \
    .word = foreign, .commands = bits, .value = takes, .instead = words, .why = reason

#define COUNTS "-n counts the ranks of a node, and --nnodes the nodes"
/* Lockstep starts no processes on other hosts. */
#define NO_HOSTS "start the job with mpirun or srun, which start ranks on all hosts, or start every node by hand"
#define FP16 "there is no fp16 here; bf16 takes its place and needs no loss scaling"
#define IN_SCHEDULE "parameters of the schedule are a part of --schedule"
#define DROPOUT                                                                                                      \
    "the rates of dropout are part of a model; leave it out, or turn dropout off where there is one, as in --model " \
    "cnn:dropout=0"
#define PRETRAINED                                                                                            \
    "weights come from a file, which Python writes once: torch.save(torchvision.models.{model|MODEL}("        \
    "weights=\"DEFAULT\").state_dict(), \"{model|MODEL}.pth\"); for data with other classes add --init-skip " \
    "and its last layer, as in --init-skip fc"
#define EVALUATE "lockstep eval {init-from|resume|FILE}{--model}{--data}{--data-dir}{--test-batch-size}{--devices}"

/* On a line with one of these words -n counts nodes. */
static const char *const node_words[] = {"-g", "-nr", "-ip", "--nr", "--gpus", NULL};

const lk_options_foreign lk__habits_words[] = {
    /* Options of PyTorch's examples, of torchvision's and of timm's scripts. */
    {MEANS("--arch", MODELS | INFO, ONE, "model")},
    {MEANS("-a", MODELS | INFO, ONE, "model")},
    {MEANS("--learning-rate", TRAIN | BENCH, ONE, "lr")},
    {MEANS("--opt", TRAIN | BENCH | INFO, ONE, "optimizer")},
    {MEANS("--momentum", TRAIN | BENCH | INFO, ONE, "optimizer:momentum")},
    {MEANS("--nesterov", TRAIN | BENCH | INFO, NONE, "optimizer:nesterov")},
    {MEANS("--weight-decay", TRAIN | BENCH | INFO, ONE, "optimizer:weight_decay")},
    {MEANS("--wd", TRAIN | BENCH | INFO, ONE, "optimizer:weight_decay")},
    {MEANS("--lr-scheduler", TRAIN, ONE, "schedule")},
    {MEANS("--workers", MODELS, ONE, "num-workers")},
    {MEANS("-j", MODELS, ONE, "num-workers")},
    {MEANS("--print-freq", TRAIN, ONE, "log-interval")},
    {MEANS("-p", TRAIN, ONE, "log-interval")},
    {MEANS("--device", MODELS, ONE, "devices")},
    {MEANS("--gpu", MODELS, ONE, "gpu-ids")},
    {MEANS("--amp", MODELS, NONE, "precision=bf16")},
    {MEANS("--cuda", MODELS, NONE, "devices=cuda")},
    {MEANS("--clip-grad-norm", TRAIN | BENCH, ONE, "clip-norm")},
    {MEANS("--clip-grad", TRAIN | BENCH, ONE, "clip-norm")},
    {MEANS("--max-grad-norm", TRAIN | BENCH, ONE, "clip-norm")},
    {MEANS("--output-dir", TRAIN, ONE, "log-dir")},
    {MEANS("--tensorboard", TRAIN, MAYBE, "log-dir"), .instead = "--log-dir runs",
     .why = "files for TensorBoard are part of a run's folder"},
    {MEANS("--dataset", MODELS | INFO, ONE, "data")},
    {MEANS("--data-path", MODELS | INFO, ONE, "data-dir")},
    {MEANS("--optim", TRAIN | BENCH | INFO, ONE, "optimizer")},
    {MEANS("--num-epochs", TRAIN, ONE, "epochs")},
    {MEANS("--gradient-accumulation-steps", TRAIN, ONE, "accumulate")},
    {MEANS("--grad-accum", TRAIN, ONE, "accumulate")},
    {MEANS("--ckpt", TRAIN, ONE, "checkpoint")},
    {REFUSED("--patience", TRAIN, ONE, "--early-stop {}",
             "epochs without a better result end a run by --early-stop, and lower the rate by --schedule "
             "plateau:patience=N")},
    {REFUSED("--milestones", TRAIN, ONE, "--schedule multistep:milestones={}", IN_SCHEDULE)},
    {REFUSED("--step-size", TRAIN, ONE, "--schedule step:size={}", IN_SCHEDULE)},
    {REFUSED("--save-freq", TRAIN, ONE, "--save-every {}", "--save-every counts steps, or is 'epoch'"),
     .needs = {"--checkpoint DIR"}},
    {REFUSED("--run-name", TRAIN, ONE, "--log-dir {}",
             "a run's folder is named after what it trains; --log-dir is the folder around it")},
    {REFUSED("--deterministic", TRAIN, NONE, "", "runs are equal to the bit without it; leave it out")},
    {REFUSED("--fp16", MODELS, NONE, "--precision bf16", FP16)},
    {REFUSED("--half", MODELS, NONE, "--precision bf16", FP16)},
    {REFUSED("--dropout", MODELS, ONE, "", DROPOUT)},
    {REFUSED("--drop", MODELS, ONE, "", DROPOUT)},
    {REFUSED("--pretrained", TRAIN, NONE, "--init-from {model|MODEL}.pth", PRETRAINED)},
    {REFUSED("--evaluate", TRAIN, NONE, EVALUATE, "testing is a command of its own")},
    {REFUSED("-e", TRAIN, NONE, EVALUATE, "testing is a command of its own")},
    {REFUSED("--test-only", TRAIN, NONE, EVALUATE, "testing is a command of its own")},
    {REFUSED("-b", TRAIN | BENCH, ONE, "--batch-size {}", "--batch-size counts the samples of all ranks together")},
    {REFUSED("", TRAIN, ONE, "--data {}", "a data set or a folder of images is named by --data")},

    /* Nodes and ranks: torch.distributed.launch, torchrun, scripts, MPI launchers. */
    {REFUSED("-n", RANKS, ONE, "--nnodes {}", COUNTS), .needs = {"--node-rank 0", "--master-addr HOST"},
     .beside = node_words},
    {REFUSED("-nr", RANKS, ONE, "--node-rank {}", COUNTS), .needs = {"--nnodes 2", "--master-addr HOST"}},
    {REFUSED("--nr", RANKS, ONE, "--node-rank {}", COUNTS), .needs = {"--nnodes 2", "--master-addr HOST"}},
    {REFUSED("-ip", RANKS, ONE, "--master-addr {}", COUNTS), .needs = {"--nnodes 2", "--node-rank 1"}},
    {REFUSED("--nodes", RANKS, ONE, "--nnodes {}", COUNTS), .needs = {"--node-rank 1", "--master-addr HOST"}},
    {REFUSED("-N", RANKS, ONE, "--nnodes {}", COUNTS), .needs = {"--node-rank 1", "--master-addr HOST"}},
    {REFUSED("-g", RANKS, ONE, "-n {}", COUNTS)},
    {REFUSED("--gpus", RANKS, ONE, "-n {}", COUNTS)},
    {REFUSED("--ranks", RANKS, ONE, "-n {}", COUNTS)},
    {REFUSED("--np", RANKS, ONE, "-n {}", COUNTS)},
    {REFUSED("-np", RANKS, ONE, "-n {}", COUNTS)},
    {REFUSED("--hosts", RANKS, ONE, "", NO_HOSTS), .needs = {"--nnodes 2", "--node-rank 1", "--master-addr HOST"}},
    {REFUSED("--hostfile", RANKS, ONE, "", NO_HOSTS), .needs = {"--nnodes 2", "--node-rank 1", "--master-addr HOST"}},
    {MEANS("--port", RANKS, ONE, "master-port")},
    {MEANS("--dist-url", TRAIN, ONE, "init-method")},
    {MEANS("--dist-backend", TRAIN, ONE, "backend")},
    {REFUSED("--local-rank", TRAIN, ONE, "", "LOCAL_RANK is in the environment; leave it out")},
    {REFUSED("--max-restarts", TRAIN, ONE, "lockstep run --max-restarts {} -n {nproc|4} lockstep train",
             "restarts are made by 'lockstep run'")},
    {REFUSED("-m", RUN, NONE, "python3 -m", "any program can be run")},
    {REFUSED("--module", RUN, NONE, "python3 -m", "any program can be run")},
    {REFUSED("--no-python", RUN, NONE, "", "nothing is put before the program; leave it out")},
    {REFUSED("--use-env", RUN, NONE, "", "LOCAL_RANK is always in the environment; leave it out")},
    {REFUSED("--rdzv-backend", RUN, ONE, "", "leave it out, and give each node its rank"),
     .needs = {"--nnodes 2", "--node-rank 1", "--rdzv-endpoint HOST:PORT"}},
    {REFUSED("--rdzv-id", RUN, ONE, "", "leave it out; LOCKSTEP_TOKEN, the same on all nodes, distinguishes jobs")},
    {.word = NULL},
};

const lk_options_foreign_value lk__habits_values[] = {
    {"precision", "fp16", "bf16", FP16},     {"precision", "float16", "bf16", FP16},
    {"precision", "half", "bf16", FP16},     {"precision", "float32", "fp32", NULL},
    {"precision", "bfloat16", "bf16", NULL}, {NULL, NULL, NULL, NULL},
};
