/* fuzz_hostlist.c - libFuzzer target: arbitrary bytes as a list of hosts and as a list of counts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/detect/hostlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every host below the count has a name, and none above it. */
static void try_hosts(const char *text)
{
    char name[LK_HOSTLIST_NAME];
    int count = lk__hostlist_count(text);
    if (count == 0 || count < -1 || count > LK_HOSTLIST_MOST || lk__hostlist_name(text, count, name, sizeof name))
        abort();
    if (count > 0 && strlen(text) < sizeof name / 2 && !lk__hostlist_name(text, count - 1, name, sizeof name))
        abort();
    if (count > 0 && lk__hostlist_name(text, count / 2, name, sizeof name) && strpbrk(name, "[],"))
        abort();
}

static void try_counts(const char *text)
{
    int before = 0, all = lk__hostlist_tasks(text), first = lk__hostlist_tasks_of(text, 0, &before);
    if ((all >= 0) != (first >= 0) || before != 0 || first > all)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_hosts(text);
    try_counts(text);
    free(text);
    return 0;
}
