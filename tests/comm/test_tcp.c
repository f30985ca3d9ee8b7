/* test_tcp.c - the tcp transport and the headers of its frames: traffic in both directions,
 * strangers that connect, peers that die or send wrong bytes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/ranks.h"
#include "comm/transport/tcp.h"

static lk_transport *open_at(place *at)
{
    lk_boot boot = meeting_boot(at, 60);
    lk_transport *t = NULL;
    CHECK_OK(lk__transport_tcp.open(&boot, &t));
    CHECK(strcmp(t->type->name, "tcp") == 0);
    return t;
}

static void run_world(int size, rank_fn fn, const void *arg, unsigned killed)
{
    meeting *shared = meeting_create(size);
    assert_true(run_ranks(shared, fn, arg, killed));
    meeting_destroy(shared);
}

static void headers_survive_and_lies_are_seen(void **state)
{
    lk_frame frame = frame_of(77, 123456789), back;
    frame.call.root = 3;
    uint8_t bytes[LK_FRAME_BYTES];
    uint64_t sum = 0;
    lk__frame_encode(&frame, 4711, bytes);
    assert_int_equal(lk__frame_decode(bytes, &back, &sum), LK_FRAME_RESULT_WHOLE);
    assert_true(back.part == 77 && back.bytes == 123456789 && lk__call_same(&frame.call, &back.call));
    assert_int_equal(sum, 4711);
    for (int bit = 0; bit < 8 * LK_FRAME_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(lk__frame_decode(bytes, &back, &sum), LK_FRAME_RESULT_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    frame.bytes = LK_FRAME_MAX;
    lk__frame_encode(&frame, 0, bytes);
    assert_int_equal(lk__frame_decode(bytes, &back, &sum), LK_FRAME_RESULT_WHOLE);
    frame.bytes = LK_FRAME_MAX + 1;
    lk__frame_encode(&frame, 0, bytes);
    assert_int_equal(lk__frame_decode(bytes, &back, &sum), LK_FRAME_RESULT_IMPOSSIBLE);
    frame.bytes = 1;
    frame.call.kind = 200;
    lk__frame_encode(&frame, 0, bytes);
    assert_int_equal(lk__frame_decode(bytes, &back, &sum), LK_FRAME_RESULT_IMPOSSIBLE);
}

static void talk(place *at, const void *arg)
{
    static const size_t sizes[] = {0, 1,     4,     63,     64,      65, 1000, LK_TCP_BUFFER - LK_FRAME_BYTES,
                                   0, 32769, 40000, 100001, 1200000, 5,  0,    70000};
    lk_transport *t = open_at(at);
    all_to_all(t, at->rank, at->shared->size, sizes, COUNT_OF(sizes));
    multicast(t, at->rank, at->shared->size, 0);
    multicast(t, at->rank, at->shared->size, 4);
    multicast(t, at->rank, at->shared->size, 600001);
    together(at);
    t->type->close(t);
}

static void ranks_talk(void **state)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < COUNT_OF(worlds); i++)
        run_world(worlds[i], talk, NULL, 0);
}

/* Rank 0 sends until there is no room; only after that does rank 1 begin to read. */
static void overfill(place *at, const void *arg)
{
    enum { BYTES = 50000, MOST = 20000 };
    static uint8_t out[BYTES], in[BYTES];
    lk_transport *t = open_at(at);
    int count = 0;
    if (at->rank == 0) {
        uint64_t ticket = 1, last = 0;
        for (; count < MOST && ticket; count += ticket != 0) {
            lk_frame frame = frame_of(count, BYTES);
            CHECK_OK(t->type->send(t, &(int){1}, 1, &frame, out, &ticket));
            last = ticket ? ticket : last;
        }
        CHECK(ticket == 0 && count >= LK_TCP_QUEUE && !t->type->sent(t, last));
        memcpy(at->shared->note, &count, sizeof count);
        together(at);
        await_sent(t, last);
        together(at);
    } else {
        together(at);
        memcpy(&count, at->shared->note, sizeof count);
        for (int i = 0; i < count; i++) {
            await_payload(t, 0, in);
            const lk_frame *frame = t->type->arrived(t, 0);
            CHECK(frame->part == (uint32_t)i && frame->bytes == BYTES);
            t->type->release(t, 0);
        }
        together(at);
    }
    t->type->close(t);
}

static void a_full_queue_gives_no_ticket(void **state)
{
    run_world(2, overfill, NULL, 0);
}

enum { HUGE_BYTES = 64 << 20 };

static void check_blames(int rank)
{
    char name[32], host[32];
    snprintf(name, sizeof name, "rank %d", rank);
    snprintf(host, sizeof host, "node%d", rank);
    CHECK_TEXT(lk_error_detail(), name);
    CHECK_TEXT(lk_error_detail(), host);
}

/* Rank 1 dies while rank 0 reads from it and rank 2 writes to it; rank 3 does neither. */
static void die_midway(place *at, const void *arg)
{
    lk_transport *t = open_at(at);
    uint8_t *data = calloc(1, HUGE_BYTES);
    uint64_t ticket = 0;
    lk_frame frame = frame_of(0, HUGE_BYTES);
    CHECK(data);
    if (at->rank == 0) {
        const void *there = NULL;
        await_frame(t, 1);
        lk_status status = LK_OK;
        while (status == LK_OK) {
            status = t->type->payload(t, 1, data, &there);
            CHECK(status != LK_OK || !there);
            if (status == LK_OK)
                status = t->type->progress(t);
            t->type->wait(t, 0.01);
        }
        CHECK(status == LK_STATUS_PEER);
        check_blames(1);
    } else if (at->rank == 1) {
        CHECK_OK(t->type->send(t, &(int){0}, 1, &frame, data, &ticket));
        CHECK(!t->type->sent(t, ticket));
        raise(SIGKILL);
    } else if (at->rank == 2) {
        CHECK_OK(t->type->send(t, &(int){1}, 1, &frame, data, &ticket));
        CHECK(await_failure(t, -1) == LK_STATUS_PEER);
        check_blames(1);
        CHECK(t->type->send(t, &(int){1}, 1, &frame, data, &ticket) == LK_STATUS_PEER);
    } else {
        for (int i = 0; i < 20; i++)
            pause_ranks(t);
    }
    if (at->rank == 3)
        CHECK_OK(t->type->progress(t));
    free(data);
    t->type->close(t);
}

static void a_killed_peer_is_named(void **state)
{
    run_world(4, die_midway, NULL, 1u << 1);
}

/* Frames that a rank sent before it left arrive; only a rank that waits for more gets an error. */
static void leave_early(place *at, const void *arg)
{
    static uint8_t data[100000];
    lk_transport *t = open_at(at);
    lk_frame frame = frame_of(0, sizeof data);
    if (at->rank == 1) {
        uint64_t ticket = 0;
        CHECK_OK(t->type->send(t, &(int){0}, 1, &frame, data, &ticket));
        await_sent(t, ticket);
        t->type->close(t);
        together(at);
        return;
    }
    together(at);
    CHECK_OK(t->type->progress(t));
    await_payload(t, 1, data);
    t->type->release(t, 1);
    for (int i = 0; i < 5; i++)
        CHECK_OK(t->type->progress(t));
    CHECK(await_failure(t, 1) == LK_STATUS_PEER);
    check_blames(1);
    t->type->close(t);
}

static void a_peer_may_leave(void **state)
{
    run_world(2, leave_early, NULL, 0);
}

typedef struct lie {
    size_t bytes;    /* sent */
    uint64_t claims; /* size of the payload in the header */
    int spoil;       /* byte of the header that is changed, -1: none */
    uint64_t sum;    /* checksum of the payload, 0: none */
    lk_status status;
    const char *word;
} lie;

static void tell_lie(place *at, const void *arg)
{
    const lie *what = arg;
    lk_transport *t = open_at(at);
    if (at->rank == 1) {
        uint8_t bytes[LK_FRAME_BYTES + 64] = {0};
        lk_frame frame = frame_of(0, 0);
        frame.bytes = what->claims;
        lk__frame_encode(&frame, what->sum, bytes);
        if (what->spoil >= 0)
            bytes[what->spoil] ^= 0x40;
        CHECK(write(((lk_tcp *)t)->peers[0].fd, bytes, what->bytes) == (ssize_t)what->bytes);
        t->type->close(t);
        return;
    }
    static uint8_t into[4096];
    lk_status status = LK_OK;
    const lk_frame *frame = NULL;
    while (!(frame = t->type->arrived(t, 1)) && status == LK_OK) {
        t->type->wait(t, 0.01);
        status = t->type->progress(t);
    }
    const void *there = NULL;
    while (frame && status == LK_OK) {
        CHECK(frame->bytes <= sizeof into);
        status = t->type->payload(t, 1, into, &there);
        CHECK(status != LK_OK || !there);
        t->type->wait(t, 0.01);
        if (status == LK_OK)
            status = t->type->progress(t);
    }
    CHECK(status == what->status);
    check_blames(1);
    CHECK_TEXT(lk_error_detail(), what->word);
    t->type->close(t);
}

static void lies_are_told_apart(void **state)
{
    static const lie lies[] = {
        {LK_FRAME_BYTES / 2, 8, -1, 0, LK_STATUS_PEER, "closed"},                 /* half a header */
        {LK_FRAME_BYTES + 8, 1000, -1, 0, LK_STATUS_PEER, "closed"},              /* less than it claims */
        {LK_FRAME_BYTES, UINT64_MAX, -1, 0, LK_STATUS_PEER, "not a frame"},       /* more than there can be */
        {LK_FRAME_BYTES, LK_FRAME_MAX + 1, -1, 0, LK_STATUS_PEER, "not a frame"}, /* by one */
        {LK_FRAME_BYTES, 8, 1, 0, LK_STATUS_IO, "a header from"},                 /* another magic */
        {LK_FRAME_BYTES, 8, LK_FRAME_BYTES - 1, 0, LK_STATUS_IO, "a header from"},
        {LK_FRAME_BYTES + 8, 8, -1, 1, LK_STATUS_IO, "a payload from"}, /* in the buffer that is read ahead */
        {LK_FRAME_BYTES + 64, 64, -1, 1, LK_STATUS_IO, "changed on the way"},
    };
    for (size_t i = 0; i < COUNT_OF(lies); i++)
        run_world(2, tell_lie, &lies[i], 0);
}

enum { SILENT = 150 };

static int call_stranger(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* After the exchange of ports, strangers connect to rank 0 before the last rank does. */
static lk_status exchange_with_strangers(void *arg, const void *mine, size_t bytes, void *all)
{
    place *at = arg;
    LK_TRY(meeting_exchange(arg, mine, bytes, all));
    if (bytes != LK_TCP_OFFER_BYTES || at->rank != at->shared->size - 1)
        return LK_OK;
    int port = ((uint8_t *)all)[1] | ((uint8_t *)all)[2] << 8;
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n";
    CHECK(send(call_stranger(port), garbage, sizeof garbage, MSG_NOSIGNAL) > 0);
    CHECK(send(call_stranger(port), "LKS", 3, MSG_NOSIGNAL) == 3);
    for (int i = 0; i < SILENT; i++)
        call_stranger(port);
    close(call_stranger(port));
    return LK_OK;
}

static void open_among_strangers(place *at, const void *arg)
{
    lk_boot boot = meeting_boot(at, 60);
    boot.exchange = exchange_with_strangers;
    lk_transport *t = NULL;
    CHECK_OK(lk__transport_tcp.open(&boot, &t));
    multicast(t, at->rank, at->shared->size, 1000);
    together(at);
    t->type->close(t);
}

static void open_with_wrong_token(place *at, const void *arg)
{
    lk_boot boot = meeting_boot(at, 1);
    if (at->rank == 1)
        CHECK_OK(lk__token_from_text("the token of another job", &boot.token));
    lk_transport *t = NULL;
    CHECK(lk__transport_tcp.open(&boot, &t) == LK_STATUS_PEER && !t);
    if (at->rank == 1)
        CHECK_TEXT(lk_error_detail(), "token");
}

/* Nobody can listen on an address of a documentation network. */
static void open_at_wrong_address(place *at, const void *arg)
{
    lk_boot boot = meeting_boot(at, 20);
    lk_member members[3];
    memcpy(members, boot.members, sizeof members);
    snprintf(members[0].address, sizeof members[0].address, "203.0.113.1");
    boot.members = members;
    lk_transport *t = NULL;
    CHECK(lk__transport_tcp.open(&boot, &t) != LK_OK && !t);
    CHECK_TEXT(lk_error_detail(), "203.0.113.1");
}

static void open_in_broken_job(place *at, const void *arg)
{
    lk_boot boot = meeting_boot(at, 60);
    if (at->rank == 1) {
        uint8_t fine = 1, offer[LK_TCP_OFFER_BYTES] = {1, 1, 0}, all[LK_TCP_OFFER_BYTES * MAX_TEST_RANKS];
        CHECK_OK(meeting_exchange(at, &fine, 1, all));
        CHECK_OK(meeting_exchange(at, offer, sizeof offer, all));
        pthread_mutex_lock(&at->shared->lock);
        at->shared->broken = true;
        pthread_cond_broadcast(&at->shared->turn);
        pthread_mutex_unlock(&at->shared->lock);
        return;
    }
    lk_transport *t = NULL;
    CHECK(lk__transport_tcp.open(&boot, &t) == LK_STATUS_PEER && !t);
    CHECK_TEXT(lk_error_detail(), "the job is broken");
}

static void open_with_wrong_word(place *at, const void *arg)
{
    lk_boot boot = meeting_boot(at, 20);
    lk_transport *t = NULL;
    if (at->rank == 1)
        setenv("LOCKSTEP_CHECKSUM", "always", 1);
    CHECK(lk__transport_tcp.open(&boot, &t) == (at->rank == 1 ? LK_STATUS_USAGE : LK_STATUS_PEER) && !t);
    CHECK_TEXT(lk_error_detail(), at->rank == 1 ? "LOCKSTEP_CHECKSUM is 'always': it must be hosts" : "rank 1");
}

static void open_fails_as_it_should_and_ignores_strangers(void **state)
{
    run_world(3, open_among_strangers, NULL, 0);
    run_world(3, open_with_wrong_token, NULL, 0);
    run_world(3, open_at_wrong_address, NULL, 0);
    run_world(3, open_in_broken_job, NULL, 0);
    run_world(2, open_with_wrong_word, NULL, 0);
}

static void transports_have_names(void **state)
{
    const lk_transport_type *type = NULL;
    assert_int_equal(lk__transport_find("tcp", &type), LK_OK);
    assert_ptr_equal(type, &lk__transport_tcp);
    assert_fails(lk__transport_find("carrier pigeon", &type), LK_STATUS_USAGE, "auto, shm, tcp, mpi");
    assert_int_equal(lk__transport_find("inproc", &type), LK_STATUS_USAGE);
    size_t count = 0;
    while (lk__transport_list(count))
        count++;
    assert_int_equal(count, 4);
}

TEST_MAIN(NULL, NULL, TEST(headers_survive_and_lies_are_seen), TEST(transports_have_names), TEST(ranks_talk),
          TEST(a_full_queue_gives_no_ticket), TEST(a_killed_peer_is_named), TEST(a_peer_may_leave),
          TEST(lies_are_told_apart), TEST(open_fails_as_it_should_and_ignores_strangers))
