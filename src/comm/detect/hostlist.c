/* hostlist.c - reads lists of hosts and of counts from left to right. An entry of a host list is a run of plain
 * text and brackets; a bracket has ranges of numbers. A host is found by its index: the index is divided by the
 * sizes of the entry's brackets, the last bracket first. */
#include "comm/detect/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { BRACKETS = 8, DIGITS = 9 };

typedef struct entry {
    const char *begin, *end; /* the text, without the comma */
    int brackets, hosts;
    const char *bracket[BRACKETS]; /* the text after each '[' */
    int size[BRACKETS];            /* numbers in each bracket */
} entry;

/* Reads a number of at most DIGITS digits. */
static bool read_number(const char **at, int *number, int *digits)
{
    *number = 0;
    for (*digits = 0; isdigit((unsigned char)**at); ++*at) {
        if (++*digits > DIGITS)
            return false;
        *number = *number * 10 + (**at - '0');
    }
    return *digits > 0;
}

/* Reads "4" or "001-003"; *at is then at the character behind. */
static bool read_range(const char **at, int *first, int *count, int *digits)
{
    int last, width;
    if (!read_number(at, first, digits))
        return false;
    last = *first;
    if (**at == '-') {
        ++*at;
        if (!read_number(at, &last, &width) || last < *first)
            return false;
    }
    *count = last - *first + 1;
    return true;
}

/* Reads a bracket from behind its '[' up to behind its ']'. */
static bool read_bracket(const char **at, int *size)
{
    long total = 0;
    int first, count, digits;
    do {
        if (!read_range(at, &first, &count, &digits) || (total += count) > LK_HOSTLIST_MOST)
            return false;
    } while (*(*at)++ == ',');
    *size = (int)total;
    return (*at)[-1] == ']';
}

/* Reads the entry at *at, and moves *at behind its comma. */
static bool read_entry(const char **at, entry *out)
{
    entry e = {.begin = *at, .hosts = 1};
    while (**at && **at != ',') {
        char c = *(*at)++;
        if (c == ']' || isspace((unsigned char)c) || iscntrl((unsigned char)c))
            return false;
        if (c != '[')
            continue;
        if (e.brackets == BRACKETS)
            return false;
        e.bracket[e.brackets] = *at;
        if (!read_bracket(at, &e.size[e.brackets]) || e.hosts > LK_HOSTLIST_MOST / e.size[e.brackets])
            return false;
        e.hosts *= e.size[e.brackets++];
    }
    e.end = *at;
    if (**at == ',' && *++*at == '\0')
        return false;
    *out = e;
    return e.end > e.begin;
}

int lk__hostlist_count(const char *list)
{
    int count = 0;
    entry e;
    if (!*list)
        return -1;
    while (*list) {
        if (!read_entry(&list, &e) || count > LK_HOSTLIST_MOST - e.hosts)
            return -1;
        count += e.hosts;
    }
    return count;
}

/* Appends number `index` of a bracket, with the zeros of its range; false if there is no room. */
static bool append_number(const char *bracket, int index, char **to, const char *limit)
{
    int first = 0, count = 0, digits = 0;
    while (read_range(&bracket, &first, &count, &digits) && index >= count) {
        index -= count;
        bracket++;
    }
    int length = snprintf(*to, (size_t)(limit - *to), "%0*d", digits, first + index);
    if (length < 0 || length >= limit - *to)
        return false;
    *to += length;
    return true;
}

static bool write_name(const entry *e, int index, char *name, size_t bytes)
{
    int part[BRACKETS] = {0}, next = 0;
    char *to = name;
    const char *limit = name + bytes;
    for (int i = e->brackets - 1; i >= 0; i--) {
        part[i] = index % e->size[i];
        index /= e->size[i];
    }
    for (const char *at = e->begin; at < e->end; at++) {
        if (*at == '[') {
            if (!append_number(e->bracket[next], part[next], &to, limit))
                return false;
            next++;
            at = strchr(at, ']');
        } else if (to + 1 < limit) {
            *to++ = *at;
        } else {
            return false;
        }
    }
    *to = '\0';
    return true;
}

bool lk__hostlist_name(const char *list, int index, char *name, size_t bytes)
{
    entry e;
    if (index < 0 || bytes == 0 || lk__hostlist_count(list) <= index)
        return false;
    while (read_entry(&list, &e) && index >= e.hosts)
        index -= e.hosts;
    return write_name(&e, index, name, bytes);
}

/* Reads "2" or "2(x3)": a count and the number of nodes that have it. */
static bool read_counts(const char **at, int *count, int *nodes)
{
    int digits;
    *nodes = 1;
    if (!read_number(at, count, &digits))
        return false;
    if ((*at)[0] == '(' && (*at)[1] == 'x') {
        *at += 2;
        if (!read_number(at, nodes, &digits) || *nodes == 0 || *(*at)++ != ')')
            return false;
    }
    if (**at == ',')
        return *++*at != '\0';
    return **at == '\0';
}

int lk__hostlist_tasks(const char *counts)
{
    long long tasks = 0, all = 0;
    int count, nodes;
    if (!*counts)
        return -1;
    while (*counts) {
        if (!read_counts(&counts, &count, &nodes))
            return -1;
        tasks += (long long)count * nodes;
        all += nodes;
        if (tasks > LK_HOSTLIST_MOST || all > LK_HOSTLIST_MOST)
            return -1;
    }
    return (int)tasks;
}

int lk__hostlist_tasks_of(const char *counts, int index, int *before)
{
    int count, nodes, sum = 0;
    if (index < 0 || lk__hostlist_tasks(counts) < 0)
        return -1;
    while (*counts && read_counts(&counts, &count, &nodes)) {
        if (index < nodes) {
            if (before)
                *before = sum + index * count;
            return count;
        }
        index -= nodes;
        sum += nodes * count;
    }
    return -1;
}
