/* test_checksum.c - bits that change on the way between two ranks. recvmsg, with which a rank reads
 * frames only, is replaced here: in rank 1 it flips one bit of the stream. No rank may get a wrong
 * sum without an error, and the error names both ranks. */
#define _GNU_SOURCE /* anonymous memory that children share, syscall */
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "check.h"
#include "comm/harness.h"
#include "comm/transport/frame.h"

enum { RANKS = 2, NEVER = -1 };

static long flip_at = NEVER; /* byte of the stream, counted from now on */

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    long at = flip_at;
    if (got <= 0 || at < 0)
        return got;
    flip_at = at < got ? NEVER : at - (long)got;
    for (size_t i = 0; at < got && i < message->msg_iovlen; at -= (long)message->msg_iov[i++].iov_len) {
        if (at < (long)message->msg_iov[i].iov_len) {
            ((uint8_t *)message->msg_iov[i].iov_base)[at] ^= 0x10;
            break;
        }
    }
    return got;
}

typedef struct damage {
    size_t count; /* floats of the sum */
    long at;      /* byte of the stream that rank 1 reads */
} damage;

/* Rank 0 may finish the call before rank 1 finds the error: then the next call fails. */
static void check_failure(lk_group *group, lk_status status)
{
    if (status == LK_OK)
        status = lk_barrier(group, NULL);
    CHECK_FAILS(status, LK_STATUS_IO, "from rank 0 on host ");
    CHECK_TEXT(lk_error_detail(), "to rank 1 on host ");
    CHECK_TEXT(lk_error_detail(), "changed on the way");
}

static bool sum_damaged(lk_group *group, const team_spec *team, const void *arg)
{
    const damage *what = arg;
    int rank = lk_group_rank(group);
    float *data = malloc(what->count * sizeof *data);
    CHECK(data);
    for (size_t i = 0; i < what->count; i++)
        data[i] = (float)(i % 1000 + (size_t)rank);
    /* The sum's frame is the first one that a rank reads. */
    flip_at = rank == 1 ? what->at : NEVER;
    lk_status status = lk_allreduce(group, (lk_buffer){data, what->count, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL);
    for (size_t i = 0; i < what->count && status == LK_OK; i++)
        CHECK(data[i] == (float)(2 * (i % 1000) + 1));
    if (what->at == NEVER)
        CHECK_OK(status);
    else
        check_failure(group, status);
    free(data);
    return false;
}

static void run_on(const char *hosts, const char *transport, size_t count, long at)
{
    const damage what = {count, at};
    const team_spec team = {.size = RANKS, .transport = transport, .hosts = hosts, .timeout = 60};
    if (!team_run(team, sum_damaged, &what))
        fail_msg("%s, %zu floats, byte %ld", transport, count, at);
}

static void run(const char *transport, size_t count, long at)
{
    run_on("ab", transport, count, at);
}

static void every_part_of_a_header_counts(void **state)
{
    for (long at = 0; at < LK_FRAME_BYTES; at += 3)
        run("tcp", 100, at);
}

static void small_payloads_count(void **state)
{
    static const long at[] = {0, 1, 99, 199};
    for (size_t i = 0; i < COUNT_OF(at); i++)
        run("tcp", 100, LK_FRAME_BYTES + at[i]);
}

static void large_payloads_count(void **state)
{
    static const long at[] = {LK_FRAME_BYTES, 100000, 1000001, 2097152, 3500000, 5000003, 7000000};
    run("tcp", 2000000, NEVER);
    for (size_t i = 0; i < COUNT_OF(at); i++)
        run("tcp", 2000000, at[i]);
}

static void hosts_that_share_no_memory_count(void **state)
{
    run("auto", 100, 70);
    run("auto", 2000000, 3000000);
}

/* Inside a host large payloads have a checksum only with LOCKSTEP_CHECKSUM=all. */
static void inside_a_host_small_ones_count(void **state)
{
    run_on("aa", "tcp", 100, 0);
    run_on("aa", "tcp", 100, LK_FRAME_BYTES + 50);
    run_on("aa", "tcp", 2000000, 20);
    setenv("LOCKSTEP_CHECKSUM", "all", 1);
    run_on("aa", "tcp", 2000000, 3000000);
    setenv("LOCKSTEP_CHECKSUM", "small", 1);
    run_on("ab", "tcp", 2000000, 20);
    unsetenv("LOCKSTEP_CHECKSUM");
}

TEST_MAIN(NULL, NULL, TEST(every_part_of_a_header_counts), TEST(small_payloads_count), TEST(large_payloads_count),
          TEST(hosts_that_share_no_memory_count), TEST(inside_a_host_small_ones_count))
