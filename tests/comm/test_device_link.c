/* test_device_link.c - messages between two devices arrive whole and in order, over channels whose moves have one half
 * and two; a sender may be ahead of the receiver; a lost peer and a timeout are errors. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "parallel/joined.h"

#include "check.h"
#include "comm/collective/device_link.h"
#include "comm/harness.h"

enum { MESSAGES = 100, LANES = 3, MOST = 4001 };

/* How a rank behaves. */
typedef struct plan {
    const lk_channel_type *type;
    int last;   /* the receiver leaves after this message */
    int behind; /* the receiver waits until the sender has sent so many messages; at most 2 without a reply */
    bool mute;  /* the sender's device sends nothing after the link is made; the receiver waits for one message */
    atomic_int *sent;
} plan;

static size_t bytes_of(int message)
{
    return message == MESSAGES - 1 ? MOST : 1 + (size_t)(message * 37 % MOST);
}

static unsigned char byte_of(int message, size_t i)
{
    return (unsigned char)(message * 7 + (int)i * 13);
}

static void check_message(lk_device *dev, const unsigned char *at, int message)
{
    static _Thread_local unsigned char host[MOST];
    size_t bytes = bytes_of(message);
    CHECK_OK(dev->type->download(dev, at, bytes, host));
    for (size_t i = 0; i < bytes; i++)
        CHECK(host[i] == byte_of(message, i));
}

static lk_status send_all(lk_device_link *link, lk_device *dev, unsigned char *const lanes[LANES], const plan *p)
{
    static _Thread_local unsigned char host[MOST];
    for (int m = 0; m < (p->mute ? 1 : MESSAGES); m++) {
        int lane = m % LANES;
        LK_TRY(lk__device_link_clear(link, lane));
        for (size_t i = 0; i < bytes_of(m); i++)
            host[i] = byte_of(m, i);
        LK_TRY(dev->type->upload(dev, host, bytes_of(m), lanes[lane]));
        LK_TRY(lk__device_link_send(link, lane, lanes[lane], bytes_of(m)));
        *p->sent = m + 1;
    }
    for (int lane = 0; lane < LANES; lane++)
        LK_TRY(lk__device_link_clear(link, lane));
    return LK_OK;
}

static lk_status receive_all(lk_device_link *link, lk_device *dev, unsigned char *at, const plan *p)
{
    while (*p->sent < p->behind)
        sched_yield();
    for (int m = 0; m < p->last; m++) {
        LK_TRY(lk__device_link_receive(link, at, bytes_of(m)));
        check_message(dev, at, m);
    }
    return LK_OK;
}

/* Collective: the sender's device sends nothing from now on. */
static void mute_sender(lk_group *group)
{
    CHECK_OK(lk_barrier(group, NULL));
    joined_mute = 1;
    CHECK_OK(lk_barrier(group, NULL));
}

/* The expected result of a rank whose peer is lost. */
static void check_lost(lk_group *group, const plan *p, lk_status status)
{
    if (lk_group_rank(group) == 1)
        lk_group_abort(group, "it had enough");
    else /* sends of the channel whose moves have one half need no receiver */
        CHECK(status == (p->type == &joined_near ? LK_STATUS_PEER : LK_OK));
}

/* The sender waits without the group, whose timeout might pass before the receiver's. */
static void check_timeout(lk_group *group, const plan *p, lk_status status)
{
    char text[128];
    if (lk_group_rank(group) == 0) {
        CHECK_OK(status);
        while (*p->sent > 0)
            sched_yield();
        return;
    }
    CHECK(status == LK_STATUS_PEER);
    snprintf(text, sizeof text, "rank 1 waited 2 s for other ranks over %s: that is its timeout; is one of them ",
             p->type->name);
    CHECK_TEXT(lk_error_detail(), text);
    *p->sent = 0;
}

static bool be(lk_group *group, const team_spec *team, const void *arg)
{
    const plan *p = arg;
    unsigned char *lanes[LANES];
    lk_device *dev;
    lk_device_link *link;
    lk_status status;
    CHECK_OK(lk__device_open("far", &(lk_device_opts){.threads = 1}, &dev));
    for (int i = 0; i < LANES; i++)
        CHECK_OK(dev->type->alloc(dev, MOST + 3, "a message", (void **)&lanes[i]));
    lk_device_link_opts opts = {.group = group, .dev = dev, .channel = p->type, .most = MOST, .lanes = LANES};
    CHECK_OK(lk__device_link_create(&opts, &link));
    if (p->mute)
        mute_sender(group);
    if (lk_group_rank(group) == 0)
        status = send_all(link, dev, lanes, p);
    else
        status = receive_all(link, dev, lanes[0], p);
    if (p->mute)
        check_timeout(group, p, status);
    else if (p->last < MESSAGES)
        check_lost(group, p, status);
    else
        CHECK_OK(status);
    lk__device_link_leave(link);
    lk__device_link_destroy(link);
    for (int i = 0; i < LANES; i++)
        dev->type->free(dev, lanes[i]);
    lk__device_close(dev);
    return false;
}

static void try_plan(plan p)
{
    atomic_int sent = 0;
    p.sent = &sent;
    assert_true(team_run((team_spec){.size = 2, .transport = "inproc", .timeout = p.mute ? 2 : 20}, be, &p));
}

static void test_all_arrive(void **state)
{
    try_plan((plan){.type = &joined_type, .last = MESSAGES});
    try_plan((plan){.type = &joined_near, .last = MESSAGES});
}

static void test_a_sender_is_ahead(void **state)
{
    try_plan((plan){.type = &joined_type, .last = MESSAGES, .behind = 2});
    try_plan((plan){.type = &joined_near, .last = MESSAGES, .behind = 2});
}

static void test_a_receiver_is_lost(void **state)
{
    try_plan((plan){.type = &joined_near, .last = 5});
    try_plan((plan){.type = &joined_type, .last = 5});
}

static void test_a_sender_is_silent(void **state)
{
    try_plan((plan){.type = &joined_near, .last = 1, .behind = 1, .mute = true});
    try_plan((plan){.type = &joined_type, .last = 1, .behind = 1, .mute = true});
}

int main(void)
{
    if (joined_add_device() != LK_OK)
        return 1;
    return RUN_TESTS(NULL, NULL, TEST(test_all_arrive), TEST(test_a_sender_is_ahead), TEST(test_a_receiver_is_lost),
                     TEST(test_a_sender_is_silent));
}
