/* tail.c - reads the end of log.txt. */
#include "serve/tail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"

enum { PATH_BYTES = 4096, FIRST_BYTES = 16384, MOST_BYTES = 65536 };

/* A piece of the log. */
typedef struct piece {
    size_t from, bytes;
    char text[MOST_BYTES + 1];
} piece;

static void write_piece(piece *p, lk_body *body)
{
    lk__body_text(body, "{\"from\":");
    lk__body_number(body, (double)p->from, 16);
    lk__body_text(body, ",\"next\":");
    lk__body_number(body, (double)(p->from + p->bytes), 16);
    lk__body_text(body, ",\"text\":");
    p->text[p->bytes] = '\0';
    for (size_t i = 0; i < p->bytes; i++)
        p->text[i] = p->text[i] ? p->text[i] : '?';
    lk__body_string(body, p->text);
    lk__body_text(body, "}\n");
}

/* Cuts the piece to whole lines. A piece without a line's end stays whole if it is full. */
static void cut_to_lines(piece *p, bool at_start)
{
    size_t begin = 0, end = p->bytes;
    if (at_start) {
        const char *first = memchr(p->text, '\n', p->bytes);
        begin = first ? (size_t)(first + 1 - p->text) : 0;
    }
    while (end > begin && p->text[end - 1] != '\n')
        end--;
    if (end == begin && p->bytes == MOST_BYTES)
        end = p->bytes;
    memmove(p->text, p->text + begin, end - begin);
    p->from += begin;
    p->bytes = end - begin;
}

static lk_status read_piece(const char *path, int64_t from, piece *p)
{
    int fd;
    size_t size;
    lk_status status = lk__file_open(path, &fd, &size);
    if (status != LK_OK)
        return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
    bool begins = from < 0 || (size_t)from > size;
    p->from = !begins ? (size_t)from : size > FIRST_BYTES ? size - FIRST_BYTES : 0;
    ssize_t got = lk__fd_read_at(fd, p->text, lk__size_min(MOST_BYTES, size - p->from), (off_t)p->from);
    lk__fd_close(&fd);
    if (got < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    p->bytes = (size_t)got;
    cut_to_lines(p, begins && p->from > 0);
    return LK_OK;
}

lk_status lk__tail_write(const char *folder, int64_t from, lk_body *body)
{
    char path[PATH_BYTES];
    piece *p;
    if (!lk__path_join(folder, "log.txt", path, sizeof path))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", folder);
    LK_TRY(LK_ALLOC(1, "end of a log", &p));
    lk_status status = read_piece(path, from, p);
    if (status == LK_OK)
        write_piece(p, body);
    lk__mem_free(p);
    return status;
}
