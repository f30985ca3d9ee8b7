/* test_notes.c - notes of states in both formats of files: they come back, and change neither hash nor comparison. */
#include <lockstep/state.h>

#include "check.h"
#include "io/state/state_file.h"
#include "state_files.h"

static const char *const endings[] = {"notes.safetensors", "notes.pth"};
static const struct {
    const char *name, *text;
} texts[] = {{"model", "resnet18:cifar"}, {"a \"name\"\n", "h\xc3\xa9llo\\ \t\"x\""}, {"empty", ""}};

enum { TEXTS = COUNT_OF(texts) };

static void set(lk_state *state, const char *name, const char *text)
{
    assert_int_equal(lk_state_set_note(state, name, text), LK_OK);
}

static lk_state *noted(void)
{
    lk_state *state = make_samples(SMALL_SAMPLES);
    set(state, "model", "cnn"); /* set again below; it stays the first */
    for (size_t i = 0; i < TEXTS; i++)
        set(state, texts[i].name, texts[i].text);
    return state;
}

static void assert_noted(const lk_state *state)
{
    for (size_t i = 0; i < TEXTS; i++) {
        assert_string_equal(lk_state_note_name(state, i), texts[i].name);
        assert_string_equal(lk_state_note(state, texts[i].name), texts[i].text);
    }
    assert_null(lk_state_note_name(state, TEXTS));
    assert_null(lk_state_note(state, "other"));
}

static void test_notes_come_back(void **ctx)
{
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        lk_state *state = noted(), *plain = make_samples(SMALL_SAMPLES), *notes;
        assert_int_equal(lk_state_save(state, temp_path(endings[i])), LK_OK);
        lk_state *back = load(temp_path(endings[i]));
        assert_noted(back);
        assert_int_equal(lk_state_compare(back, plain, NULL, NULL), 0);
        assert_true(lk_state_hash(back) == lk_state_hash(plain));
        assert_int_equal(lk__state_file_notes(temp_path(endings[i]), &notes), LK_OK);
        assert_noted(notes);
        assert_int_equal(lk_state_count(notes), 0);
        lk_state_destroy(notes);
        lk_state_destroy(back);
        lk_state_destroy(plain);
        lk_state_destroy(state);
    }
}

/* A state without notes is written as before there were any. */
static void test_no_notes(void **ctx)
{
    lk_state *state = make_samples(SMALL_SAMPLES), *notes;
    static unsigned char bytes[8192];
    assert_int_equal(lk_state_save(state, temp_path(endings[0])), LK_OK);
    assert_true(get_file(temp_path(endings[0]), bytes, sizeof bytes) > 40);
    assert_memory_equal(bytes + 8, "{\"__metadata__\":{\"format\":\"pt\"},", 32);
    assert_int_equal(lk__state_file_notes(temp_path(endings[0]), &notes), LK_OK);
    assert_null(lk_state_note_name(notes, 0));
    lk_state_destroy(notes);
    assert_int_equal(lk__state_file_notes(temp_path("absent"), &notes), LK_OK);
    assert_null(lk_state_note_name(notes, 0));
    lk_state_destroy(notes);
    lk_state_destroy(state);
}

static void test_limits(void **ctx)
{
    lk_state *state;
    assert_int_equal(lk_state_create(&state), LK_OK);
    assert_fails(lk_state_set_note(state, "", "text"), LK_STATUS_USAGE, "must have a name");
    assert_fails(lk_state_set_note(state, "name", "\xff"), LK_STATUS_USAGE, "UTF-8");
    for (int i = 0; i < LK_MAX_STATE_NOTES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        set(state, name, "text");
    }
    assert_fails(lk_state_set_note(state, "more", "text"), LK_STATUS_USAGE, "at most");
    set(state, "n0", "again");
    assert_string_equal(lk_state_note(state, "n0"), "again");
    lk_state_destroy(state);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_notes_come_back), TEST(test_no_notes), TEST(test_limits))
