/* main.c - the program: finds the command, reads its options, runs it, and
 * makes sure that what was printed has arrived. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/spec.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/config.h"

static const lk_command commands[] = {
    {"train", "[options]", "train a model",
     "  lockstep train --data mnist --save-model            one process\n"
     "  lockstep train -n 4                                  four ranks here\n"
     "  lockstep train --devices cpu:0,cpu:1                 two ranks in one process\n"
     "  lockstep train -n 2 --stages 2 --pipelined           a model in two stages\n"
     "  lockstep train --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 4   (and 1 on the other node)\n"
     "  lockstep train --checkpoint ck --resume auto         saves as it goes; the same line again goes on\n"
     "However the work is divided, the weights are the same bits.",
     LK_CMD_TRAIN, 0, 0, "", lk__cmd_train},
    {"run", "[options] PROGRAM [ARGUMENTS]", "start any program as the ranks of a job, here or on several nodes",
     "  lockstep run -n 4 ./program\n"
     "  lockstep run --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 4 python3 train.py   (and 1 on the other "
     "node)\n"
     "Sets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT ...) for every rank. When a\n"
     "rank fails, all are stopped and its own status is passed on.",
     LK_CMD_RUN, 1, 1, "a program", lk__cmd_run},
    {"eval", "FILE [options]", "test a saved model, or a checkpoint",
     "A checkpoint knows its model and data; options that are given win.", LK_CMD_EVAL, 0, 1, "", lk__cmd_eval},
    {"compare", "A B", "print what differs between two saved models, or two checkpoints",
     "Exit status: 0 when they are the same bits, 1 when they differ, 2 when that could not be told.", LK_CMD_COMPARE,
     2, 2, "two models (.safetensors, .pth) or checkpoints", lk__cmd_compare},
    {"verify", "DIR", "check that checkpoints are whole",
     "DIR is one checkpoint, or a folder of them as --checkpoint makes it.\n"
     "Exit status: 0 when all are whole, 1 when one is not, 2 when there is nothing to check.",
     LK_CMD_VERIFY, 1, 1, "a checkpoint, or a folder of them", lk__cmd_verify},
    {"convert", "A B", "write a model file in another format, .safetensors or .pth",
     "  lockstep convert checkpoint.pth model.safetensors\n"
     "  lockstep convert model.safetensors model.pth          for torch.load\n"
     "B's ending chooses the format. Of a checkpoint only the model's tensors are kept; nothing in it is executed.",
     LK_CMD_CONVERT, 2, 2, "a model file and a name for the new one", lk__cmd_convert},
    {"bench", "allreduce|data|kernels|train [options]", "measure speed",
     "allreduce: sums between ranks of this host, 4 bytes to 100 MB, beside Open MPI where mpirun is installed.\n"
     "data: batches out of the loader, with nothing trained on them.\n"
     "kernels: matrix and convolution kernels beside the core's peak, and OpenBLAS where it is installed.\n"
     "train: steps of training with the data in memory.",
     LK_CMD_BENCH, 1, 1, "what to measure: allreduce, data, kernels or train", lk__cmd_bench},
    {"data", "list | get NAME | verify NAME", "find, download and check data sets",
     "  lockstep data list                    which there are, and where they are\n"
     "  lockstep data get mnist               download; run again after an interruption, it goes on\n"
     "  lockstep data verify mnist            compare the files with what was published\n"
     "Exit status of verify: 0 when all files are right, 1 when one is not, 2 when there is nothing to check.",
     LK_CMD_DATA, 1, 2, "what to do: list, get or verify", lk__cmd_data},
    {"info", "[FILE | --model NAME]", "what this build can do, what a model file holds, or what a network costs",
     "  lockstep info --model resnet18:cifar --data cifar10\n"
     "  lockstep info --model vgg16 --batch-size 32 --optimizer sgd:momentum=.9 --json",
     LK_CMD_INFO, 0, 1, "", lk__cmd_info},
    {"help", "[COMMAND]", "show a command's options and their defaults", "", LK_CMD_HELP, 0, 1, "", lk__cmd_help},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

const lk_command *lk__command_list(size_t index)
{
    return index < COMMANDS ? &commands[index] : NULL;
}

static const char *next_command(const void *arg, size_t index)
{
    (void)arg;
    return index < COMMANDS ? commands[index].name : NULL;
}

const lk_command *lk__command_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    const char *near = lk__nearest(name, next_command, NULL);
    if (near)
        (void)lk__fail(LK_STATUS_USAGE, "no command '%s'; did you mean '%s'?", name, near);
    else
        (void)lk__fail(LK_STATUS_USAGE, "no command '%s'; 'lockstep help' lists those there are", name);
    return NULL;
}

int lk__cli_fail(lk_status status)
{
    static const int codes[LK_STATUS_COUNT] = {
        [LK_STATUS_USAGE] = LK_EXIT_USAGE,       [LK_STATUS_NOT_FOUND] = LK_EXIT_USAGE,
        [LK_STATUS_IO] = LK_EXIT_FAILED,         [LK_STATUS_FORMAT] = LK_EXIT_FAILED,
        [LK_STATUS_MISMATCH] = LK_EXIT_FAILED,   [LK_STATUS_MEMORY] = LK_EXIT_FAILED,
        [LK_STATUS_NONFINITE] = LK_EXIT_FAILED,  [LK_STATUS_PEER] = LK_EXIT_FAILED,
        [LK_STATUS_UNSUPPORTED] = LK_EXIT_USAGE,
    };
    fflush(stdout);
    char origins[1024];
    lk__config_origins(lk_error_detail(), origins, sizeof origins);
    fprintf(stderr, "lockstep: %s%s\n", lk_error_detail(), origins);
    return codes[status];
}

double lk__peak_rss_mb(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)usage.ru_maxrss / 1024;
}

static int run_command(const lk_command *command, int argc, char *const *argv)
{
    lk_option_set set = lk__args_options(command->name, command->bit, command->max_words);
    lk_args args;
    lk_status status = lk__args_parse(&set, argc, argv, &args);
    if (status != LK_OK)
        return lk__cli_fail(status);
    if (args.help) {
        lk__command_help(command);
        return LK_EXIT_DONE;
    }
    if (args.word_count < command->min_words)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "%s wants %s: lockstep %s %s", command->name,
                                     command->words_wanted, command->name, command->synopsis));
    return command->run(&args);
}

static int dispatch(int argc, char *const *argv)
{
    if (argc < 2) {
        lk__program_help(stderr);
        return LK_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("lockstep %s\n", LK_VERSION);
        return LK_EXIT_DONE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    const lk_command *command = lk__command_find(word);
    if (!command)
        return lk__cli_fail(LK_STATUS_USAGE);
    return run_command(command, argc - 2, argv + 2);
}

/* A file must not take the place of a closed standard stream, or it would be
 * written into. What stands in for stdout cannot be written to. */
static void hold_streams(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return;
}

/* Why stdout failed; a stream keeps the fact, but not the reason. */
static const char *output_trouble(int error)
{
    if (error == 0 && write(STDOUT_FILENO, "", 0) < 0)
        error = errno;
    return error ? strerror(error) : "disk full?";
}

static int program(int argc, char *const *argv)
{
    hold_streams();
    /* A write past the limit of file sizes then fails, and is cleaned up after. */
    signal(SIGXFSZ, SIG_IGN);
    if (lk__fault_load() != LK_OK)
        return lk__cli_fail(LK_STATUS_USAGE);
    /* Whoever reads the log through a pipe sees each line when it is made. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    int code = dispatch(argc, argv);
    lk__args_release();
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        /* A reader that closed its end has seen enough. */
        if (errno != EPIPE)
            fprintf(stderr, "lockstep: the output could not be written: %s\n", output_trouble(errno));
        return code ? code : LK_EXIT_FAILED;
    }
    return code;
}

typedef struct invocation {
    int argc;
    char **argv;
    sigset_t mask;
    int code;
} invocation;

static void *run_program(void *arg)
{
    invocation *call = arg;
    pthread_sigmask(SIG_SETMASK, &call->mask, NULL);
    call->code = program(call->argc, call->argv);
    return NULL;
}

/* Where `ulimit -s` leaves the first thread little, all is done in another one, which
 * takes the signals, too. */
int main(int argc, char **argv)
{
    invocation call = {.argc = argc, .argv = argv};
    pthread_t thread;
    sigset_t all;
    if (!lk__stack_is_small())
        return program(argc, argv);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &call.mask);
    int error = lk__thread_create(&thread, run_program, &call);
    if (error) {
        fprintf(stderr, "lockstep: the limit on the stack (ulimit -s) is too small, and there is no other: %s\n",
                strerror(error));
        return LK_EXIT_FAILED;
    }
    pthread_join(thread, NULL);
    return call.code;
}
