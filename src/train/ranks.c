/* ranks.c - the ranks of a process: what they share is opened once, each joins
 * and runs in a thread of its own, and of their failures one is kept. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "train/parts.h"

typedef struct crew crew;

typedef struct member {
    crew *crew;
    int index;
    lk_group *group; /* NULL: it joins by itself, or is alone */
    pthread_t thread;
    lk_train_result result;
} member;

struct crew {
    const lk_train_ranks *ranks;
    lk_train_shared shared;
    member *members; /* (ranks->count) */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int go;      /* 1: begin; -1: there is nothing to begin with */
    bool on_cpu; /* use_cpu was called */
    lk_train_failure failure;
};

static char *copy_history(const lk_group *group)
{
    size_t bytes = group ? lk_group_history(group, NULL, 0) : 1;
    char *text;
    if (bytes < 2 || LK_ALLOC(bytes, "a group's last calls", &text) != LK_OK)
        return NULL;
    lk_group_history(group, text, bytes);
    return text;
}

/* Whether the last calls tell more than the failure itself: of a timeout and of ranks
 * that made different calls, not of a rank that died or failed by itself. */
static bool calls_help(void)
{
    const char *detail = lk_error_detail();
    return strstr(detail, "that is its timeout") || strstr(detail, "the ranks disagree: ");
}

/* Keeps the most telling failure; of equals the first. */
static void note_failure(crew *c, lk_status status, lk_train_rank_failure failure, const lk_group *group)
{
    lk_train_failure *kept = &c->failure;
    pthread_mutex_lock(&c->lock);
    if (kept->status == LK_OK || failure.fault < kept->fault) {
        lk__train_failure_fini(kept);
        kept->status = status;
        kept->fault = failure.fault;
        kept->begun = failure.begun;
        kept->rank = group ? lk_group_rank(group) : -1;
        snprintf(kept->detail, sizeof kept->detail, "%s", lk_error_detail());
        kept->history = calls_help() ? copy_history(group) : NULL;
    }
    pthread_mutex_unlock(&c->lock);
}

static lk_status join(member *m)
{
    const lk_train_ranks *ranks = m->crew->ranks;
    if (m->group || ranks->alone)
        return LK_OK;
    lk_group_opts opts = *ranks->group;
    opts.threads = ranks->count;
    opts.thread = m->index;
    if (m->index > 0)
        opts.notice = NULL; /* one of a process tells what is awaited */
    return lk_group_join(&opts, &m->group);
}

/* All ranks of the job use GPUs, or none does, as far as devices were not named: the
 * first of the process that gets here changes what all of them read next. */
static lk_status settle(member *m)
{
    crew *c = m->crew;
    const lk_train_ranks *ranks = c->ranks;
    lk_train_settled settled;
    bool named = !ranks->use_cpu;
    lk_train_rank rank = {
        .opts = ranks->opts, .shared = &c->shared, .group = m->group, .device = ranks->devices[m->index]};
    LK_TRY(lk__train_settle(&rank, named, &settled));
    bool here = settled.teller >= ranks->first && settled.teller < ranks->first + ranks->count;
    pthread_mutex_lock(&c->lock);
    if (*settled.why && !named && !c->on_cpu)
        ranks->use_cpu(ranks->arg, here ? settled.why : NULL);
    c->on_cpu = *settled.why;
    pthread_mutex_unlock(&c->lock);
    return LK_OK;
}

static void run_member(member *m)
{
    crew *c = m->crew;
    const lk_train_ranks *ranks = c->ranks;
    lk_status status = join(m);
    if (status == LK_OK)
        status = settle(m);
    lk_train_rank_failure failure = {.fault = status == LK_STATUS_PEER ? LK_FAULT_PEER : LK_FAULT_SETUP};
    if (status == LK_OK) {
        lk_train_rank rank = {.opts = ranks->opts,
                              .shared = &c->shared,
                              .group = m->group,
                              .device = ranks->devices[m->index],
                              .events = &ranks->events[m->index],
                              .wish = ranks->wish};
        status = lk__train_rank(&rank, &m->result, &failure);
    }
    if (status != LK_OK)
        note_failure(c, status, failure, m->group);
    lk_group_destroy(m->group);
    m->group = NULL;
}

/* A rank that cannot be started must not be waited for: all begin, or none. */
static void *member_main(void *arg)
{
    member *m = arg;
    crew *c = m->crew;
    pthread_mutex_lock(&c->lock);
    while (c->go == 0)
        pthread_cond_wait(&c->changed, &c->lock);
    bool begin = c->go > 0;
    pthread_mutex_unlock(&c->lock);
    if (begin)
        run_member(m);
    return NULL;
}

static void set_go(crew *c, int go)
{
    pthread_mutex_lock(&c->lock);
    c->go = go;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static lk_status run_threads(crew *c)
{
    int started = 1, error = 0; /* the first rank is this thread's */
    while (started < c->ranks->count && !error) {
        error = lk__thread_create(&c->members[started].thread, member_main, &c->members[started]);
        started += !error;
    }
    set_go(c, error ? -1 : 1);
    lk_status status = LK_OK;
    if (!error)
        member_main(&c->members[0]);
    else
        status = lk__fail(LK_STATUS_IO, "cannot start a thread for rank %d: %s; raise the limit on memory or threads",
                          c->ranks->first + started, strerror(error));
    for (int i = 1; i < started; i++)
        pthread_join(c->members[i].thread, NULL);
    if (error)
        note_failure(c, status, (lk_train_rank_failure){.fault = LK_FAULT_SETUP}, NULL);
    return c->failure.status;
}

static lk_status make_groups(crew *c)
{
    const lk_train_ranks *ranks = c->ranks;
    lk_group **groups;
    if (!ranks->alone || ranks->count == 1)
        return LK_OK;
    LK_TRY(LK_ALLOC((size_t)ranks->count, "the ranks", &groups));
    lk_status status = lk_group_create_threads(ranks->count, ranks->group, groups);
    for (int i = 0; status == LK_OK && i < ranks->count; i++)
        c->members[i].group = groups[i];
    lk__mem_free(groups);
    return status;
}

static lk_status open_crew(crew *c)
{
    LK_TRY(LK_ALLOC((size_t)c->ranks->count, "the ranks", &c->members));
    for (int i = 0; i < c->ranks->count; i++)
        c->members[i] = (member){.crew = c, .index = i};
    LK_TRY(lk__train_shared_open(c->ranks, &c->shared));
    return make_groups(c);
}

static void close_crew(crew *c)
{
    /* Rank 0 waits for the others to leave. */
    for (int i = c->ranks->count; c->members && i-- > 0;)
        lk_group_destroy(c->members[i].group);
    lk__train_shared_close(&c->shared);
    lk__mem_free(c->members);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

static void tell_failure(crew *c)
{
    const lk_train_ranks *ranks = c->ranks;
    c->failure.saves = c->shared.saver;
    if (c->shared.saver) {
        c->failure.writing = (size_t)lk__saver_writing(c->shared.saver);
        snprintf(c->failure.checkpoint, sizeof c->failure.checkpoint, "%s", lk__saver_last(c->shared.saver));
    }
    if (ranks->failed)
        ranks->failed(ranks->arg, &c->failure);
}

lk_status lk__train(const lk_train_ranks *ranks, lk_train_result *out, lk_train_failure *failure)
{
    crew c = {.ranks = ranks};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.changed, NULL);
    lk_status status = open_crew(&c);
    if (status != LK_OK)
        note_failure(&c, status, (lk_train_rank_failure){.fault = LK_FAULT_SETUP}, NULL);
    else
        status = run_threads(&c);
    if (status == LK_OK)
        *out = c.members[0].result;
    else
        tell_failure(&c);
    close_crew(&c);
    if (status != LK_OK) {
        *failure = c.failure;
        return lk__fail(status, "%s", failure->detail);
    }
    return LK_OK;
}

void lk__train_failure_fini(lk_train_failure *failure)
{
    lk__mem_free(failure->history);
    failure->history = NULL;
}
