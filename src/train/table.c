/* table.c - the options of training, one row each. The rows are used by the command line, files of options,
 * --help, the notes of checkpoints (options.c) and the comparison of ranks (agree.c). */
#include "base/option_rows.h"
#include "base/tree.h"
#include "parallel/agree.h"
#include "tensor/device.h"
#include "train/train.h"

#define FIELD(name) LK_FIELD(lk_train_opts, name)

enum { TRAIN = LK_FOR_TRAIN, EVAL = LK_FOR_EVAL, BENCH = LK_FOR_BENCH, INFO = LK_FOR_INFO, PREDICT = LK_FOR_PREDICT };
enum { MODELS = TRAIN | EVAL | BENCH };
enum { KEPT = LK_OPTION_KEPT, RESULT = LK_OPTION_KEPT | LK_OPTION_BOUND, AGREED = LK_OPTION_AGREED };

#define BIG 1e9

static const char *const balance_words[] = {"auto", "even", NULL};
static const char *const epoch_word[] = {"epoch", NULL}, *const auto_word[] = {"auto", NULL};

/* group, name, letter, commands, properties, value, default, help */
static const lk_option table[] = {
    {"what", "model", 0, MODELS, RESULT, SPEC(model, "NAME[:key=val,...]"), "cnn",
     "the network; 'lockstep info' lists the models"},
    {"what", "data", 0, MODELS, KEPT, TEXT(data, "NAME|DIR"), NULL, "the data set; without it the built-in digits"},
    {"what", "data-dir", 0, MODELS | INFO | PREDICT, KEPT, TEXT(data_dir, "DIR"), NULL,
     "look for data only in this folder; without it in $LOCKSTEP_DATA, ./data, ~/.cache/lockstep, "
     "/usr/share/datasets"},
    {"what", "augment", 0, MODELS, RESULT | AGREED, TERMS(augment, "auto|none|LIST"), "auto",
     "changes to training images, as in 'crop=4,flip'; 'lockstep info' lists them"},
    {"what", "test-augment", 0, TRAIN | EVAL, KEPT, TERMS(test_augment, "auto|none|LIST"), "auto",
     "changes to test images, none of them random: 'resize=256,center_crop=224'"},
    {"what", "init-from", 0, TRAIN | EVAL, 0, TEXT(init_from, "FILE"), NULL,
     "take the weights from a .safetensors or .pth file, or from a checkpoint"},
    {"what", "init-skip", 0, TRAIN, AGREED, TEXT(init_skip, "NAME,NAME"), NULL,
     "layers that keep their own first weights, as 'fc' if the file has other classes"},

    {"training", "batch-size", 0, TRAIN | BENCH | INFO, KEPT, COUNT(batch, 1, BIG), "64",
     "samples a step, all shards together"},
    {"training", "drop-last", 0, TRAIN, RESULT | AGREED, FLAG(drop_last), NULL,
     "in training, leave out the last batch of an epoch if it is smaller than the others"},
    {"training", "test-batch-size", 0, TRAIN | EVAL, KEPT | AGREED, COUNT(test_batch, 1, BIG), "1000",
     "samples a batch in evaluation"},
    {"training", "epochs", 0, TRAIN, KEPT | AGREED, COUNT(epochs, 0, 1e6), "14", "passes over the data"},
    {"training", "max-steps", 0, TRAIN, KEPT | AGREED, COUNT(max_steps, 1, BIG), NULL, "stop after this many steps"},
    {"training", "dry-run", 0, TRAIN, AGREED, FLAG(dry_run), NULL, "one batch of training and one of testing"},
    {"training", "no-test", 0, TRAIN, KEPT | AGREED, FLAG(no_test), NULL, "no evaluation after epochs"},
    {"training", "val-split", 0, TRAIN, RESULT | AGREED, REAL(val_split, "PART", 1e-6, .9), NULL,
     "keep this part of the training data, drawn by the seed, for validation: it is evaluated after each epoch"},
    {"training", "early-stop", 0, TRAIN, KEPT | AGREED, COUNT(early_stop, 1, BIG), NULL,
     "stop when N epochs have not improved the accuracy on the validation data (without `val_split`: the test data)"},
    {"training", "seed", 0, TRAIN | BENCH, RESULT, SEED(seed), "1", "seed of all random numbers"},

    {"learning", "optimizer", 0, TRAIN | BENCH | INFO, RESULT, SPEC(optimizer, "NAME[:key=val,...]"), "adadelta",
     "how weights are updated; 'lockstep info' lists the optimisers"},
    {"learning", "lr", 0, TRAIN | BENCH, RESULT, REAL(lr, "RATE", 1e-30, 1e6), NULL,
     "learning rate; without it the default of the optimiser"},
    {"learning", "clip-norm", 0, TRAIN | BENCH, RESULT, REAL(clip_norm, "NORM", 1e-30, 1e30), NULL,
     "scale the gradient down to this norm if its norm is larger"},
    {"learning", "label-smoothing", 0, TRAIN | BENCH, RESULT, REAL(label_smoothing, "PART", 0, .999), "0",
     "in training, spread this part of each label's weight over all classes"},
    {"learning", "init", 0, TRAIN | BENCH, RESULT | AGREED, SPEC(init, "POLICY"), NULL,
     "first weights, as in 'kaiming_normal:fan_out'; 'lockstep info' lists them; without it the model's own"},
    {"learning", "schedule", 0, TRAIN, RESULT | AGREED, SPEC(schedule, "NAME[:key=val,...]"), NULL,
     "how the learning rate changes during the run; 'lockstep info' lists the schedules; without it "
     "step:size=1,gamma=GAMMA"},

    {"how", "stages", 0, TRAIN, 0, TERMS(stages, "K|NAME,NAME"), NULL,
     "cut the model into K stages, or before the layers of these names; without it `parallel` pp has one stage for "
     "each rank"},
    {"how", "pipelined", 0, TRAIN | BENCH, 0, FLAG(pipelined), NULL,
     "stages compute at the same time, each on a different part of the batch (a wave)"},
    {"how", "threads", 0, TRAIN, 0, INTEGER(threads, 1, 1024), NULL,
     "threads of a rank; without it the ranks of this host share its cores evenly"},
    {"how", "num-workers", 0, TRAIN | EVAL | BENCH, 0, INTEGER_OR(workers, "N|auto", auto_word, 0, 256), "auto",
     "threads of a rank that prepare batches; 0 for none. auto: 1, and for image files the cores that training leaves "
     "free, up to 16"},
    {"how", "shards", 0, MODELS | INFO, KEPT, INTEGER(shards, 1, LK_MAX_SHARDS), "16",
     "parts of a batch whose sums are added over the fixed tree; another number gives another result. Without it one "
     "for each replica if there are more than 16"},
    {"how", "micro-batch", 0, TRAIN | BENCH | INFO, 0, COUNT(micro_batch, 1, BIG), NULL,
     "most samples of a rank in memory at once; the same result. No effect on models with BatchNorm under `bn` batch"},
    {"how", "accumulate", 0, TRAIN, KEPT | AGREED, COUNT(accumulate, 1, LK_MAX_SHARDS), "1",
     "a step takes N batches, in N times the shards, with the memory of one batch"},
    {"how", "bucket-mb", 0, TRAIN | BENCH, 0, REAL(bucket_mb, "MIB", .001, 4096), "4",
     "size of the pieces in which gradients are summed over the ranks, in MiB; the same result"},
    {"how", "check-every", 0, TRAIN | BENCH, 0, INTEGER(check_every, 0, BIG), "100",
     "steps between two comparisons of all ranks' weights; 0: only before saves and tests"},
    {"how", "balance", 0, TRAIN, AGREED, CHOICE(balance, balance_words), "auto",
     "auto: replicas on slower CPUs get fewer of the shards; even: all get equally many; the same result"},
    {"how", "bn", 0, TRAIN | BENCH, RESULT, CHOICE(bn, lk__agree_bn_names), "batch",
     "what BatchNorm normalises over: the batch of all ranks, or each shard alone"},
    {"how", "conv", 0, MODELS, RESULT, CHOICE(conv, lk__agree_conv_names), "winograd",
     "3x3 convolutions with stride 1 on CPUs in fp32. winograd: fewer products and larger rounding errors; direct: "
     "sums of products"},
    {"how", "precision", 0, MODELS, KEPT, CHOICE(precision, lk__device_precision_names), "auto",
     "precision of the products in convolutions and linear layers; weights, gradients and sums over samples are always "
     "fp32. CPUs have fp32 and bf16. tf32conv: tf32 in convolutions only. auto: tf32conv on GPUs, fp32 on the CPU"},
    {"how", "reduce", 0, TRAIN | BENCH, KEPT, CHOICE(reduce, lk__agree_reduce_names), "tree",
     "order of the sums over ranks. tree: the fixed tree of the law; engine: the order of NCCL or MPI, whose bits "
     "depend on the number of ranks"},

    {"checkpoints", "checkpoint", 0, TRAIN, 0, TEXT(checkpoint, "DIR"), NULL,
     "save all that the run needs to resume, in folders DIR/step-N; DIR/best is a link to the one with the best test "
     "result"},
    {"checkpoints", "save-every", 0, TRAIN, KEPT | AGREED, COUNT_OR(save_every, "N|epoch", epoch_word, BIG), NULL,
     "steps between two checkpoints; without it one after each epoch"},
    {"checkpoints", "keep", 0, TRAIN, KEPT, COUNT(keep, 1, BIG), "3",
     "newest checkpoints that are kept, beside the best one"},
    {"checkpoints", "reshard", 0, TRAIN, AGREED, FLAG(reshard), NULL,
     "let `shards` differ from the checkpoint's: the result then differs, too"},

    {"output", "save-model", 0, TRAIN, KEPT, OPTIONAL(save_model, "PATH"), NULL,
     "save the final model, as .safetensors or .pth; without PATH as DATA_MODEL.safetensors"},
    {"output", "trace", 0, TRAIN, AGREED, TEXT(trace, "STEP|FIRST-LAST"), NULL,
     "record what every rank does in these steps, for Perfetto, and print what slows the steps down"},
    {"output", "trace-file", 0, TRAIN, 0, TEXT(trace_file, "FILE"), NULL,
     "where to write the trace; without it trace.json, in the run folder if there is one"},
};

const lk_option *lk__train_option(size_t index)
{
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}
