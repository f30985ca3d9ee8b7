/* agent.c - a round from the plan to the verdict, at node 0 and at the others.
 *
 * Every node reports its own result: done, a cause, broken, interrupted. Node 0 compares the results. If the
 * job cannot succeed, it sends STOP, waits until all nodes have stopped, and sends END with the verdict. The
 * other nodes follow these messages and act alone only if node 0 does not answer. */
#include "launch/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "launch/cause.h"
#include "net/socket.h"

/* Seconds. The ranks of a failed job end within one second; interrupted ranks may save something first; the
 * grace is at most a day. */
static const double FAILED_GRACE = 0.5, INTERRUPTED_GRACE = 5, LONGEST_GRACE = 86400;
/* Seconds that the other nodes wait for node 0, and node 0 for them, in addition to any grace. */
static const double ANSWER = 4;
static const double TICK = 1;

struct lk_agent {
    const lk_launch_rendezvous_opts *opts;
    lk_link *links; /* node 0: (nnodes), of which [0] stays closed; others: one, to node 0 */
    int link_count;
    bool *over; /* (link_count) the node is done, stopped or lost in this round */
    int epoll;  /* readable when a link is readable */
};

static bool leads(const lk_agent *agent)
{
    return agent->opts->node_rank == 0;
}

static lk_status watch_links(lk_agent *agent)
{
    for (int i = 0; i < agent->link_count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (agent->links[i].fd >= 0 && epoll_ctl(agent->epoll, EPOLL_CTL_ADD, agent->links[i].fd, &event) != 0)
            return lk__fail(LK_STATUS_IO, "cannot watch the connection to a node: %s", strerror(errno));
    }
    return LK_OK;
}

lk_status lk__agent_create(const lk_launch_rendezvous_opts *opts, lk_launch_address *address, lk_agent **out)
{
    lk_agent *agent;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "an agent", &agent));
    *agent = (lk_agent){.opts = opts, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    int count = opts->node_rank == 0 ? opts->nnodes : 1;
    LK_TRY_GOTO(LK_ALLOC((size_t)count, "links to nodes", &agent->links), destroy_agent);
    LK_TRY_GOTO(LK_ALLOC((size_t)count, "links to nodes", &agent->over), destroy_agent);
    for (int i = 0; i < count; i++)
        agent->links[i].fd = -1;
    agent->link_count = count;
    if (opts->nnodes > 1) {
        LK_TRY_GOTO(lk__launch_rendezvous(opts, agent->links, address), destroy_agent);
        LK_TRY_GOTO(watch_links(agent), destroy_agent);
    }
    *out = agent;
    return LK_OK;
destroy_agent:
    lk__agent_destroy(agent);
    return status;
}

/* Removes the link from epoll first: the keeper may have a copy of the descriptor, so closing it would not
 * end the watching. */
static void drop_link(lk_agent *agent, int index)
{
    lk_link *link = &agent->links[index];
    if (link->fd >= 0)
        (void)epoll_ctl(agent->epoll, EPOLL_CTL_DEL, link->fd, NULL);
    lk__link_close(link);
}

void lk__agent_destroy(lk_agent *agent)
{
    if (!agent)
        return;
    for (int i = 0; i < agent->link_count; i++)
        drop_link(agent, i);
    if (agent->epoll >= 0)
        close(agent->epoll);
    lk__mem_free(agent->over);
    lk__mem_free(agent->links);
    lk__mem_free(agent);
}

static void send_all(lk_agent *agent, const lk_message *message)
{
    for (int i = 0; i < agent->link_count; i++)
        lk__link_send(&agent->links[i], message);
}

static void send_plans(lk_agent *agent, const lk_launch_plan *plan)
{
    int first = agent->opts->nproc;
    for (int node = 1; node < agent->opts->nnodes; node++) {
        lk_message message = {.kind = LK_MESSAGE_KIND_PLAN,
                              .numbers = {plan->restart, plan->world_size, first, plan->master_port}};
        memcpy(message.name, plan->run_id, sizeof plan->run_id);
        memcpy(message.text, plan->master_addr, sizeof plan->master_addr);
        lk__link_send(&agent->links[node], &message);
        first += agent->links[node].nproc;
    }
}

/* Reads the plan. Returns whether it is possible for this node. */
static bool read_plan(const lk_agent *agent, const lk_message *message, lk_launch_plan *out)
{
    const int64_t *n = message->numbers;
    int64_t max_world = (int64_t)LK_MAX_NODES * LK_MAX_NPROC;
    if (n[0] < 0 || n[0] > INT32_MAX || n[1] < 1 || n[1] > max_world || n[2] < 0 || n[2] > n[1] - agent->opts->nproc ||
        n[3] < 1 || n[3] > 65535)
        return false;
    *out = (lk_launch_plan){
        .restart = (int)n[0], .world_size = (int)n[1], .first_rank = (int)n[2], .master_port = (int)n[3]};
    memcpy(out->run_id, message->name, sizeof out->run_id);
    snprintf(out->master_addr, sizeof out->master_addr, "%.*s", LK_LAUNCH_HOST - 1, message->text);
    return true;
}

static lk_status await_plan(lk_agent *agent, lk_launch_plan *plan)
{
    lk_link *link = &agent->links[0];
    lk_message message;
    double deadline = lk__clock() + agent->opts->timeout + ANSWER;
    while (!*agent->opts->interrupted) {
        lk_link_state state = lk__link_receive(link, &message);
        if (state == LK_LINK_STATE_CLOSED || (state == LK_LINK_STATE_IDLE && lk__clock() >= deadline))
            return lk__fail(LK_STATUS_PEER, "node 0 (%s) disappeared before the job started", link->host);
        if (state == LK_LINK_STATE_IDLE) {
            (void)lk__net_wait(agent->epoll, POLLIN, lk__clock() + 0.2);
            continue;
        }
        /* Node 0 is alive, and waits for the other nodes up to its own timeout. */
        deadline = lk__clock() + agent->opts->timeout + ANSWER;
        if (message.kind == LK_MESSAGE_KIND_HELLO)
            memcpy(link->host, message.name, sizeof link->host);
        if (message.kind == LK_MESSAGE_KIND_NOTICE && agent->opts->notice)
            agent->opts->notice(agent->opts->notice_arg, message.text);
        if (message.kind == LK_MESSAGE_KIND_REFUSED)
            return lk__fail(LK_STATUS_PEER, "node 0 (%s): %s", link->host, message.text);
        if (message.kind == LK_MESSAGE_KIND_PLAN && read_plan(agent, &message, plan))
            return LK_OK;
    }
    return lk__fail(LK_STATUS_PEER, "interrupted while waiting for node 0");
}

lk_status lk__agent_plan(lk_agent *agent, lk_launch_plan *plan)
{
    if (!leads(agent))
        return await_plan(agent, plan);
    plan->first_rank = 0;
    plan->world_size = agent->opts->nproc;
    for (int node = 1; node < agent->opts->nnodes; node++)
        plan->world_size += agent->links[node].nproc;
    send_plans(agent, plan);
    return LK_OK;
}

void lk__agent_refuse(lk_agent *agent, const char *why)
{
    lk_message message = {.kind = LK_MESSAGE_KIND_REFUSED};
    snprintf(message.text, sizeof message.text, "%s", why);
    send_all(agent, &message);
}

/* A verdict for a node that disappeared. It counts like a death by signal, because it is the reason why other
 * ranks fail. */
static lk_launch_verdict lost(int node, const char *host)
{
    lk_launch_verdict verdict = {
        .outcome = LK_AGENT_OUTCOME_LOST, .node = node, .cause = {.rank = -1, .status = SIGKILL}};
    snprintf(verdict.cause.host, sizeof verdict.cause.host, "%s", host);
    return verdict;
}

/* Whether verdict a replaces b, which became known first. */
static bool outweighs(const lk_launch_verdict *a, const lk_launch_verdict *b)
{
    static const int weight[] = {[LK_AGENT_OUTCOME_DONE] = 0,
                                 [LK_AGENT_OUTCOME_FAILED] = 1,
                                 [LK_AGENT_OUTCOME_LOST] = 1,
                                 [LK_AGENT_OUTCOME_BROKEN] = 2,
                                 [LK_AGENT_OUTCOME_INTERRUPTED] = 3};
    if (weight[a->outcome] != weight[b->outcome])
        return weight[a->outcome] > weight[b->outcome];
    return weight[a->outcome] == 1 && lk__cause_before(&a->cause, &b->cause);
}

static void encode_verdict(const lk_launch_verdict *verdict, lk_message_kind kind, lk_message *out)
{
    *out = (lk_message){.kind = kind};
    lk__message_set_cause(out, &verdict->cause);
    out->numbers[4] = verdict->outcome;
    out->numbers[5] = verdict->node;
    out->numbers[6] = verdict->signal;
    out->numbers[7] = verdict->again + 2 * verdict->unwritten;
}

static bool decode_verdict(const lk_message *message, lk_launch_verdict *out)
{
    const int64_t *n = message->numbers;
    if (n[4] < 0 || n[4] > LK_AGENT_OUTCOME_INTERRUPTED || n[6] < 0 || n[6] > 64)
        return false;
    *out = (lk_launch_verdict){.outcome = (lk_agent_outcome)n[4],
                               .node = (int)n[5],
                               .signal = (int)n[6],
                               .again = n[7] & 1,
                               .unwritten = n[7] & 2};
    lk__message_get_cause(message, &out->cause);
    return true;
}

typedef struct round {
    lk_agent *agent;
    const lk_agent_watch_opts *opts;
    lk_launch_node *node;      /* NULL: its ranks were not started, or the keeper was killed */
    lk_launch_verdict verdict; /* the most important one so far */
    double stop_at;            /* lk__clock() time at which the ranks are stopped; 0: no stop so far */
    bool local_over;           /* this node's ranks are done or failed */
    bool interrupted;          /* a signal to this process interrupted the job */
    bool reported;             /* others: node 0 has this node's failure */
    bool ending;               /* the ranks are being ended */
    double grace;              /* seconds that the ranks have to end */
    bool obeys;                /* others: node 0 has sent STOP */
    bool stopped;              /* others: STOPPED was sent */
    bool asked;                /* node 0: the user of another node has sent a second signal */
    bool hurried;              /* the second signal was handled */
    bool lost_any;
} round;

static void weigh(round *r, const lk_launch_verdict *verdict)
{
    if (outweighs(verdict, &r->verdict))
        r->verdict = *verdict;
    if (r->stop_at == 0)
        r->stop_at = lk__clock();
}

/* Seconds for interrupted ranks to end. */
static double grace_of(const round *r)
{
    double grace = r->opts->grace > 0 ? r->opts->grace : INTERRUPTED_GRACE;
    return grace < LONGEST_GRACE ? grace : LONGEST_GRACE;
}

/* The verdict about this node's own ranks. */
static lk_launch_verdict own_verdict(const round *r, lk_agent_outcome outcome)
{
    const lk_launch_rendezvous_opts *opts = r->agent->opts;
    lk_launch_verdict verdict = {.outcome = outcome, .node = opts->node_rank};
    if (outcome == LK_AGENT_OUTCOME_FAILED) {
        verdict.cause = *lk__launch_node_cause(r->node);
        return verdict;
    }
    snprintf(verdict.cause.host, sizeof verdict.cause.host, "%s", opts->hostname);
    if (outcome == LK_AGENT_OUTCOME_BROKEN)
        snprintf(verdict.cause.tail, sizeof verdict.cause.tail, "%s", lk_error_detail());
    if (outcome == LK_AGENT_OUTCOME_INTERRUPTED) {
        int signal = r->node ? lk__launch_node_signal(r->node) : 0;
        verdict.signal = signal ? signal : (int)*r->agent->opts->interrupted;
        verdict.unwritten = signal == SIGPIPE && lk__launch_node_unwritten(r->node);
    }
    return verdict;
}

/* Records a failure of this node: node 0 compares it with others, the other nodes send it to node 0. */
static void end_badly(round *r, lk_agent_outcome outcome)
{
    lk_launch_verdict verdict = own_verdict(r, outcome);
    weigh(r, &verdict);
    r->local_over = true;
    if (leads(r->agent))
        return;
    lk_message message;
    encode_verdict(&verdict, LK_MESSAGE_KIND_TROUBLE, &message);
    lk__link_send(&r->agent->links[0], &message);
    r->reported = true;
    /* Node 0 answers with STOP. Without an answer this node stops alone. */
    if (!r->ending)
        r->stop_at = lk__clock() + ANSWER / 2;
}

/* If the ranks may take long to end, says to the user what they do and how to end them at once. */
static void notice_interrupted(const round *r)
{
    const lk_launch_rendezvous_opts *opts = r->agent->opts;
    char name[32], text[128];
    int signal = r->verdict.signal;
    if (!opts->notice || !(r->opts->grace > 0) || !r->node || (signal != SIGINT && signal != SIGTERM))
        return;
    lk__cause_signal_name(signal, name, sizeof name);
    snprintf(text, sizeof text,
             "interrupted by %s: the ranks finish this step first; a second signal ends them at once", name);
    opts->notice(opts->notice_arg, text);
}

static void note_state(round *r, lk_launch_node_state state)
{
    if (state == LK_LAUNCH_NODE_STATE_FAILED && !r->local_over)
        end_badly(r, LK_AGENT_OUTCOME_FAILED);
    else if (!r->interrupted && (state == LK_LAUNCH_NODE_STATE_INTERRUPTED || *r->agent->opts->interrupted)) {
        r->interrupted = true;
        end_badly(r, LK_AGENT_OUTCOME_INTERRUPTED);
        if (!r->ending || r->grace > FAILED_GRACE)
            notice_interrupted(r);
    } else if (state == LK_LAUNCH_NODE_STATE_DONE && !r->local_over) {
        r->local_over = true;
        if (!leads(r->agent))
            lk__link_send(&r->agent->links[0], &(lk_message){.kind = LK_MESSAGE_KIND_DONE});
    }
}

/* Blocks until an event of this node or of a link, at most `seconds`. */
static void wait_for_events(round *r, double seconds)
{
    lk_launch_node_state state = LK_LAUNCH_NODE_STATE_RUNNING;
    if (!r->node)
        (void)lk__net_wait(r->agent->epoll, POLLIN, lk__clock() + seconds);
    else if (lk__launch_node_wait(r->node, r->agent->epoll, seconds, &state) != LK_OK) {
        /* The keeper was killed, and all ranks have been ended. */
        end_badly(r, LK_AGENT_OUTCOME_BROKEN);
        lk__launch_node_destroy(r->node);
        r->node = NULL;
        return;
    }
    note_state(r, state);
}

static double seconds_left(const round *r)
{
    if (r->stop_at == 0)
        return TICK;
    double left = r->stop_at - lk__clock();
    return left < 0 ? 0 : left < TICK ? left : TICK;
}

/* Begins to stop the ranks. Only SIGKILL may follow, because a second signal would end the ranks at once. */
static void stop_ranks(round *r, int signal, double grace)
{
    if (!r->node || (r->ending && signal != SIGKILL))
        return;
    /* A failure until now is not an effect of stopping. */
    if (!r->ending && !r->local_over) {
        lk_launch_node_state state;
        if (lk__launch_node_wait(r->node, -1, 0, &state) == LK_OK)
            note_state(r, state);
    }
    r->ending = true;
    r->grace = grace;
    lk__launch_node_end(r->node, signal, grace);
}

static bool none_left(const round *r)
{
    return !r->node || lk__launch_node_stopped(r->node);
}

/* Whether a second signal has come that was not handled yet. The first one may have come before the node
 * handled signals. */
static bool wants_hurry(const round *r)
{
    if (r->hurried || !r->node)
        return !r->hurried && r->asked;
    bool twice = *r->agent->opts->interrupted && lk__launch_node_signal(r->node) != 0;
    return r->asked || twice || lk__launch_node_hurried(r->node);
}

static void handle(round *r, int node, const lk_message *message)
{
    lk_launch_verdict verdict;
    switch (message->kind) {
    case LK_MESSAGE_KIND_DONE:
    case LK_MESSAGE_KIND_STOPPED:
        r->agent->over[node] = true;
        break;
    case LK_MESSAGE_KIND_TROUBLE:
        if (!decode_verdict(message, &verdict))
            break;
        weigh(r, &verdict);
        r->asked = r->asked || verdict.again;
        break;
    default:
        break;
    }
}

static void lose(round *r, int node)
{
    lk_agent *agent = r->agent;
    lk_launch_verdict verdict = lost(node, agent->links[node].host);
    agent->over[node] = true;
    r->lost_any = true;
    drop_link(agent, node);
    weigh(r, &verdict);
}

static void read_links(round *r)
{
    lk_agent *agent = r->agent;
    lk_message message;
    for (int node = 1; node < agent->link_count; node++) {
        lk_link_state state = LK_LINK_STATE_IDLE;
        while (agent->links[node].fd >= 0 &&
               (state = lk__link_receive(&agent->links[node], &message)) == LK_LINK_STATE_MESSAGE)
            handle(r, node, &message);
        if (state == LK_LINK_STATE_CLOSED)
            lose(r, node);
    }
}

static bool all_over(const round *r)
{
    for (int node = 1; node < r->agent->link_count; node++)
        if (!r->agent->over[node])
            return false;
    return true;
}

/* Ends the grace: node 0 at all nodes; another node here, and it asks node 0 to do the same. */
static void hurry(round *r)
{
    lk_message message = {.kind = LK_MESSAGE_KIND_STOP, .numbers = {SIGKILL, 0}};
    if (!leads(r->agent)) {
        lk_launch_verdict verdict = own_verdict(r, LK_AGENT_OUTCOME_INTERRUPTED);
        verdict.again = true;
        encode_verdict(&verdict, LK_MESSAGE_KIND_TROUBLE, &message);
    }
    send_all(r->agent, &message);
    stop_ranks(r, SIGKILL, 0);
    r->hurried = true;
}

/* Stops the ranks of all nodes. Afterwards no rank is left on any node that answers. */
static void stop_everywhere(round *r)
{
    lk_agent *agent = r->agent;
    bool interrupted = r->verdict.outcome == LK_AGENT_OUTCOME_INTERRUPTED;
    int signal = interrupted ? r->verdict.signal : SIGTERM;
    double grace = interrupted ? grace_of(r) : FAILED_GRACE;
    lk_message stop = {.kind = LK_MESSAGE_KIND_STOP, .numbers = {signal, (int64_t)(1000 * grace)}};
    for (int node = 1; node < agent->link_count; node++)
        agent->over[node] = agent->links[node].fd < 0;
    send_all(agent, &stop);
    stop_ranks(r, signal, grace);
    double deadline = lk__clock() + grace + ANSWER;
    read_links(r);
    while (!none_left(r) || (!all_over(r) && lk__clock() < deadline)) {
        if (wants_hurry(r)) {
            hurry(r);
            deadline = lk__clock() + ANSWER;
        }
        wait_for_events(r, TICK);
        read_links(r);
    }
    /* A node that does not answer now has not caused the failure, which was earlier. */
    for (int node = 1; node < agent->link_count; node++)
        if (!agent->over[node])
            r->lost_any = true;
}

static void lead_round(round *r, const lk_launch_plan *plan)
{
    while (r->stop_at == 0 || lk__clock() < r->stop_at) {
        if (r->stop_at == 0 && r->local_over && all_over(r))
            break;
        wait_for_events(r, seconds_left(r));
        read_links(r);
    }
    if (r->stop_at > 0)
        stop_everywhere(r);
    r->verdict.again =
        r->verdict.outcome == LK_AGENT_OUTCOME_FAILED && !r->lost_any && plan->restart < r->opts->max_restarts;
    lk_message end;
    encode_verdict(&r->verdict, LK_MESSAGE_KIND_END, &end);
    send_all(r->agent, &end);
}

static void obey_stop(round *r, const lk_message *message)
{
    int64_t signal = message->numbers[0], grace = message->numbers[1];
    if (signal < 1 || signal > 64 || grace < 0 || grace > (int64_t)(1000 * LONGEST_GRACE))
        return;
    stop_ranks(r, (int)signal, (double)grace / 1000);
    r->obeys = true;
    /* Other nodes may use their whole grace, or be lost. */
    r->stop_at = lk__clock() + (double)grace / 1000 + 2 * ANSWER;
}

/* Sends node 0 what it must know about the end of this node's ranks. */
static void report(round *r)
{
    if (wants_hurry(r))
        hurry(r);
    if (!r->obeys || r->stopped || !none_left(r))
        return;
    lk__link_send(&r->agent->links[0], &(lk_message){.kind = LK_MESSAGE_KIND_STOPPED});
    r->stopped = true;
}

/* Handles node 0's messages. Returns whether the round is over; then r->verdict is the verdict. */
static bool follow(round *r)
{
    lk_agent *agent = r->agent;
    lk_message message;
    for (;;) {
        switch (lk__link_receive(&agent->links[0], &message)) {
        case LK_LINK_STATE_IDLE:
            return false;
        case LK_LINK_STATE_CLOSED: {
            lk_launch_verdict verdict = lost(0, agent->links[0].host);
            drop_link(agent, 0);
            /* Node 0 may have ended because of this node's failure. */
            if (!r->reported || r->verdict.outcome == LK_AGENT_OUTCOME_DONE)
                r->verdict = verdict;
            return true;
        }
        case LK_LINK_STATE_MESSAGE:
            if (message.kind == LK_MESSAGE_KIND_STOP)
                obey_stop(r, &message);
            if (message.kind == LK_MESSAGE_KIND_END && decode_verdict(&message, &r->verdict))
                return true;
        }
    }
}

static void follow_round(round *r)
{
    while (!follow(r)) {
        if (r->stop_at > 0 && lk__clock() >= r->stop_at) {
            if (r->verdict.outcome == LK_AGENT_OUTCOME_DONE)
                r->verdict = lost(0, r->agent->links[0].host);
            break;
        }
        report(r);
        wait_for_events(r, seconds_left(r));
    }
    bool interrupted = r->verdict.outcome == LK_AGENT_OUTCOME_INTERRUPTED;
    if (r->verdict.outcome != LK_AGENT_OUTCOME_DONE)
        stop_ranks(r, interrupted ? r->verdict.signal : SIGTERM, interrupted ? grace_of(r) : FAILED_GRACE);
    /* Node 0's messages are not read any more; signals still work. */
    lk_launch_node_state state;
    while (r->ending && !none_left(r) && lk__launch_node_wait(r->node, -1, TICK, &state) == LK_OK)
        ;
}

void lk__agent_watch(lk_agent *agent, const lk_launch_plan *plan, const lk_agent_watch_opts *opts, lk_launch_node *node,
                     lk_launch_verdict *out)
{
    round r = {.agent = agent, .opts = opts, .node = node};
    for (int i = 0; i < agent->link_count; i++)
        agent->over[i] = agent->links[i].fd < 0;
    if (!r.node)
        end_badly(&r, LK_AGENT_OUTCOME_BROKEN);
    if (leads(agent))
        lead_round(&r, plan);
    else
        follow_round(&r);
    if (r.node && r.verdict.outcome == LK_AGENT_OUTCOME_FAILED && none_left(&r)) {
        lk__launch_node_stop(r.node, SIGTERM, 0); /* forwards the rest of the output */
        const lk_cause *own = lk__launch_node_cause(r.node);
        r.verdict.cause.shown = own->shown && own->rank == r.verdict.cause.rank;
    }
    lk__launch_node_destroy(r.node);
    *out = r.verdict;
}
