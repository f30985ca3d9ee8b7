/* test_interrupted.c - files are written and read correctly when signals interrupt system calls and when
 * calls move only a part of the bytes. A seccomp filter turns system calls of this process into a signal.
 * Its handler returns EINTR every second time that a call is made; otherwise it does the call, reads and
 * writes by half. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <zlib.h>

#include <lockstep/state.h>

#include "base/file.h"
#include "base/mem.h"
#include "processes.h"
#include "temp_folder.h"

static char path[TEMP_FOLDER_BYTES + 32];

/* The registers of a system call: arguments and result. */
#if defined(__x86_64__)
#define ARGUMENT(context, i) \
    ((context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[i]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(context, i) ((context)->uc_mcontext.regs[i])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#endif

#ifdef RESULT
static long do_write(const ucontext_t *call)
{
    size_t bytes = (size_t)ARGUMENT(call, 2);
    struct iovec half = {(void *)(uintptr_t)ARGUMENT(call, 1), bytes > 1 ? bytes / 2 : bytes};
    return writev((int)ARGUMENT(call, 0), &half, 1);
}

static long do_read(const ucontext_t *call)
{
    size_t bytes = (size_t)ARGUMENT(call, 2);
    struct iovec half = {(void *)(uintptr_t)ARGUMENT(call, 1), bytes > 1 ? bytes / 2 : bytes};
    return readv((int)ARGUMENT(call, 0), &half, 1);
}

static long do_pread(const ucontext_t *call)
{
    struct iovec all = {(void *)(uintptr_t)ARGUMENT(call, 1), (size_t)ARGUMENT(call, 2)};
    return preadv((int)ARGUMENT(call, 0), &all, 1, (off_t)ARGUMENT(call, 3));
}

static long do_fsync(const ucontext_t *call)
{
    return fdatasync((int)ARGUMENT(call, 0));
}

static const struct {
    int number;
    long (*work)(const ucontext_t *call);
} calls[] = {{SYS_write, do_write}, {SYS_read, do_read}, {SYS_pread64, do_pread}, {SYS_fsync, do_fsync}};
enum { CALLS = sizeof calls / sizeof *calls };

static volatile sig_atomic_t interruptions[CALLS];

static void on_call(int number, siginfo_t *info, void *context)
{
    static volatile sig_atomic_t seen[CALLS];
    ucontext_t *call = context;
    long result = -EINTR;
    for (size_t i = 0; i < CALLS; i++) {
        if (info->si_syscall != calls[i].number)
            continue;
        if (++seen[i] % 2) {
            interruptions[i]++;
        } else {
            result = calls[i].work(call);
            result = result < 0 ? -errno : result;
        }
    }
    RESULT(call) = (__typeof__(RESULT(call)))result;
}

static bool filter_calls(void)
{
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    struct sock_filter rules[2 + CALLS + 1];
    size_t used = 0;
    rules[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CALLS; i++)
        rules[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number,
                                                     (unsigned char)(CALLS - i), 0);
    rules[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    rules[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {(unsigned short)used, rules};
    return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void be_filtered(int number, void *arg)
{
    int (**work)(void) = arg;
    _exit(filter_calls() ? (*work)() : 77);
}

/* Runs in a child, because a filter cannot be removed. Returns the step that failed; 0: none. */
static int in_filter(int (*work)(void))
{
    return process_wait(process_start(be_filtered, 0, &work));
}

static lk_state *make_state(void)
{
    lk_state *state = NULL;
    lk_state_entry *entry;
    if (lk_state_create(&state) != LK_OK)
        return NULL;
    for (unsigned t = 0; t < 20; t++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", t);
        if (lk_state_add(state, name, LK_DTYPE_U8, 1, (size_t[]){(size_t)1 << t}, &entry) != LK_OK)
            return NULL;
        for (size_t i = 0; i < entry->bytes; i++)
            ((uint8_t *)entry->data)[i] = (uint8_t)(i * 7 + t);
    }
    return state;
}

static int save_and_load(void)
{
    lk_state *state = make_state(), *back = NULL;
    if (!state)
        return 1;
    if (lk_state_save(state, path) != LK_OK)
        return 2;
    /* libzip reads .pth files by its own system calls. */
    if (strstr(path, ".pth"))
        return interruptions[0] > 0 && interruptions[3] > 0 ? 0 : 5;
    if (lk_state_load(path, &back) != LK_OK)
        return 3;
    if (lk_state_compare(state, back, NULL, NULL) != 0)
        return 4;
    return interruptions[0] > 0 && interruptions[2] > 0 && interruptions[3] > 0 ? 0 : 5;
}

static int read_gzipped(void)
{
    uint8_t *bytes = NULL;
    size_t count = 0;
    if (lk__file_read(path, 0, &bytes, &count) != LK_OK)
        return 1;
    if (count != 4 || memcmp(bytes, "text", 4) != 0)
        return 2;
    return interruptions[1] > 0 && interruptions[2] > 0 ? 0 : 3;
}

static void expect_done(int failed)
{
    if (failed == 77)
        skip();
    assert_int_equal(failed, 0);
}

static void test_saving(void **ctx)
{
    snprintf(path, sizeof path, "%s/state.safetensors", temp_folder);
    expect_done(in_filter(save_and_load));
    snprintf(path, sizeof path, "%s/state.pth", temp_folder);
    lk_state *state = NULL;
    if (lk_state_load(LK_TESTS_DIR "/io/data/compressed.pth", &state) == LK_STATUS_UNSUPPORTED)
        return;
    lk_state_destroy(state);
    expect_done(in_filter(save_and_load));
    lk_state *saved = make_state(), *back = NULL;
    assert_int_equal(lk_state_load(path, &back), LK_OK);
    assert_int_equal(lk_state_compare(saved, back, NULL, NULL), 0);
    lk_state_destroy(back);
    lk_state_destroy(saved);
}

/* A file of two members is read by a window, whatever inflates files of one. */
static void test_gzip(void **ctx)
{
    snprintf(path, sizeof path, "%s/text.gz", temp_folder);
    for (int member = 0; member < 2; member++) {
        gzFile file = gzopen(path, member ? "ab" : "wb");
        assert_non_null(file);
        assert_int_equal(gzwrite(file, member ? "xt" : "te", 2), 2);
        assert_int_equal(gzclose(file), Z_OK);
    }
    expect_done(in_filter(read_gzipped));
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_saving), TEST(test_gzip))
#else
int main(void)
{
    puts("skipped: the registers of a system call are unknown here");
    return 0;
}
#endif
