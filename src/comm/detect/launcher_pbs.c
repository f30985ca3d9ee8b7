/* launcher_pbs.c - what follows from PBS's variables and the file of PBS_NODEFILE.
 *
 * The file has one line for each task, with the name of its host; PBS puts it on the first host only. pbsdsh starts
 * the tasks. Torque numbers them by PBS_VNODENUM and their hosts by PBS_NODENUM; OpenPBS has PBS_NODENUM alone,
 * which is the rank if each host has one task. The job's script has PBS_NODENUM 0 and PBS_TASKNUM 1. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/detect/launchers.h"

enum { MOST_BYTES = 1 << 20 };

typedef struct node_file {
    int lines, hosts;         /* hosts: runs of equal lines */
    int mine_first, mine;     /* first line of host `node`, and the number of its lines */
    char first[LK_TASK_TEXT]; /* the first host */
} node_file;

static int get_number(const lk_launcher_reader *reader, const char *name)
{
    const char *const names[] = {name, NULL};
    return lk__launcher_number(reader, names, NULL);
}

static int known_number(const lk_task_value *value)
{
    return value->known ? value->number : -1;
}

/* Opens the file; NULL if it is not here, is no regular file or is too long for a list of hosts. Never blocks. */
static FILE *open_nodes(const lk_launcher_reader *reader)
{
    const char *path = lk__launcher_get(reader, "PBS_NODEFILE");
    size_t bytes = 0;
    int fd = -1;
    if (!path || lk__file_open(path, &fd, &bytes) != LK_OK)
        return NULL;
    FILE *file = bytes <= MOST_BYTES ? fdopen(fd, "r") : NULL;
    if (!file)
        close(fd);
    return file;
}

/* Reads the lines; node: the index of the host to count the lines of. false: there are none. */
static bool read_nodes(const lk_launcher_reader *reader, int node, node_file *out)
{
    FILE *file = open_nodes(reader);
    char line[LK_TASK_TEXT], last[LK_TASK_TEXT] = "";
    *out = (node_file){0};
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, " \t\r\n")] = '\0';
        if (!*line)
            continue;
        if (out->lines == 0)
            memcpy(out->first, line, sizeof line);
        if (strcmp(line, last) != 0)
            out->hosts++;
        memcpy(last, line, sizeof line);
        if (out->hosts - 1 == node && out->mine++ == 0)
            out->mine_first = out->lines;
        out->lines++;
    }
    if (file)
        fclose(file);
    return out->lines > 0;
}

bool lk__launcher_pbs_started(const lk_launcher_reader *reader)
{
    int node = get_number(reader, "PBS_NODENUM"), task = get_number(reader, "PBS_TASKNUM");
    return lk__launcher_get(reader, "PBS_JOBID") && node >= 0 && (node > 0 || task > 1);
}

void lk__launcher_pbs_derive(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    node_file nodes;
    int node = known_number(&values[LK_TASK_QUANTITY_NODE]);
    lk_task_value *rank = &values[LK_TASK_QUANTITY_RANK];
    bool read = read_nodes(reader, node, &nodes);
    int hosts = read ? nodes.hosts : known_number(&values[LK_TASK_QUANTITY_NODES]);
    int tasks = read ? nodes.lines : known_number(&values[LK_TASK_QUANTITY_SIZE]);
    if (read) {
        lk__launcher_set(&values[LK_TASK_QUANTITY_SIZE], tasks, NULL, "PBS_NODEFILE");
        lk__launcher_set(&values[LK_TASK_QUANTITY_NODES], hosts, NULL, "PBS_NODEFILE");
        lk__launcher_set(&values[LK_TASK_QUANTITY_HOST], 0, nodes.first, "PBS_NODEFILE");
        if (nodes.mine > 0)
            lk__launcher_set(&values[LK_TASK_QUANTITY_LOCAL_SIZE], nodes.mine, NULL, "PBS_NODEFILE");
    }
    if (!rank->known && tasks > 0 && tasks == hosts)
        lk__launcher_set(rank, node, NULL, "PBS_NODENUM");
    if (!rank->known)
        return;
    if (tasks > 0 && tasks == hosts)
        lk__launcher_set(&values[LK_TASK_QUANTITY_LOCAL_RANK], 0, NULL, "one task on each node");
    else if (read && rank->number >= nodes.mine_first && rank->number < nodes.mine_first + nodes.mine)
        lk__launcher_set(&values[LK_TASK_QUANTITY_LOCAL_RANK], rank->number - nodes.mine_first, NULL, "PBS_NODEFILE");
}

void lk__launcher_pbs_allocate(const lk_launcher_reader *reader, lk_task_allocation *out)
{
    const char *job = lk__launcher_get(reader, "PBS_JOBID");
    node_file nodes;
    if (!job)
        return;
    snprintf(out->job, sizeof out->job, "%s", job);
    int tasks = get_number(reader, "PBS_NP"), hosts = get_number(reader, "PBS_NUM_NODES");
    out->tasks = tasks > 0 ? tasks : 0;
    out->nodes = hosts > 0 ? hosts : 0;
    if (!read_nodes(reader, 0, &nodes)) {
        const char *path = lk__launcher_get(reader, "PBS_NODEFILE");
        if (path && out->tasks == 0)
            snprintf(out->unread, sizeof out->unread, "PBS_NODEFILE names %.160s, which is no list of hosts here",
                     path);
        return;
    }
    out->tasks = nodes.lines;
    out->nodes = nodes.hosts;
    snprintf(out->host, sizeof out->host, "%s", nodes.first);
    snprintf(out->host_source, sizeof out->host_source, "PBS_NODEFILE");
}
