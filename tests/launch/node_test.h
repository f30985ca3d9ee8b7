/* node_test.h - runs a node in a test, captures its output, and counts the processes that are left. */
#ifndef LK_TESTS_NODE_TEST_H
#define LK_TESTS_NODE_TEST_H

#include <dirent.h>
#include <poll.h>

#include "base/clock.h"
#include "launch/descendants.h"
#include "launch/node.h"
#include "processes.h"
#include "temp_folder.h"

/* WAIT_SECONDS is enough for a slow machine; a test that passes never waits so long. */
enum { WAIT_SECONDS = 60, TEXT_BYTES = 1 << 20 };

static char run_id[64], notices[4096];
static char out_text[TEXT_BYTES], err_text[TEXT_BYTES];

static inline int set_up(void **state)
{
    static int count;
    temp_folder_create(temp_folder);
    snprintf(run_id, sizeof run_id, "test-%ld-%d", (long)getpid(), count++);
    setenv("T", temp_folder, 1);
    notices[0] = '\0';
    return 0;
}

static inline void take_notice(void *arg, const char *text)
{
    size_t length = strlen(notices);
    snprintf(notices + length, sizeof notices - length, "%s\n", text);
}

static inline lk_launch_node_opts node_opts(int nproc, char *const *argv)
{
    return (lk_launch_node_opts){.nproc = nproc,
                                 .world_size = nproc,
                                 .nnodes = 1,
                                 .master_addr = "127.0.0.1",
                                 .master_port = 1,
                                 .run_id = run_id,
                                 .token = "secret",
                                 .argv = argv,
                                 .timeout = 300,
                                 .notice = take_notice};
}

static inline void read_text(const char *name, char *text, size_t bytes)
{
    const char *path = temp_path(name);
    FILE *file = fopen(path, "r");
    size_t length = file != NULL ? fread(text, 1, bytes - 1, file) : 0;
    text[length] = '\0';
    if (file != NULL)
        fclose(file);
}

static inline bool file_has_line(const char *name)
{
    char text[64];
    read_text(name, text, sizeof text);
    return strchr(text, '\n') != NULL;
}

static inline pid_t pid_in_file(const char *name)
{
    char text[64];
    read_text(name, text, sizeof text);
    return (pid_t)strtol(text, NULL, 10);
}

/* Standard output and error go to files until capture_end. */
typedef struct capture {
    int saved[2];
} capture;

static inline capture capture_begin(void)
{
    static const char *const names[] = {"stdout", "stderr"};
    capture c;
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        const char *path = temp_path(names[i]);
        c.saved[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 10);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, i + 1);
        close(fd);
    }
    return c;
}

static inline void capture_end(capture *c)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(c->saved[i], i + 1);
        close(c->saved[i]);
    }
    read_text("stdout", out_text, sizeof out_text);
    read_text("stderr", err_text, sizeof err_text);
}

typedef struct outcome {
    lk_status status;
    lk_launch_node_state state;
    lk_cause cause;
    int signal;
} outcome;

/* Starts the node, waits for its end and stops it. */
static inline outcome run_node(const lk_launch_node_opts *opts)
{
    outcome result = {.state = LK_LAUNCH_NODE_STATE_RUNNING};
    lk_launch_node *node = NULL;
    capture c = capture_begin();
    result.status = lk__launch_node_start(opts, &node);
    while (node != NULL && result.status == LK_OK && result.state == LK_LAUNCH_NODE_STATE_RUNNING)
        result.status = lk__launch_node_wait(node, -1, WAIT_SECONDS, &result.state);
    if (node != NULL) {
        lk__launch_node_stop(node, SIGTERM, 0.5);
        result.cause = *lk__launch_node_cause(node);
        result.signal = lk__launch_node_signal(node);
    }
    lk__launch_node_destroy(node);
    capture_end(&c);
    return result;
}

static inline outcome run_shell(int nproc, const char *script)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    lk_launch_node_opts opts = node_opts(nproc, argv);
    return run_node(&opts);
}

/* Returns whether the process was started with this variable, NAME=VALUE. */
static inline bool has_variable(pid_t pid, const char *variable)
{
    static char text[1 << 17];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "r");
    size_t bytes = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[bytes] = '\0';
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1)
        if (strcmp(text + at, variable) == 0)
            return true;
    return false;
}

/* Counts the living processes that were started with NAME=VALUE, at any depth. */
static inline int count_with(const char *name, const char *value)
{
    char variable[TEMP_FOLDER_BYTES + 64];
    lk_processes all = {0};
    int left = 0;
    snprintf(variable, sizeof variable, "%s=%s", name, value);
    lk__processes_read(&all);
    for (size_t i = 0; i < all.count; i++)
        left += all.list[i].state != 'Z' && has_variable(all.list[i].pid, variable);
    lk__processes_fini(&all);
    return left;
}

/* Counts the processes of this test. */
static inline int count_in_folder(void)
{
    return count_with("T", temp_folder);
}

/* Counts the processes of this test's node. */
static inline int count_left(void)
{
    return count_with("LOCKSTEP_RUN_ID", run_id);
}

static inline bool is_gone(pid_t pid)
{
    lk_process process;
    return !lk__process_read(pid, &process) || process.state == 'Z';
}

/* Waits until the condition was true once. It may be false a moment later: the environment of a
 * process reads as empty while the process executes another program. */
#define WAIT_UNTIL(condition)                                  \
    do {                                                       \
        bool held;                                             \
        double give_up = lk__clock() + WAIT_SECONDS;           \
        while (!(held = (condition)) && lk__clock() < give_up) \
            poll(NULL, 0, 5);                                  \
        assert_true(held);                                     \
    } while (0)

#endif
