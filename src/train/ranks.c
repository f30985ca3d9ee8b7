/* ranks.c - the ranks of a process: opens what they share, starts a thread for each, and keeps the most
 * informative of their failures. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "comm/mpi/session.h"
#include "comm/rendezvous/rendezvous.h"
#include "train/parts.h"

typedef struct member {
    lk_train_crew *crew;
    int index;
    lk_group *group; /* NULL until it has joined, or if there is one rank */
    pthread_t thread;
    lk_train_outcome result;
} member;

struct lk_train_crew {
    const lk_train_ranks *ranks;
    lk_train_shared shared;
    bool joined;               /* an earlier call has joined the ranks and checked the devices */
    lk_train_failure *failure; /* of this call */
    bool begin;                /* all threads of this call were started */
    pthread_mutex_t lock;      /* protects failure and begin */
    member members[];          /* (ranks->count) */
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

/* Whether the group's last calls help to explain the failure: only after a timeout or different calls. */
static bool calls_help(void)
{
    const char *detail = lk_error_detail();
    return strstr(detail, "that is its timeout") || strstr(detail, "the ranks disagree: ");
}

/* Keeps the most informative failure; of equally informative ones the first. */
static void keep_failure(lk_train_failure *kept, lk_status status, lk_train_rank_failure failure, const lk_group *group)
{
    if (kept->status != LK_OK && failure.fault >= kept->fault)
        return;
    lk__train_failure_fini(kept);
    kept->status = status;
    kept->fault = failure.fault;
    kept->begun = failure.begun;
    kept->speaker = failure.speaker;
    kept->rank = group ? lk_group_rank(group) : -1;
    snprintf(kept->detail, sizeof kept->detail, "%s", lk_error_detail());
    kept->history = calls_help() ? copy_history(group) : NULL;
}

static void keep_setup(lk_train_failure *kept, lk_status status)
{
    keep_failure(kept, status, (lk_train_rank_failure){.fault = LK_TRAIN_FAULT_SETUP}, NULL);
}

static lk_status join(member *m)
{
    const lk_train_ranks *ranks = m->crew->ranks;
    if (ranks->joins)
        m->group = ranks->joins;
    if (m->group || ranks->one_process)
        return LK_OK;
    lk_group_opts opts = *ranks->group;
    opts.threads = ranks->count;
    opts.thread = m->index;
    if (m->index > 0)
        opts.notice = NULL; /* only the first rank of a process emits notices */
    return lk_group_join(&opts, &m->group);
}

static lk_train_rank rank_of(const member *m)
{
    const lk_train_ranks *ranks = m->crew->ranks;
    return (lk_train_rank){.opts = ranks->opts,
                           .shared = &m->crew->shared,
                           .group = m->group,
                           .device = ranks->devices[m->index],
                           .hooks = &ranks->hooks[m->index],
                           .signal_level = ranks->signal_level,
                           .run_name = ranks->run_name,
                           .asks = ranks->asks,
                           .one_process = ranks->one_process && !ranks->joins};
}

/* Among ranks whose devices were not named, either all use GPUs or none does. */
static lk_status check_devices(const member *m, lk_train_rank_failure *failure)
{
    const lk_train_ranks *ranks = m->crew->ranks;
    lk_train_rank rank = rank_of(m);
    int speaker;
    lk_status status = lk__train_check_devices(&rank, !ranks->joined, &speaker);
    if (speaker >= 0)
        failure->fault = LK_TRAIN_FAULT_DEVICE;
    failure->speaker = speaker >= ranks->first && speaker < ranks->first + ranks->count;
    return status;
}

static lk_status enter_job(member *m, lk_train_rank_failure *failure)
{
    if (m->crew->joined)
        return LK_OK;
    if (!m->crew->ranks->one_process && !m->crew->ranks->joins)
        lk__train_activity(&m->crew->ranks->hooks[m->index], LK_TRAIN_ACTIVITY_JOIN, 0, 0);
    lk_status status = join(m);
    if (status == LK_OK && lk__train_may_share(m->crew->ranks))
        status = lk__train_begin_data(m->group, m->index == 0, m->crew->ranks->count, &m->crew->shared);
    if (status == LK_OK)
        status = check_devices(m, failure);
    if (status == LK_STATUS_PEER)
        failure->fault = LK_TRAIN_FAULT_PEER;
    return status;
}

static void leave(member *m)
{
    if (!m->crew->ranks->joins)
        lk_group_destroy(m->group);
    m->group = NULL;
}

static void run_member(member *m)
{
    lk_train_crew *c = m->crew;
    lk_train_rank_failure failure = {.fault = LK_TRAIN_FAULT_SETUP};
    lk_status status = enter_job(m, &failure);
    if (status == LK_OK) {
        lk_train_rank rank = rank_of(m);
        status = lk__train_rank(&rank, &m->result, &failure);
    }
    if (status != LK_OK) {
        pthread_mutex_lock(&c->lock);
        keep_failure(c->failure, status, failure, m->group);
        pthread_mutex_unlock(&c->lock);
    }
    if (failure.fault == LK_TRAIN_FAULT_DEVICE)
        return; /* the next call of lk__train uses its group */
    leave(m);
}

static void *member_main(void *arg)
{
    member *m = arg;
    pthread_mutex_lock(&m->crew->lock);
    bool begin = m->crew->begin;
    pthread_mutex_unlock(&m->crew->lock);
    if (begin)
        run_member(m);
    return NULL;
}

/* Starts a thread for each rank but the first. Either all ranks run or none, so that no rank waits for one that
 * could not be started; the lock holds the started threads until that is known. */
static void run_threads(lk_train_crew *c)
{
    int started = 1, error = 0; /* the first rank runs in this thread */
    pthread_mutex_lock(&c->lock);
    while (started < c->ranks->count && !error) {
        error = lk__thread_create(&c->members[started].thread, member_main, &c->members[started]);
        started += !error;
    }
    c->begin = !error;
    pthread_mutex_unlock(&c->lock);
    member_main(&c->members[0]);
    for (int i = 1; i < started; i++)
        pthread_join(c->members[i].thread, NULL);
    if (error)
        keep_setup(c->failure,
                   lk__fail(LK_STATUS_IO, "cannot start a thread for rank %d: %s; raise the limit on memory or threads",
                            c->ranks->first + started, strerror(error)));
}

static lk_status make_groups(lk_train_crew *c)
{
    const lk_train_ranks *ranks = c->ranks;
    lk_group **groups;
    if (c->joined || ranks->joins || !ranks->one_process || ranks->count == 1)
        return LK_OK;
    LK_TRY(LK_ALLOC((size_t)ranks->count, "the ranks", &groups));
    lk_status status = lk_group_create_threads(ranks->count, ranks->group, groups);
    for (int i = 0; status == LK_OK && i < ranks->count; i++)
        c->members[i].group = groups[i];
    lk__mem_free(groups);
    return status;
}

static lk_status begin_mpi(const lk_train_ranks *ranks)
{
    double seconds = 0;
    if (ranks->one_process || ranks->joins)
        return LK_OK;
    LK_TRY(lk__meeting_timeout(ranks->group->timeout, &seconds));
    return lk__mpi_begin(ranks->group->backend, seconds);
}

static lk_status open_crew(const lk_train_ranks *ranks, lk_train_crew **out)
{
    lk_train_crew *c;
    void *block;
    LK_TRY(lk__mem_alloc(1, sizeof *c + (size_t)ranks->count * sizeof *c->members, "the ranks", &block));
    c = block;
    lk_status status = begin_mpi(ranks);
    lk__train_activity(&ranks->hooks[0], LK_TRAIN_ACTIVITY_OPEN, 0, 0);
    if (status == LK_OK)
        status = lk__train_shared_open(ranks, &c->shared);
    if (status != LK_OK) {
        lk__mem_free(c);
        return status;
    }
    for (int i = 0; i < ranks->count; i++)
        c->members[i] = (member){.crew = c, .index = i};
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return LK_OK;
}

/* Takes the crew that an earlier call has left, or creates one. */
static lk_status take_crew(const lk_train_ranks *ranks, lk_train_crew **out)
{
    if (!ranks->joined || !*ranks->joined)
        return open_crew(ranks, out);
    *out = *ranks->joined;
    (*out)->joined = true;
    *ranks->joined = NULL;
    return LK_OK;
}

static void close_crew(lk_train_crew *c)
{
    /* Rank 0 last: leaving blocks it until the others have left. */
    for (int i = c->ranks->count; i-- > 0;)
        leave(&c->members[i]);
    lk__train_shared_close(&c->shared);
    pthread_mutex_destroy(&c->lock);
    lk__mem_free(c);
}

static void emit_failure(const lk_train_ranks *ranks, lk_train_failure *failure, lk_saver *saver)
{
    failure->saves = saver;
    if (saver) {
        failure->writing = (size_t)lk__saver_writing(saver);
        snprintf(failure->checkpoint, sizeof failure->checkpoint, "%s", lk__saver_last(saver));
    }
    if (ranks->failed)
        ranks->failed(ranks->arg, failure);
}

static void run_crew(lk_train_crew *c, lk_train_outcome *out)
{
    lk_status status = make_groups(c);
    if (status == LK_OK)
        run_threads(c);
    else
        keep_setup(c->failure, status);
    if (c->failure->fault == LK_TRAIN_FAULT_DEVICE) {
        *c->ranks->joined = c;
        return;
    }
    if (c->failure->status == LK_OK)
        *out = c->members[0].result;
    else
        emit_failure(c->ranks, c->failure, c->shared.saver);
    close_crew(c);
}

lk_status lk__train(const lk_train_ranks *ranks, lk_train_outcome *out, lk_train_failure *failure)
{
    lk_train_failure found = {0};
    lk_train_crew *c;
    lk_status status = take_crew(ranks, &c);
    if (status == LK_OK) {
        c->ranks = ranks;
        c->failure = &found;
        run_crew(c, out);
    } else {
        keep_setup(&found, status);
        emit_failure(ranks, &found, NULL);
    }
    if (found.status == LK_OK)
        return LK_OK;
    *failure = found;
    return lk__fail(found.status, "%s", found.detail);
}

void lk__train_failure_fini(lk_train_failure *failure)
{
    lk__mem_free(failure->history);
    failure->history = NULL;
}
