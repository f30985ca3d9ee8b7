/* test_data_notes.c - the notes of a checkpoint about a folder of images. Changed contents are refused,
 * changed times are not. Of a folder that is too large only a part is read, and changed times are
 * reported. */
#include "data/fixture.h"

#include <fcntl.h>
#include <time.h>

#include <lockstep/checkpoint.h>

#include "train/parts.h"

enum { FILES = 1500, OLD = 1000000000 };

/* Writes a file that nobody decodes, with a fixed time. */
static void put_image(const folder *f, int number, const char *text)
{
    char name[64], path[512];
    snprintf(name, sizeof name, "train/%s/%04d.png", number % 2 ? "cat" : "dog", number);
    put(f, name, text, strlen(text));
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    struct timespec times[2] = {{.tv_sec = OLD}, {.tv_sec = OLD}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void touch(const folder *f, int number)
{
    char path[512];
    snprintf(path, sizeof path, "%s/train/%s/%04d.png", f->path, number % 2 ? "cat" : "dog", number);
    struct timespec times[2] = {{.tv_sec = OLD + 5}, {.tv_sec = OLD + 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static folder make_images(int count)
{
    folder f = folder_create();
    for (int i = 0; i < count; i++)
        put_image(&f, i, "some bytes");
    return f;
}

static lk_data_notes *notes_of(lk_dataset *data)
{
    lk_data_notes *notes;
    assert_ok(lk__data_notes_create(&notes));
    lk__data_notes_set(notes, data);
    return notes;
}

static lk_dataset *open_images(const folder *f)
{
    lk_dataset *data;
    assert_ok(lk_dataset_open(f->path, NULL, LK_SPLIT_TRAIN, &data));
    return data;
}

/* Makes a checkpoint with the notes of the data as they are now. */
static lk_checkpoint *note(const folder *f)
{
    lk_state *model, *optimizer;
    lk_checkpoint *checkpoint;
    lk_dataset *data = open_images(f);
    lk_data_notes *notes = notes_of(data);
    assert_ok(lk_state_create(&model));
    assert_ok(lk_state_create(&optimizer));
    assert_ok(lk_checkpoint_create(model, optimizer, &checkpoint));
    assert_ok(lk__data_notes_add(notes, checkpoint));
    lk__data_notes_destroy(notes);
    lk_dataset_destroy(data);
    return checkpoint;
}

static lk_status check(const folder *f, const lk_checkpoint *checkpoint, bool *touched)
{
    lk_train_opts opts = {.data = f->path, .resume = "run/step-000000007"};
    lk_dataset *data = open_images(f);
    lk_data_notes *notes = notes_of(data);
    assert_ok(lk__data_notes_read(notes));
    lk_status status = lk__data_notes_check(notes, &opts, checkpoint, touched);
    lk__data_notes_destroy(notes);
    lk_dataset_destroy(data);
    return status;
}

static void expect_changed(const folder *f, const lk_checkpoint *checkpoint)
{
    bool touched;
    assert_fails(check(f, checkpoint, &touched), LK_STATUS_MISMATCH, f->path);
    assert_detail("the content of at least one of its ");
    assert_detail("run/step-000000007");
    assert_detail("put the images back as they were");
}

static void test_all_are_read(void **state)
{
    bool touched = true;
    folder f = make_images(9);
    lk_checkpoint *checkpoint = note(&f);
    assert_null(lk_checkpoint_note(checkpoint, "data-times"));
    assert_ok(check(&f, checkpoint, &touched));
    for (int i = 0; i < 9; i++)
        touch(&f, i);
    assert_ok(check(&f, checkpoint, &touched));
    assert_false(touched);
    for (int i = 0; i < 9; i++) { /* one byte of each file */
        put_image(&f, i, "some bytez");
        expect_changed(&f, checkpoint);
        put_image(&f, i, "some bytes");
        assert_ok(check(&f, checkpoint, &touched));
    }
    lk_checkpoint_destroy(checkpoint);
    folder_destroy(&f);
}

static void test_a_part_is_read(void **state)
{
    bool touched = true;
    int found = 0;
    uint64_t limit = lk__dataset_contents_limit;
    lk__dataset_contents_limit = 100;
    folder f = make_images(FILES);
    lk_checkpoint *checkpoint = note(&f);
    assert_contains(lk_checkpoint_note(checkpoint, "data-contents"), " of 1024 of 1500 files");
    assert_ok(check(&f, checkpoint, &touched));
    assert_false(touched);
    touch(&f, 700);
    assert_ok(check(&f, checkpoint, &touched));
    assert_true(touched);
    /* Of two neighbours in the list at least one is read. */
    put_image(&f, 700, "some bytez");
    put_image(&f, 702, "some bytez");
    expect_changed(&f, checkpoint);
    put_image(&f, 700, "some bytes");
    put_image(&f, 702, "some bytes");
    /* The sizes of all files count. */
    for (int i = 700; i < 708; i++) {
        put_image(&f, i, "some more bytes");
        found += check(&f, checkpoint, &touched) == LK_STATUS_MISMATCH;
        put_image(&f, i, "some bytes");
    }
    assert_int_equal(found, 8);
    lk__dataset_contents_limit = limit;
    lk_checkpoint_destroy(checkpoint);
    folder_destroy(&f);
}

/* Earlier versions have no note of the contents. */
static void test_old_notes(void **state)
{
    bool touched = true;
    folder f = make_images(4);
    lk_checkpoint *checkpoint = note(&f), *old;
    lk_state *model, *optimizer;
    assert_ok(lk_state_create(&model));
    assert_ok(lk_state_create(&optimizer));
    assert_ok(lk_checkpoint_create(model, optimizer, &old));
    assert_ok(lk_checkpoint_set_note(old, "data", lk_checkpoint_note(checkpoint, "data")));
    assert_ok(check(&f, old, &touched));
    assert_false(touched);
    lk_checkpoint_destroy(old);
    lk_checkpoint_destroy(checkpoint);
    folder_destroy(&f);
}

static void test_gone(void **state)
{
    char path[512];
    folder f = make_images(4);
    lk_dataset *data = open_images(&f);
    lk_data_notes *notes = notes_of(data);
    snprintf(path, sizeof path, "%s/train/cat/0003.png", f.path);
    assert_int_equal(unlink(path), 0);
    assert_fails(lk__data_notes_read(notes), LK_STATUS_IO, path);
    assert_detail("it was there when the folder was listed");
    lk__data_notes_destroy(notes);
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

TEST_MAIN(NULL, NULL, TEST(test_all_are_read), TEST(test_a_part_is_read), TEST(test_old_notes), TEST(test_gone))
