/* descendants.c - reads snapshots of /proc and follows parents in them. */
#define _GNU_SOURCE /* getdents64 */
#include "launch/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

static bool reserve(lk_processes *p)
{
    return p->count < p->capacity || LK_GROW(p->count, "a list of processes", &p->capacity, &p->list) == LK_OK;
}

static int by_pid(const void *a, const void *b)
{
    pid_t left = ((const lk_process *)a)->pid, right = ((const lk_process *)b)->pid;
    return (left > right) - (left < right);
}

static void add(lk_processes *p, const char *name)
{
    long pid = name[0] >= '1' && name[0] <= '9' ? strtol(name, NULL, 10) : 0;
    if (pid > 0 && reserve(p) && lk__process_read((pid_t)pid, &p->list[p->count]))
        p->count++;
}

/* Whether /proc shows this PID namespace. In another one, the numbers would mean other processes. */
static bool shows_us(void)
{
    char text[32];
    ssize_t length = readlink("/proc/self", text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    return strtol(text, NULL, 10) == (long)getpid();
}

/* Reads a few names at a time, so that a new process is read before it ends. */
void lk__processes_read(lk_processes *p)
{
    _Alignas(struct dirent64) char names[512];
    p->count = 0;
    int fd = shows_us() ? open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    for (ssize_t n; (n = getdents64(fd, names, sizeof names)) > 0;) {
        const struct dirent64 *entry;
        for (ssize_t at = 0; at < n; at += entry->d_reclen) {
            entry = (const struct dirent64 *)(const void *)(names + at);
            add(p, entry->d_name);
        }
    }
    close(fd);
    if (p->count > 0)
        qsort(p->list, p->count, sizeof *p->list, by_pid);
}

static lk_process *find(const lk_processes *p, pid_t pid)
{
    lk_process key = {.pid = pid};
    return p->count > 0 ? bsearch(&key, p->list, p->count, sizeof *p->list, by_pid) : NULL;
}

static bool is_spared(const lk_processes *spared, const lk_process *process)
{
    const lk_process *same = spared != NULL ? find(spared, process->pid) : NULL;
    return same != NULL && same->birth == process->birth;
}

static bool descends(const lk_processes *p, const lk_process *process, pid_t root, const lk_processes *spared)
{
    /* Parents were read at different times and could form a circle. */
    for (size_t steps = 0; process != NULL && process->pid != root && steps < p->count; steps++) {
        if (is_spared(spared, process))
            return false;
        if (process->parent == root)
            return true;
        process = find(p, process->parent);
    }
    return false;
}

size_t lk__processes_mark(lk_processes *p, pid_t root, const lk_processes *spared)
{
    size_t marked = 0;
    for (size_t i = 0; i < p->count; i++) {
        p->list[i].marked = descends(p, &p->list[i], root, spared);
        marked += p->list[i].marked;
    }
    return marked;
}

static bool all_marked(const lk_processes *p, pid_t group)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].group == group && !p->list[i].marked)
            return false;
    return true;
}

void lk__processes_signal(const lk_processes *p, int signal)
{
    pid_t last = 0;
    for (size_t i = 0; i < p->count; i++) {
        const lk_process *process = &p->list[i];
        if (!process->marked)
            continue;
        if (signal == SIGKILL && process->group > 1 && process->group != last && all_marked(p, process->group))
            kill(-process->group, signal);
        if (process->state != 'Z')
            kill(process->pid, signal);
        last = process->group;
    }
}

void lk__descendants_read(lk_processes *p)
{
    size_t kept = 0;
    lk__processes_read(p);
    lk__processes_mark(p, getpid(), NULL);
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].marked)
            p->list[kept++] = p->list[i];
    p->count = kept;
}

/* Ends after two empty snapshots in a row, because one may fall between the death of a parent and the
 * adoption of its orphans. */
void lk__descendants_end(const lk_processes *spared, double seconds)
{
    lk_processes all = {0};
    double give_up = lk__clock() + seconds;
    for (int empty = 0; empty < 2 && lk__clock() < give_up;) {
        lk__processes_read(&all);
        size_t count = lk__processes_mark(&all, getpid(), spared);
        lk__processes_signal(&all, SIGKILL);
        for (size_t i = 0; i < all.count; i++)
            if (all.list[i].marked && all.list[i].parent == getpid())
                waitpid(all.list[i].pid, NULL, WNOHANG);
        empty = count == 0 ? empty + 1 : 0;
        poll(NULL, 0, count == 0 ? 0 : 2);
    }
    lk__processes_fini(&all);
}

void lk__processes_fini(lk_processes *p)
{
    lk__mem_free(p->list);
    *p = (lk_processes){0};
}
