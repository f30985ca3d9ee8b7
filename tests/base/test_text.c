/* test_text.c - cleaning of untrusted text before it is printed on a terminal. */
#include "base/text.h"
#include "check.h"

static void expect(lk_text_kind kind, const char *in, const char *out)
{
    char text[128];
    snprintf(text, sizeof text, "%s", in);
    lk__text_clean(text, kind);
    assert_string_equal(text, out);
}

static void names_stay_as_they_are(void **state)
{
    expect(LK_TEXT_KIND_NAME, "", "");
    expect(LK_TEXT_KIND_NAME, "node-7.rack_2.example.org", "node-7.rack_2.example.org");
    expect(LK_TEXT_KIND_NAME, "g\xc3\xb6ttingen", "g\xc3\xb6ttingen");
    expect(LK_TEXT_KIND_NAME, "\xe8\xa8\x88\xe7\xae\x97", "\xe8\xa8\x88\xe7\xae\x97");
}

static void names_have_no_other_characters(void **state)
{
    expect(LK_TEXT_KIND_NAME, "\x1b[2J\x1b]0;title\a", "??2J??0?title?");
    expect(LK_TEXT_KIND_NAME, "a\nrank 0: done", "a?rank?0??done");
    expect(LK_TEXT_KIND_NAME,
           "a\x7f\xc2\x9b"
           "b",
           "a??b");
    expect(LK_TEXT_KIND_NAME,
           "\xe2\x80\xae"
           "gpj",
           "?gpj"); /* U+202E reverses the text that follows */
}

static void invalid_utf8_is_replaced(void **state)
{
    expect(LK_TEXT_KIND_LINE, "\xff\xfe", "??");
    expect(LK_TEXT_KIND_LINE, "\xc0\xaf", "??");           /* an overlong '/' */
    expect(LK_TEXT_KIND_LINE, "\xed\xa0\x80", "???");      /* half of a surrogate pair */
    expect(LK_TEXT_KIND_LINE, "a\xe2\x82", "a??");         /* truncated */
    expect(LK_TEXT_KIND_LINE, "\xf4\x90\x80\x80", "????"); /* above the last code point */
    expect(LK_TEXT_KIND_LINE, "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
}

static void lines_keep_printable_characters(void **state)
{
    expect(LK_TEXT_KIND_LINE, "rank 2 (host b): \"no\" \xe2\x82\xac", "rank 2 (host b): \"no\" \xe2\x82\xac");
    expect(LK_TEXT_KIND_LINE, "one\r\ntwo\t3", "one??two?3");
    expect(LK_TEXT_KIND_LINES, "one\ntwo\t\x1b[1m3\r", "one\ntwo\t?[1m3?");
}

static void a_name_has_letters_digits_and_what_is_allowed(void **state)
{
    assert_true(lk__text_is_name("aZ09_", 5, "_"));
    assert_true(lk__text_is_name("a-b.c", 5, "-."));
    assert_false(lk__text_is_name("", 5, "_"));
    assert_false(lk__text_is_name("abcdef", 5, "_"));
    assert_false(lk__text_is_name("a-b", 5, "_"));
    assert_false(lk__text_is_name("\xc3\xa4", 5, "_")); /* a letter, but not of ASCII */
}

static void amounts_have_three_digits_and_a_unit(void **state)
{
    static const struct {
        size_t bytes;
        const char *want;
    } rows[] = {{0, "0 B"},
                {999, "999 B"},
                {1000, "1.00 kB"},
                {37800000, "37.8 MB"},
                {999400000, "999 MB"},
                {999900000, "1.00 GB"},
                {225236500000, "225 GB"},
                {SIZE_MAX, "18447 PB"}};
    char text[LK_TEXT_AMOUNT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(lk__text_amount(rows[i].bytes, text), rows[i].want);
}

TEST_MAIN(NULL, NULL, TEST(names_stay_as_they_are), TEST(names_have_no_other_characters),
          TEST(invalid_utf8_is_replaced), TEST(lines_keep_printable_characters),
          TEST(a_name_has_letters_digits_and_what_is_allowed), TEST(amounts_have_three_digits_and_a_unit))
