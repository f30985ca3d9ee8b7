/* test_wire.c - encoding of control messages; wrong bytes are refused. */
#include "check.h"
#include "comm/control/wire.h"

static uint8_t buffer[LK_MAX_RANKS * 256 + 4096];

static void test_round_trip(void **state)
{
    const char *text = "rank 2 (host b, pid 7) died";
    lk_wire in = {.kind = LK_WIRE_KIND_BROKEN,
                  .rank = 2,
                  .size = 4,
                  .number = 77,
                  .status = LK_STATUS_PEER,
                  .data = (const uint8_t *)text,
                  .bytes = strlen(text)};
    size_t bytes = lk__wire_encode(&in, buffer), used = 0;
    lk_wire out;
    assert_int_equal(bytes, LK_WIRE_HEAD + strlen(text));
    for (size_t part = 0; part < bytes; part++)
        assert_int_equal(lk__wire_decode(buffer, part, sizeof buffer, true, &out, &used), LK_WIRE_RESULT_MORE);
    assert_int_equal(lk__wire_decode(buffer, bytes + 9, sizeof buffer, true, &out, &used), LK_WIRE_RESULT_WHOLE);
    assert_int_equal(used, bytes);
    assert_int_equal(out.kind, in.kind);
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.size, 4);
    assert_int_equal(out.number, 77);
    assert_int_equal(out.status, LK_STATUS_PEER);
    char got[LK_WIRE_TEXT + 1];
    lk__wire_text(&out, got);
    assert_string_equal(got, text);
}

static lk_wire_result decode(lk_wire in, size_t room, bool from_server)
{
    static uint8_t data[LK_MAX_RANKS * 256];
    lk_wire out;
    size_t used;
    in.data = data;
    if (in.size == 0)
        in.size = 4;
    size_t bytes = lk__wire_encode(&in, buffer);
    return lk__wire_decode(buffer, bytes, room, from_server, &out, &used);
}

static void test_bounds(void **state)
{
    enum { TO_SERVER, FROM_SERVER };
    static const struct {
        lk_wire message;
        bool from_server;
        lk_wire_result result;
    } rows[] = {
        {{.kind = LK_WIRE_KIND_LEAVE}, TO_SERVER, LK_WIRE_RESULT_WHOLE},
        {{.kind = LK_WIRE_KIND_LEAVE}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_LEAVE, .bytes = 1}, TO_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_COUNT}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_LEFT, .rank = LK_MAX_RANKS}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_LEFT, .size = LK_MAX_RANKS + 1}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_BROKEN, .status = LK_STATUS_COUNT}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_EXCHANGE, .bytes = 256}, TO_SERVER, LK_WIRE_RESULT_WHOLE},
        {{.kind = LK_WIRE_KIND_EXCHANGE, .bytes = 257}, TO_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_HELLO, .bytes = LK_WIRE_MEMBER}, TO_SERVER, LK_WIRE_RESULT_WHOLE},
        {{.kind = LK_WIRE_KIND_HELLO, .bytes = LK_WIRE_MEMBER - 1}, TO_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_REPORT, .bytes = LK_CALL_BYTES + 1}, TO_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_EXCHANGED, .bytes = 4 * 256}, FROM_SERVER, LK_WIRE_RESULT_WHOLE},
        {{.kind = LK_WIRE_KIND_EXCHANGED, .bytes = 4 * 256 + 1}, FROM_SERVER, LK_WIRE_RESULT_BAD},
        {{.kind = LK_WIRE_KIND_WAITING, .bytes = 3}, FROM_SERVER, LK_WIRE_RESULT_BAD},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(decode(rows[i].message, lk__wire_from_server(4), rows[i].from_server), rows[i].result);
    lk_wire report = {.kind = LK_WIRE_KIND_REPORT, .bytes = LK_HISTORY * LK_CALL_BYTES};
    assert_int_equal(decode(report, LK_WIRE_TO_SERVER, false), LK_WIRE_RESULT_WHOLE);
    report.bytes += LK_CALL_BYTES;
    assert_int_equal(decode(report, 1 << 20, false), LK_WIRE_RESULT_BAD);
}

static void test_more_than_the_room(void **state)
{
    size_t room = lk__wire_from_server(4);
    lk_wire big = {.kind = LK_WIRE_KIND_EXCHANGED, .size = LK_MAX_RANKS, .bytes = LK_MAX_RANKS * 256};
    assert_int_equal(decode(big, lk__wire_from_server(LK_MAX_RANKS), true), LK_WIRE_RESULT_WHOLE);
    assert_int_equal(decode(big, room, true), LK_WIRE_RESULT_BAD);
}

static void test_member(void **state)
{
    lk_member in = {.host_key = 0x0123456789abcdefu, .pid = 4711, .host = "node-b", .address = "10.1.2.3"}, out;
    uint8_t bytes[LK_WIRE_MEMBER];
    lk__wire_put_member(&in, bytes);
    lk__wire_get_member(bytes, &out);
    assert_true(out.host_key == in.host_key && out.pid == in.pid);
    assert_memory_equal(out.host, in.host, sizeof in.host);
    assert_memory_equal(out.address, in.address, sizeof in.address);
    memset(bytes + 12, '\n', sizeof bytes - 12);
    lk__wire_get_member(bytes, &out);
    assert_int_equal(strlen(out.host), LK_HOST_BYTES - 1);
    assert_null(strchr(out.host, '\n'));
    assert_int_equal(strlen(out.address), LK_ADDRESS_BYTES - 1);
}

/* Line breaks and control characters in texts are replaced. */
static void test_hostile_texts(void **state)
{
    static const char hostile[] = "\x1b[31mroot\n\xc2\x9b"
                                  "2J;rm";
    lk_member in = {.pid = 1}, out;
    uint8_t bytes[LK_WIRE_MEMBER];
    char text[LK_WIRE_TEXT + 1];
    memcpy(in.host, hostile, sizeof hostile);
    lk__wire_put_member(&in, bytes);
    lk__wire_get_member(bytes, &out);
    assert_string_equal(out.host, "??31mroot??2J?rm");
    lk_wire message = {.kind = LK_WIRE_KIND_BROKEN, .data = (const uint8_t *)hostile, .bytes = sizeof hostile - 1};
    lk__wire_text(&message, text);
    assert_string_equal(text, "?[31mroot??2J;rm");
}

static void test_calls(void **state)
{
    lk_call calls[3], back[LK_HISTORY];
    uint8_t data[3 * LK_CALL_BYTES];
    for (uint32_t i = 0; i < 3; i++) {
        calls[i] = (lk_call){.group = 1, .number = 40 + i, .kind = LK_CALL_KIND_BROADCAST, .root = 2, .count = 9};
        lk__call_encode(&calls[i], data + i * LK_CALL_BYTES);
    }
    lk_wire message = {.kind = LK_WIRE_KIND_REPORT, .data = data, .bytes = sizeof data};
    assert_int_equal(lk__wire_calls(&message, back), 3);
    for (int i = 0; i < 3; i++)
        assert_true(lk__call_same(&calls[i], &back[i]));
    memset(data, 0xff, sizeof data);
    assert_int_equal(lk__wire_calls(&message, back), -1);
}

TEST_MAIN(NULL, NULL, TEST(test_round_trip), TEST(test_bounds), TEST(test_more_than_the_room), TEST(test_member),
          TEST(test_calls), TEST(test_hostile_texts))
