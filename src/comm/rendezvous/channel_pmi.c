/* channel_pmi.c - a client of PMI-1, which mpiexec of MPICH and Intel MPI offers, and srun --mpi=pmi2, too.
 *
 * The launcher gives each task an open socket, whose number is in PMI_FD. The client sends a line of words
 * "name=value", beginning with cmd=, and gets a line back: init, get_my_kvsname, put (rank 0), barrier_in, get,
 * finalize. MPI starts by the same words on the same socket, so a process that uses MPI leaves it to MPI.
 * After finalize the launcher closes the socket. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/spec.h"
#include "comm/mpi/session.h"
#include "comm/rendezvous/channel.h"
#include "net/socket.h"

enum { LINE_BYTES = 2048, NAME_BYTES = 257, MAX_TASKS = 1 << 24, MAX_FD = 1 << 20 };
static const double slice = 0.2; /* seconds between two checks for an interruption */
static const char way_out[] =
    "to do without it, set LOCKSTEP_TOKEN to the same text for all ranks and MASTER_ADDR to the host of rank 0";

typedef struct client {
    int fd;
    const lk_job_channel_task *task;
    lk_deadline *deadline;
    char line[LINE_BYTES]; /* the last answer, without its newline */
} client;

/* Whether this process leaves PMI to MPI: the job uses MPI, or the program is linked with it. */
static bool uses_mpi(const char *backend)
{
    return lk__mpi_is_due(backend) || dlsym(RTLD_DEFAULT, "MPI_Init");
}

/* A socket that the launcher has closed, after an earlier program of the task, reads as the end of file. */
static bool is_open_socket(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* A launcher inside the tasks of mpiexec has ranks of its own, to which PMI does not belong. */
static bool pmi_is_there(const lk_job_channel_task *task)
{
    int fd = lk__variable_int("PMI_FD", MAX_FD);
    return fd >= 0 && lk__variable_int("PMI_RANK", MAX_TASKS) == task->rank &&
           lk__variable_int("PMI_SIZE", MAX_TASKS) == task->size && !uses_mpi(task->backend) && is_open_socket(fd);
}

static lk_status fail_with(lk_status status, const char *what, const char *request)
{
    return lk__fail(status, "the launcher's PMI (PMI_FD) %s at '%.40s'; %s", what, request, way_out);
}

static lk_status fail_late(const client *self, const char *request)
{
    if (strncmp(request, "cmd=barrier_in", 14) != 0)
        return fail_with(LK_STATUS_PEER, "did not answer in time", request);
    return lk__fail(LK_STATUS_PEER,
                    "not all %d processes of the job came to the launcher's barrier (PMI) within %g s: all of them "
                    "must join by env:// and with the same variables; %s",
                    self->task->size, self->deadline->timeout, way_out);
}

/* Blocks until the events, with notices. */
static lk_status wait_for(client *self, short events, const char *request)
{
    for (;;) {
        double wake = lk__deadline_wake(self->deadline), next = lk__clock() + slice;
        if (lk__net_wait(self->fd, events, next < wake ? next : wake) != 0)
            return LK_OK;
        if (self->task->interrupted && *self->task->interrupted)
            return lk__fail(LK_STATUS_PEER, "interrupted while waiting for the launcher (PMI)");
        if (lk__deadline_over(self->deadline))
            return fail_late(self, request);
        lk__deadline_notice(self->deadline, "waiting for the launcher (PMI) and the other processes of the job");
    }
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static lk_status send_line(client *self, const char *line)
{
    for (size_t done = 0, bytes = strlen(line); done < bytes;) {
        LK_TRY(wait_for(self, POLLOUT, line));
        ssize_t n = send(self->fd, line + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && !would_block())
            return fail_with(LK_STATUS_PEER, "closed the connection", line);
        done += n > 0 ? (size_t)n : 0;
    }
    return LK_OK;
}

/* Reads one line into self->line. Nothing may follow it: the launcher only answers. */
static lk_status read_line(client *self, const char *request)
{
    for (size_t got = 0;;) {
        LK_TRY(wait_for(self, POLLIN, request));
        ssize_t n = recv(self->fd, self->line + got, LINE_BYTES - got, MSG_DONTWAIT);
        if (n < 0 && would_block())
            continue;
        if (n <= 0)
            return fail_with(LK_STATUS_PEER, "closed the connection", request);
        got += (size_t)n;
        const char *end = memchr(self->line, '\n', got);
        if (end && end != self->line + got - 1)
            return fail_with(LK_STATUS_FORMAT, "sent more than one line", request);
        if (!end && got == LINE_BYTES)
            return fail_with(LK_STATUS_FORMAT, "sent a line that is too long", request);
        if (end) {
            self->line[got - 1] = '\0';
            return LK_OK;
        }
    }
}

/* Copies the value of "name=value" in the answer; false if there is none, or it does not fit. */
static bool get_word(const client *self, const char *name, char *out, size_t room)
{
    size_t length = strlen(name);
    for (const char *at = self->line; *at;) {
        size_t word = strcspn(at, " ");
        if (word > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            size_t bytes = word - length - 1;
            if (bytes >= room)
                return false;
            memcpy(out, at + length + 1, bytes);
            out[bytes] = '\0';
            return true;
        }
        at += word + strspn(at + word, " ");
    }
    return false;
}

/* Sends a request, which ends in a newline; the answer must be `answer`, and its rc, if it has one, 0. */
static lk_status ask(client *self, const char *request, const char *answer)
{
    char word[32];
    LK_TRY(send_line(self, request));
    LK_TRY(read_line(self, request));
    if (strlen(self->line) == 0 || !get_word(self, "cmd", word, sizeof word) || strcmp(word, answer) != 0)
        return fail_with(LK_STATUS_FORMAT, "gave another answer than PMI-1 has", request);
    if (get_word(self, "rc", word, sizeof word) && strcmp(word, "0") != 0)
        return fail_with(LK_STATUS_PEER, "refused", request);
    return LK_OK;
}

static lk_status talk(client *self, char text[LK_JOB_CHANNEL_TEXT])
{
    char space[NAME_BYTES], request[LINE_BYTES];
    LK_TRY(ask(self, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init"));
    LK_TRY(ask(self, "cmd=get_my_kvsname\n", "my_kvsname"));
    if (!get_word(self, "kvsname", space, sizeof space))
        return fail_with(LK_STATUS_FORMAT, "has no name for its values", "cmd=get_my_kvsname");
    if (self->task->rank == 0) {
        snprintf(request, sizeof request, "cmd=put kvsname=%s key=lockstep value=%s\n", space, text);
        LK_TRY(ask(self, request, "put_result"));
    }
    LK_TRY(ask(self, "cmd=barrier_in\n", "barrier_out"));
    snprintf(request, sizeof request, "cmd=get kvsname=%s key=lockstep\n", space);
    LK_TRY(ask(self, request, "get_result"));
    if (!get_word(self, "value", text, LK_JOB_CHANNEL_TEXT))
        return fail_with(LK_STATUS_FORMAT, "has lost the value of rank 0", "cmd=get");
    return ask(self, "cmd=finalize\n", "finalize_ack");
}

static lk_status pmi_share(const lk_job_channel_task *task, lk_deadline *deadline, char text[LK_JOB_CHANNEL_TEXT])
{
    client self = {.fd = lk__variable_int("PMI_FD", MAX_FD), .task = task, .deadline = deadline};
    char shared[LK_JOB_CHANNEL_TEXT];
    snprintf(shared, sizeof shared, "%s", text);
    LK_TRY(talk(&self, shared));
    memcpy(text, shared, sizeof shared);
    return LK_OK;
}

const lk_job_channel lk__job_channel_pmi = {
    .name = "PMI",
    .is_there = pmi_is_there,
    .share = pmi_share,
};
