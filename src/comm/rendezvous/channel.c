/* channel.c - the table of job channels, and what this process has shared. */
#include "comm/rendezvous/channel.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const lk_job_channel *const channels[] = {&lk__job_channel_mpi, &lk__job_channel_pmi};

const lk_job_channel *lk__job_channel_list(size_t index)
{
    return index < sizeof channels / sizeof *channels ? channels[index] : NULL;
}

static const lk_job_channel *find(const lk_job_channel_task *task)
{
    const lk_job_channel *channel;
    for (size_t i = 0; (channel = lk__job_channel_list(i)) != NULL; i++)
        if (channel->is_there(task))
            return channel;
    return NULL;
}

/* What this process has shared; under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool done;
    lk_status status;
    char text[LK_JOB_CHANNEL_TEXT]; /* shared by all processes */
    char why[2048];                 /* of a failure */
} memory;

bool lk__job_channel_there(const lk_job_channel_task *task)
{
    pthread_mutex_lock(&lock);
    bool there = memory.done || find(task);
    pthread_mutex_unlock(&lock);
    return there;
}

static void share_now(const lk_job_channel_task *task, lk_deadline *deadline, const char *mine)
{
    const lk_job_channel *channel = find(task);
    if (!channel) {
        memory.status = lk__fail(LK_STATUS_PEER, "the launcher's channel is gone");
    } else {
        snprintf(memory.text, sizeof memory.text, "%s", task->rank == 0 ? mine : "");
        memory.status = channel->share(task, deadline, memory.text);
    }
    if (memory.status != LK_OK)
        snprintf(memory.why, sizeof memory.why, "%s", lk_error_detail());
    memory.done = true;
}

lk_status lk__job_channel_share(const lk_job_channel_task *task, lk_deadline *deadline, char text[LK_JOB_CHANNEL_TEXT])
{
    pthread_mutex_lock(&lock);
    if (!memory.done)
        share_now(task, deadline, text);
    lk_status status = memory.status;
    if (status == LK_OK)
        memcpy(text, memory.text, LK_JOB_CHANNEL_TEXT);
    else
        status = lk__fail(status, "%s", memory.why);
    pthread_mutex_unlock(&lock);
    return status;
}
