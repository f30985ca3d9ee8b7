/* output.c - reads the ranks' pipes and forwards lines. */
#define _GNU_SOURCE /* pipe2 */
#include "launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "launch/sink.h"

/* QUEUE_LIMIT: reading pauses while so many bytes wait for a slow terminal. */
enum { QUEUE_LIMIT = 1 << 20, TAIL_BYTES = 2048, PREFIX_BYTES = 96, PATH_BYTES = 4096, PROGRESS_BYTES = 1024 };

static const char erase[] = "\r" LK_OUTPUT_PROGRESS;

typedef struct stream {
    int fd, write_end; /* -1: closed */
    char *line;        /* (LK_OUTPUT_LINE) read and not yet forwarded */
    size_t length;
} stream;

typedef struct rank_output {
    stream streams[2]; /* stdout, stderr */
    int log;           /* -1: none */
    char prefix[PREFIX_BYTES];
    char tail[TAIL_BYTES];
    size_t tail_length;
} rank_output;

struct lk_output_pump {
    const lk_launch_node_opts *opts;
    int count;
    rank_output *ranks; /* (count) */
    lk_sink sinks[2];
    bool one_file;      /* standard output and error are the same file */
    double stuck_since; /* lk__clock() time since which the queues have not become shorter; 0: they have */
    int last_rank; /* index of the rank that wrote the last line on standard error; -1: none, or a line of stdout */
    char progress[PROGRESS_BYTES]; /* rank 0's progress line, with its \r; "": none */
    bool drawn;                    /* it is the last line of the terminal, and the cursor is at its begin */
    stream **polled;               /* (2 * count) the streams of the last lk__output_poll, in order */
    size_t polled_count;
};

int lk__output_fd_above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = errno;
    close(fd);
    errno = error;
    return moved;
}

static lk_status no_pipe(void)
{
    static const char failed[] = "cannot make a pipe for a rank's output";
    if (errno != EMFILE)
        return lk__fail(LK_STATUS_IO, "%s: %s", failed, strerror(errno));
    return lk__fail(LK_STATUS_IO, "%s: %s; raise the limit (ulimit -n) to %d for each rank and %d more", failed,
                    strerror(errno), LK_OUTPUT_FILES_PER_RANK, LK_OUTPUT_OTHER_FILES);
}

static lk_status open_pipe(stream *s)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return no_pipe();
    s->fd = lk__output_fd_above_standard(ends[0]);
    s->write_end = lk__output_fd_above_standard(ends[1]);
    if (s->fd < 0 || s->write_end < 0 || fcntl(s->fd, F_SETFL, O_NONBLOCK) != 0)
        return no_pipe();
    return LK_ALLOC(LK_OUTPUT_LINE, "a line of output", &s->line);
}

static lk_status open_log(const lk_launch_node_opts *opts, int rank, int *fd)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/rank_%d.log", opts->log_dir, rank);
    int start = opts->restart > 0 ? 0 : O_TRUNC;
    *fd = lk__output_fd_above_standard(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | start, 0666));
    if (*fd < 0)
        return lk__fail(LK_STATUS_IO, "cannot open the log file %s: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status open_rank(lk_output_pump *o, int index, const char *host)
{
    rank_output *r = &o->ranks[index];
    int rank = o->opts->first_rank + index;
    if (o->opts->name_host)
        snprintf(r->prefix, sizeof r->prefix, "[%s:%d] ", host, rank);
    else
        snprintf(r->prefix, sizeof r->prefix, "[%d] ", rank);
    LK_TRY(open_pipe(&r->streams[0]));
    LK_TRY(open_pipe(&r->streams[1]));
    return o->opts->log_dir != NULL ? open_log(o->opts, rank, &r->log) : LK_OK;
}

static lk_status open_all(lk_output_pump *o, const char *host)
{
    if (o->opts->log_dir != NULL)
        LK_TRY(lk__folder_make(o->opts->log_dir));
    for (int i = 0; i < o->count; i++)
        LK_TRY(open_rank(o, i, host));
    return LK_OK;
}

static bool are_one_file(int a, int b)
{
    struct stat left, right;
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

lk_status lk__output_create(const lk_launch_node_opts *opts, const char *host, lk_output_pump **out)
{
    lk_output_pump *o;
    lk_status status;
    size_t count = (size_t)opts->nproc;
    LK_TRY(LK_ALLOC(1, "the ranks' output", &o));
    o->opts = opts;
    lk__sink_init(&o->sinks[0], STDOUT_FILENO);
    lk__sink_init(&o->sinks[1], STDERR_FILENO);
    o->one_file = are_one_file(STDOUT_FILENO, STDERR_FILENO);
    o->last_rank = -1;
    o->drawn = opts->progress; /* the program may have drawn a line before there were ranks */
    LK_TRY_GOTO(LK_ALLOC(count, "the ranks' output", &o->ranks), destroy_output);
    o->count = opts->nproc;
    for (size_t i = 0; i < count; i++)
        o->ranks[i] = (rank_output){.streams = {{-1, -1, NULL, 0}, {-1, -1, NULL, 0}}, .log = -1};
    LK_TRY_GOTO(LK_ALLOC(2 * count, "the ranks' output", &o->polled), destroy_output);
    LK_TRY_GOTO(open_all(o, host), destroy_output);
    *out = o;
    return LK_OK;
destroy_output:
    lk__output_destroy(o);
    return status;
}

void lk__output_destroy(lk_output_pump *o)
{
    if (o == NULL)
        return;
    for (int i = 0; i < o->count; i++) {
        for (int which = 0; which < 2; which++) {
            lk__fd_close(&o->ranks[i].streams[which].fd);
            lk__fd_close(&o->ranks[i].streams[which].write_end);
            lk__mem_free(o->ranks[i].streams[which].line);
        }
        lk__fd_close(&o->ranks[i].log);
    }
    lk__sink_fini(&o->sinks[0]);
    lk__sink_fini(&o->sinks[1]);
    lk__mem_free(o->polled);
    lk__mem_free(o->ranks);
    lk__mem_free(o);
}

int lk__output_pipe(const lk_output_pump *o, int index, int number)
{
    return o->ranks[index].streams[number - 1].write_end;
}

void lk__output_started(lk_output_pump *o)
{
    for (int i = 0; i < 2 * o->count; i++)
        lk__fd_close(&o->ranks[i / 2].streams[i % 2].write_end);
}

size_t lk__output_fds(const lk_output_pump *o, int *fds)
{
    size_t count = 0;
    for (int i = 0; i < o->count; i++) {
        const rank_output *r = &o->ranks[i];
        const int some[] = {r->streams[0].fd, r->streams[0].write_end, r->streams[1].fd, r->streams[1].write_end,
                            r->log};
        for (size_t k = 0; k < sizeof some / sizeof *some; k++)
            if (some[k] >= 0)
                fds[count++] = some[k];
    }
    for (int which = 0; which < 2; which++)
        if (o->sinks[which].own)
            fds[count++] = o->sinks[which].fd;
    return count;
}

static void notice(const lk_output_pump *o, const char *text)
{
    if (o->opts->notice != NULL)
        o->opts->notice(o->opts->notice_arg, text);
}

/* After a failed write the log is closed; the job continues. */
static void write_log(lk_output_pump *o, rank_output *r, const char *text, size_t bytes)
{
    while (r->log >= 0 && bytes > 0) {
        ssize_t n = write(r->log, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            char line[128];
            snprintf(line, sizeof line, "rank %d's log file is given up: %s", o->opts->first_rank + (int)(r - o->ranks),
                     strerror(errno));
            lk__fd_close(&r->log);
            notice(o, line);
            return;
        }
        text += n;
        bytes -= (size_t)n;
    }
}

static void keep_tail(rank_output *r, const char *text, size_t bytes)
{
    if (bytes > TAIL_BYTES) {
        text += bytes - TAIL_BYTES;
        bytes = TAIL_BYTES;
    }
    size_t keep = lk__size_min(r->tail_length, TAIL_BYTES - bytes);
    memmove(r->tail, r->tail + r->tail_length - keep, keep);
    memcpy(r->tail + keep, text, bytes);
    r->tail_length = keep + bytes;
}

static bool goes_bare(const lk_output_pump *o, const rank_output *r, int which)
{
    bool first = o->opts->first_rank + (int)(r - o->ranks) == 0;
    return o->opts->raw || (o->opts->plain && (which == 0 || first));
}

static void note_line(lk_output_pump *o, const rank_output *r, int which)
{
    if (which == 1 || o->one_file)
        o->last_rank = which == 1 ? (int)(r - o->ranks) : -1;
}

/* Before other text: removes the progress line. The sinks may be one terminal, so this one is flushed first. */
static void erase_progress(lk_output_pump *o)
{
    if (!o->drawn)
        return;
    lk__sink_add(&o->sinks[1], erase, sizeof erase - 1);
    lk__sink_flush(&o->sinks[1]);
    o->drawn = false;
}

/* When all other text is written: draws the progress line below it, unless the launcher is in the background of its
 * terminal. */
static void draw_progress(lk_output_pump *o)
{
    if (o->drawn || !*o->progress || lk__sink_pending(&o->sinks[0]) > 0 || lk__sink_pending(&o->sinks[1]) > 0)
        return;
    pid_t front = tcgetpgrp(STDERR_FILENO);
    if (front >= 0 && front != getpgrp())
        return;
    lk__sink_add(&o->sinks[1], o->progress, strlen(o->progress));
    lk__sink_flush(&o->sinks[1]);
    o->drawn = true;
}

static bool is_progress(const lk_output_pump *o, const rank_output *r, int which, const char *text, size_t bytes)
{
    size_t mark = sizeof LK_OUTPUT_PROGRESS - 1;
    bool first = o->opts->first_rank + (int)(r - o->ranks) == 0;
    return o->opts->progress && first && which == 1 && bytes >= mark && bytes < PROGRESS_BYTES &&
           memcmp(text, LK_OUTPUT_PROGRESS, mark) == 0;
}

/* Text has no NUL: a program's escape sequences are text. */
static void keep_progress(lk_output_pump *o, const char *text, size_t bytes)
{
    bool empty = bytes <= sizeof LK_OUTPUT_PROGRESS; /* the mark and \r */
    erase_progress(o);
    memcpy(o->progress, text, bytes);
    o->progress[empty ? 0 : bytes] = '\0';
}

/* Forwards a line. text ends with \n, with \r (a progress bar), or is part of a long line. */
static void pass_line(lk_output_pump *o, rank_output *r, int which, const char *text, size_t bytes)
{
    lk_sink *sink = &o->sinks[which];
    bool newline = text[bytes - 1] == '\n', progress = text[bytes - 1] == '\r';
    size_t length = newline || progress ? bytes - 1 : bytes;
    if (progress && is_progress(o, r, which, text, bytes)) {
        keep_progress(o, text, bytes);
        return;
    }
    erase_progress(o);
    note_line(o, r, which);
    write_log(o, r, text, bytes);
    if (!newline && !progress)
        write_log(o, r, "\n", 1);
    if (which == 1 && length > 0) {
        keep_tail(r, text, length);
        keep_tail(r, "\n", 1);
    }
    if (goes_bare(o, r, which)) {
        lk__sink_add(sink, text, bytes);
        if (!newline && !progress)
            lk__sink_add(sink, "\n", 1);
    } else if (length > 0 || newline) {
        lk__sink_add(sink, r->prefix, strlen(r->prefix));
        lk__sink_add(sink, text, length);
        lk__sink_add(sink, "\n", 1);
    }
}

/* Returns the end of the line that begins at begin; 0: it has not ended. A \r ends it if a character other
 * than \n follows, and if it is a progress line. */
static size_t line_end(const lk_output_pump *o, const rank_output *r, int which, size_t begin, size_t from)
{
    const stream *s = &r->streams[which];
    for (size_t i = from > begin ? from : begin; i < s->length; i++) {
        bool last = i + 1 == s->length;
        bool ends = last ? is_progress(o, r, which, s->line + begin, i + 1 - begin) : s->line[i + 1] != '\n';
        if (s->line[i] == '\n' || (s->line[i] == '\r' && ends))
            return i + 1;
    }
    return s->length - begin == LK_OUTPUT_LINE ? s->length : 0;
}

/* Forwards all complete lines. No line ends before `from`. */
static void pass_lines(lk_output_pump *o, rank_output *r, int which, size_t from)
{
    stream *s = &r->streams[which];
    size_t begin = 0;
    for (size_t end; (end = line_end(o, r, which, begin, from)) != 0; begin = end)
        pass_line(o, r, which, s->line + begin, end - begin);
    s->length -= begin;
    memmove(s->line, s->line + begin, s->length);
}

static void end_stream(lk_output_pump *o, rank_output *r, int which)
{
    stream *s = &r->streams[which];
    lk__fd_close(&s->fd);
    if (s->length > 0)
        pass_line(o, r, which, s->line, s->length);
    s->length = 0;
    if (which == 1 && o->opts->first_rank + (int)(r - o->ranks) == 0)
        keep_progress(o, "", 0);
}

/* Reads once; returns false if there is nothing to read now. */
static bool read_stream(lk_output_pump *o, rank_output *r, int which)
{
    stream *s = &r->streams[which];
    if (s->fd < 0)
        return false;
    ssize_t n = read(s->fd, s->line + s->length, LK_OUTPUT_LINE - s->length);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        end_stream(o, r, which);
        return false;
    }
    size_t from = s->length > 0 ? s->length - 1 : 0;
    s->length += (size_t)n;
    pass_lines(o, r, which, from);
    return true;
}

/* If both sinks are one file, a line of one must not be written into an unfinished line of the other. */
static bool must_wait(const lk_output_pump *o, int which)
{
    const lk_sink *other = &o->sinks[1 - which];
    return o->one_file && other->mid_line && lk__sink_pending(other) > 0;
}

static size_t pending(const lk_output_pump *o)
{
    return lk__sink_pending(&o->sinks[0]) + lk__sink_pending(&o->sinks[1]);
}

static void flush(lk_output_pump *o)
{
    size_t before = pending(o);
    for (int which = 0; which < 2; which++)
        if (!must_wait(o, which))
            lk__sink_flush(&o->sinks[which]);
    draw_progress(o);
    size_t left = pending(o);
    if (left == 0 || left < before)
        o->stuck_since = 0;
    else if (o->stuck_since == 0)
        o->stuck_since = lk__clock();
}

size_t lk__output_poll(lk_output_pump *o, struct pollfd *fds)
{
    size_t count = 0;
    o->polled_count = 0;
    for (int i = 0; i < 2 * o->count; i++) {
        stream *s = &o->ranks[i / 2].streams[i % 2];
        if (s->fd < 0 || lk__sink_pending(&o->sinks[i % 2]) >= QUEUE_LIMIT)
            continue;
        o->polled[o->polled_count++] = s;
        fds[count++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    }
    for (int which = 0; which < 2; which++)
        if (lk__sink_pending(&o->sinks[which]) > 0 && !must_wait(o, which))
            fds[count++] = (struct pollfd){.fd = o->sinks[which].fd, .events = POLLOUT};
    return count;
}

void lk__output_pump(lk_output_pump *o, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0, next = 0; i < (size_t)(2 * o->count) && next < o->polled_count && next < count; i++) {
        rank_output *r = &o->ranks[i / 2];
        if (&r->streams[i % 2] != o->polled[next])
            continue;
        if (fds[next++].revents != 0)
            read_stream(o, r, (int)(i % 2));
    }
    flush(o);
}

void lk__output_drain(lk_output_pump *o, int index)
{
    /* At most the content of a pipe, so that it does not wait for a process that continues to write. */
    enum { READS = 32 };
    for (int i = 0; i < 2 * o->count; i++) {
        if (index >= 0 && i / 2 != index)
            continue;
        for (int k = 0; k < READS && read_stream(o, &o->ranks[i / 2], i % 2); k++)
            flush(o);
    }
    flush(o);
}

/* lk__clock() time at which finish gives up; it moves while the readers read. */
static double finish_deadline(const lk_output_pump *o, double seconds)
{
    return (o->stuck_since > 0 ? o->stuck_since : lk__clock()) + seconds;
}

void lk__output_finish(lk_output_pump *o, double seconds)
{
    lk__output_drain(o, -1);
    for (int i = 0; i < 2 * o->count; i++)
        end_stream(o, &o->ranks[i / 2], i % 2);
    flush(o);
    struct pollfd fds[2];
    for (size_t count; (count = lk__output_poll(o, fds)) > 0 && lk__clock() < finish_deadline(o, seconds);) {
        poll(fds, count, 50);
        flush(o);
    }
}

int lk__output_error(const lk_output_pump *o)
{
    return o->sinks[0].error != 0 ? o->sinks[0].error : o->sinks[1].error;
}

bool lk__output_shows(const lk_output_pump *o, int index)
{
    return o->last_rank == index;
}

void lk__output_tail(const lk_output_pump *o, int index, char *text, size_t bytes)
{
    const rank_output *r = &o->ranks[index];
    size_t begin = r->tail_length, lines = 0;
    while (begin > 0 && r->tail_length - begin < bytes - 1) {
        if (r->tail[begin - 1] == '\n' && lines++ == LK_OUTPUT_TAIL_LINES)
            break;
        begin--;
    }
    size_t length = r->tail_length - begin;
    for (size_t i = 0; i < length; i++)
        text[i] = r->tail[begin + i] != '\0' ? r->tail[begin + i] : '?';
    text[length] = '\0';
}
