/* test_utf8.c - which bytes are a character, and where a text stops to be UTF-8. */
#include "base/utf8.h"
#include "check.h"

static void test_characters(void **state)
{
    assert_int_equal(lk__utf8_read("", 0, NULL), 0);
    assert_int_equal(lk__utf8_read("a", 1, NULL), 1);
    assert_int_equal(lk__utf8_read("\xc3\xa9", 2, NULL), 2);
    assert_int_equal(lk__utf8_read("\xc3\xa9", 1, NULL), 0);
    assert_int_equal(lk__utf8_read("\xe6\x97\xa5", 3, NULL), 3);
    assert_int_equal(lk__utf8_read("\xe6\x97z", 3, NULL), 0);
    assert_int_equal(lk__utf8_read("\xf4\x8f\xbf\xbf", 4, NULL), 4);
    assert_int_equal(lk__utf8_read("\x80", 1, NULL), 0);
    assert_int_equal(lk__utf8_read("\xf8\x88\x80\x80\x80", 5, NULL), 0);
}

static void test_values(void **state)
{
    uint32_t value = 0;
    assert_int_equal(lk__utf8_read("\xe6\x97\xa5z", 4, &value), 3);
    assert_int_equal(value, 0x65e5);
    assert_int_equal(lk__utf8_read("\xed\xa0\x80", 3, NULL), 0);     /* a surrogate */
    assert_int_equal(lk__utf8_read("\xc0\xaf", 2, NULL), 0);         /* '/' in more bytes than it needs */
    assert_int_equal(lk__utf8_read("\xf4\x90\x80\x80", 4, NULL), 0); /* above U+10FFFF */
}

static void test_texts(void **state)
{
    assert_int_equal(lk__utf8_valid_bytes("", 0), 0);
    assert_int_equal(lk__utf8_valid_bytes("a\xc3\xa9z", 4), 4);
    assert_int_equal(lk__utf8_valid_bytes("a\xc3\xa9z", 2), 1);
    assert_int_equal(lk__utf8_valid_bytes("a\x80z", 3), 1);
    assert_true(lk__utf8_is_valid("") && lk__utf8_is_valid("h\xc3\xa9"));
    assert_false(lk__utf8_is_valid("h\xc3"));
}

TEST_MAIN(NULL, NULL, TEST(test_characters), TEST(test_values), TEST(test_texts))
