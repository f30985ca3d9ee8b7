/* main.c - the program: finds the command, reads its options, runs it, and checks that its output was written. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/version.h>

#include "base/fault.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "comm/mpi/session.h"

static int run_command(const lk_command *command, int argc, char *const *argv)
{
    lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
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
        lk__command_program_help(stderr);
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

/* Opens closed standard streams, so that no file gets their descriptor and output is not written into it. The
 * substitute for stdout cannot be written to. */
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

static void print_late(const char *detail)
{
    fprintf(stderr, "lockstep: %s\n", detail);
}

static int program(int argc, char *const *argv)
{
    hold_streams();
    /* A write beyond the limit of file sizes then fails instead of ending the process, and its file is cleaned
     * up. */
    signal(SIGXFSZ, SIG_IGN);
    if (lk__fault_load() != LK_OK)
        return lk__cli_fail(LK_STATUS_USAGE);
    /* A reader of a pipe sees each line at once. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    lk__mpi_set_late_notice(print_late);
    int code = dispatch(argc, argv);
    lk__args_release();
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        /* A reader that closed its end wants no more output; this is no error. */
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

/* If `ulimit -s` gives the first thread a small stack, another thread does all the work and handles the
 * signals. */
int main(int argc, char **argv)
{
    invocation call = {.argc = argc, .argv = argv};
    pthread_t thread;
    sigset_t all;
    if (!lk__thread_stack_is_small())
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
