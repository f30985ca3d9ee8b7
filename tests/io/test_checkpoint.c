/* test_checkpoint.c - checkpoints: loading gives what was saved, every damage is found and named, and a
 * failed save does not replace a good checkpoint. */
#define _GNU_SOURCE
#include "state_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"

enum { MAX_FILE = 1 << 16 };
static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "checkpoint.json"};

/* A path below the test's folder; valid until the fourth call after this one. */
static const char *at(const char *name, const char *file)
{
    char both[256];
    snprintf(both, sizeof both, "%s%s%s", name, file ? "/" : "", file ? file : "");
    return temp_path(both);
}

static bool there(const char *name)
{
    struct stat info;
    return lstat(at(name, NULL), &info) == 0;
}

static lk_state *make_optimizer(int64_t steps, size_t size)
{
    lk_state *state = NULL;
    lk_state_entry *entry;
    assert_ok(lk_state_create(&state));
    assert_ok(lk_state_add(state, "steps", LK_DTYPE_I64, 0, NULL, &entry));
    *(int64_t *)entry->data = steps;
    assert_ok(lk_state_add(state, "exp_avg.conv1.weight", LK_DTYPE_F32, 1, &size, &entry));
    fill(entry, (size_t)steps);
    return state;
}

/* Checkpoints of one value are equal; those of different values differ in every tensor. */
static lk_checkpoint *make(int value)
{
    lk_checkpoint *checkpoint = NULL;
    lk_state *model = make_samples(SMALL_SAMPLES);
    for (size_t i = 0; i < lk_state_count(model); i++) {
        const lk_state_entry *entry = lk_state_at(model, i);
        for (size_t k = 0; k < entry->bytes; k++)
            ((unsigned char *)entry->data)[k] ^= (unsigned char)value;
    }
    assert_ok(lk_checkpoint_create(model, make_optimizer(value, 40), &checkpoint));
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    assert_ok(lk_checkpoint_set_note(checkpoint, "step", text));
    assert_ok(lk_checkpoint_set_note(checkpoint, "--model", "cnn \"of\"\nh\xc3\xa9llo\\"));
    return checkpoint;
}

static void put(const char *name, int value)
{
    lk_checkpoint *checkpoint = make(value);
    assert_ok(lk_checkpoint_save(checkpoint, at(name, NULL)));
    lk_checkpoint_destroy(checkpoint);
}

static void check_is(const char *name, int value)
{
    lk_checkpoint *wanted = make(value), *got = NULL;
    assert_ok(lk_checkpoint_verify(at(name, NULL)));
    assert_ok(lk_checkpoint_load(at(name, NULL), &got));
    assert_int_equal(lk_state_compare(lk_checkpoint_model(wanted), lk_checkpoint_model(got), NULL, NULL), 0);
    assert_int_equal(lk_state_compare(lk_checkpoint_optimizer(wanted), lk_checkpoint_optimizer(got), NULL, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        const char *note = lk_checkpoint_note_name(wanted, i), *same = lk_checkpoint_note_name(got, i);
        assert_int_equal(note == NULL, i == 2);
        assert_int_equal(same == NULL, i == 2);
        if (!note)
            break;
        assert_string_equal(same, note);
        assert_string_equal(lk_checkpoint_note(got, note), lk_checkpoint_note(wanted, note));
    }
    lk_checkpoint_destroy(wanted);
    lk_checkpoint_destroy(got);
}

/* Number of entries of a folder, hidden ones included. */
static size_t entries(const char *name)
{
    size_t count = 0;
    DIR *dir = opendir(at(name, NULL));
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static void test_notes(void **ctx)
{
    lk_checkpoint *c = NULL;
    assert_ok(lk_checkpoint_create(NULL, NULL, &c));
    assert_null(lk_checkpoint_note_name(c, 0));
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(lk_checkpoint_set_note(c, name, "old"));
    }
    assert_ok(lk_checkpoint_set_note(c, "n7", ""));
    assert_string_equal(lk_checkpoint_note(c, "n7"), "");
    assert_string_equal(lk_checkpoint_note(c, "n99"), "old");
    assert_null(lk_checkpoint_note(c, "n100"));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_string_equal(lk_checkpoint_note_name(c, (size_t)i), name);
    }
    assert_null(lk_checkpoint_note_name(c, 100));
    assert_int_equal(lk_checkpoint_set_note(c, "", "x"), LK_STATUS_USAGE);
    assert_int_equal(lk_checkpoint_set_note(c, "x", "\xff"), LK_STATUS_USAGE);
    assert_int_equal(lk_checkpoint_set_note(c, "\xc3", "x"), LK_STATUS_USAGE);
    assert_null(lk_checkpoint_model(c));
    assert_int_equal(lk_checkpoint_save(c, at("none", NULL)), LK_STATUS_USAGE);
    assert_false(there("none"));
    lk_checkpoint_destroy(c);
    lk_checkpoint_destroy(NULL);
}

static void test_round_trip(void **ctx)
{
    put("one", 5);
    check_is("one", 5);
    assert_int_equal(entries("one"), 3);
    /* Saving the same checkpoint gives the same bytes. */
    put("two", 5);
    for (size_t i = 0; i < 3; i++) {
        static unsigned char a[MAX_FILE], b[MAX_FILE];
        size_t bytes = get_file(at("one", files[i]), a, sizeof a);
        assert_int_equal(get_file(at("two", files[i]), b, sizeof b), bytes);
        assert_memory_equal(a, b, bytes);
    }
    lk_checkpoint *notes = NULL;
    assert_ok(lk_checkpoint_load_notes(at("one/", NULL), &notes));
    assert_string_equal(lk_checkpoint_note(notes, "step"), "5");
    assert_null(lk_checkpoint_model(notes));
    assert_null(lk_checkpoint_optimizer(notes));
    lk_checkpoint_destroy(notes);
    lk_checkpoint_size size;
    assert_ok(lk__checkpoint_verify(at("one", NULL), &size));
    assert_int_equal(size.model, SMALL_SAMPLES);
    assert_int_equal(size.optimizer, 2);
    temp_folder_remove(at("one", NULL));
    temp_folder_remove(at("two", NULL));
}

static void test_empty_states(void **ctx)
{
    lk_state *a = NULL, *b = NULL;
    lk_checkpoint *c = NULL;
    assert_ok(lk_state_create(&a));
    assert_ok(lk_state_create(&b));
    assert_ok(lk_checkpoint_create(a, b, &c));
    assert_ok(lk_checkpoint_save(c, at("empty", NULL)));
    lk_checkpoint_destroy(c);
    assert_ok(lk_checkpoint_load(at("empty", NULL), &c));
    assert_int_equal(lk_state_count(lk_checkpoint_model(c)), 0);
    lk_checkpoint_destroy(c);
    temp_folder_remove(at("empty", NULL));
}

/* lk_state_load of a checkpoint gives its model. */
static void test_as_model(void **ctx)
{
    assert_int_equal(mkdir(at("dir", NULL), 0777), 0);
    lk_state *state = NULL;
    assert_fails(lk_state_load(at("dir", NULL), &state), LK_STATUS_FORMAT, "is a folder, but no checkpoint");
    put("dir/step-000000002", 2);
    put("dir/step-000000010", 10);
    lk_state *wanted = load(at("dir", "step-000000002/model.safetensors"));
    state = load(at("dir", "step-000000002"));
    assert_int_equal(lk_state_compare(wanted, state, NULL, NULL), 0);
    lk_state_destroy(wanted);
    lk_state_destroy(state);
    assert_fails(lk_state_load(at("dir", NULL), &state), LK_STATUS_USAGE, "2 checkpoints");
    assert_detail("dir/step-000000010");
    temp_folder_remove(at("dir", NULL));
}

static void check_found(const char *name, const char *what)
{
    lk_checkpoint *c = NULL;
    lk_status status = lk_checkpoint_verify(at(name, NULL));
    if (status != LK_STATUS_FORMAT)
        fail_msg("%s: verify gives %d", what, (int)status);
    assert_detail(name);
    if (lk_checkpoint_load(at(name, NULL), &c) != LK_STATUS_FORMAT)
        fail_msg("%s: load gives it", what);
    assert_null(c);
}

static void test_bits(void **ctx)
{
    put("bits", 3);
    for (size_t f = 0; f < 3; f++) {
        static unsigned char bytes[MAX_FILE];
        size_t count = get_file(at("bits", files[f]), bytes, sizeof bytes);
        int fd = open(at("bits", files[f]), O_WRONLY);
        assert_true(fd >= 0);
        for (size_t bit = 0; bit < 8 * count; bit++) {
            unsigned char byte = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
            char what[64];
            snprintf(what, sizeof what, "%s, bit %zu", files[f], bit);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
            check_found("bits", what);
            assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
    }
    check_is("bits", 3);
    temp_folder_remove(at("bits", NULL));
}

static void test_cut(void **ctx)
{
    put("cut", 3);
    for (size_t f = 0; f < 3; f++) {
        static unsigned char bytes[MAX_FILE];
        size_t count = get_file(at("cut", files[f]), bytes, sizeof bytes);
        for (size_t length = 0; length < count; length += length < 40 || length > count - 40 ? 1 : 13) {
            temp_write(at("cut", files[f]), bytes, length);
            char what[64];
            snprintf(what, sizeof what, "%s, cut to %zu", files[f], length);
            check_found("cut", what);
            assert_detail(files[f]);
            if (f < 2)
                assert_detail("cut short");
        }
        bytes[count] = 0;
        temp_write(at("cut", files[f]), bytes, count + 1);
        check_found("cut", "a byte too many");
        temp_write(at("cut", files[f]), bytes, count);
    }
    check_is("cut", 3);
    temp_folder_remove(at("cut", NULL));
}

/* Flips the lowest bit of a byte of the file; a negative offset counts from the end. */
static void flip(const char *path, long offset)
{
    int fd = open(path, O_RDWR);
    struct stat info;
    unsigned char byte;
    assert_int_equal(fstat(fd, &info), 0);
    off_t from_start = offset < 0 ? info.st_size + offset : offset;
    assert_int_equal(pread(fd, &byte, 1, from_start), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, from_start), 1);
    close(fd);
}

/* The message names the damaged file, and the tensor if it is known. */
static void test_names(void **ctx)
{
    put("names", 3);
    const char *optimizer = "names/optimizer.safetensors";
    /* The file ends with exp_avg; steps has larger elements, so it comes before. */
    flip(at(optimizer, NULL), -1);
    check_found("names", "a tensor");
    assert_detail("optimizer.safetensors: tensor \"exp_avg.conv1.weight\" differs from what was saved");
    flip(at(optimizer, NULL), -1);
    flip(at(optimizer, NULL), 20);
    check_found("names", "a header");
    assert_detail("optimizer.safetensors: its header differs");
    flip(at(optimizer, NULL), 20);
    flip(at("names/model.safetensors", NULL), -1);
    flip(at("names/model.safetensors", NULL), -100);
    check_found("names", "two tensors");
    assert_detail("and 1 more differ");
    flip(at("names/model.safetensors", NULL), -1);
    flip(at("names/model.safetensors", NULL), -100);
    flip(at("names/checkpoint.json", NULL), 70);
    check_found("names", "the notes");
    assert_detail("checkpoint.json is damaged: it differs from what was saved");
    flip(at("names/checkpoint.json", NULL), 70);
    check_is("names", 3);
    for (size_t f = 0; f < 2; f++) {
        assert_int_equal(rename(at("names", files[f]), at("hidden", NULL)), 0);
        check_found("names", "missing");
        assert_detail(files[f]);
        assert_detail("is missing");
        assert_int_equal(rename(at("hidden", NULL), at("names", files[f])), 0);
    }
    assert_int_equal(unlink(at("names", files[2])), 0);
    assert_fails(lk_checkpoint_verify(at("names", NULL)), LK_STATUS_NOT_FOUND, "is no checkpoint");
    assert_int_equal(lk_checkpoint_verify(at("absent", NULL)), LK_STATUS_NOT_FOUND);
    temp_folder_remove(at("names", NULL));
}

static void test_swapped(void **ctx)
{
    put("a", 3);
    put("b", 4);
    static unsigned char bytes[MAX_FILE];
    size_t count = get_file(at("b", files[0]), bytes, sizeof bytes);
    temp_write(at("a", files[0]), bytes, count);
    check_found("a", "the model of another step");
    assert_detail("is another file than was saved: its tensors have the same names and shapes");
    lk_state *other = make_optimizer(1, 3);
    assert_ok(lk_state_save(other, at("a", files[0])));
    lk_state_destroy(other);
    check_found("a", "another model");
    assert_detail("model.safetensors is another file than was saved: it has 2 tensors with \"steps\" i64 []");
    temp_folder_remove(at("a", NULL));
    temp_folder_remove(at("b", NULL));
}

/* A file of the same size with other tensors. */
static void test_swapped_alike(void **ctx)
{
    lk_state *states[4];
    static const char *const names[] = {"conv1", "steps", "conv2", "steps"};
    lk_checkpoint *c = NULL;
    for (size_t i = 0; i < 4; i++) {
        lk_state_entry *entry;
        assert_ok(lk_state_create(&states[i]));
        assert_ok(lk_state_add(states[i], names[i], LK_DTYPE_F32, 1, &(size_t){10}, &entry));
        fill(entry, i);
    }
    assert_ok(lk_checkpoint_create(states[0], states[1], &c));
    assert_ok(lk_checkpoint_save(c, at("alike", NULL)));
    lk_checkpoint_destroy(c);
    assert_ok(lk_state_save(states[2], at("alike", files[0])));
    check_found("alike", "another model of one size");
    assert_detail("model.safetensors is another file than was saved: it has 1 tensors with \"conv2\" f32 [10]");
    lk_state_destroy(states[2]);
    lk_state_destroy(states[3]);
    temp_folder_remove(at("alike", NULL));
}

static void test_versions(void **ctx)
{
    put("later", 3);
    static unsigned char bytes[MAX_FILE];
    size_t count = get_file(at("later", files[2]), bytes, sizeof bytes);
    unsigned char *version = memmem(bytes, count, "\"version\": 1", 12);
    assert_non_null(version);
    version[11] = '2';
    temp_write(at("later", files[2]), bytes, count);
    check_found("later", "a version that is altered");
    assert_detail("checkpoint.json is damaged: it says that a later version of lockstep made it, of format 2");
    /* With a right checksum the version is no damage. */
    enum { TAIL = sizeof "\"checksum\": \"0123456789abcdef\"\n}\n" - 1 };
    snprintf((char *)bytes + count - TAIL, TAIL + 1, "\"checksum\": \"%016llx\"\n}\n",
             (unsigned long long)lk__hash(bytes, count - TAIL, 0));
    temp_write(at("later", files[2]), bytes, count);
    assert_int_equal(lk_checkpoint_verify(at("later", NULL)), LK_STATUS_UNSUPPORTED);
    assert_detail(
        "checkpoint.json was made by a later version of lockstep: it has format 2, and this one reads up to 1; update");
    version[11] = '0';
    temp_write(at("later", files[2]), bytes, count);
    check_found("later", "version 0");
    assert_detail("its version cannot be read");
    temp_write(at("later", files[2]), "{}", 2);
    check_found("later", "other JSON");
    assert_detail("not of a checkpoint");
    temp_folder_remove(at("later", NULL));
}

static void test_replace(void **ctx)
{
    assert_int_equal(mkdir(at("dir", NULL), 0777), 0);
    put("dir/c", 1);
    put("dir/c", 2);
    check_is("dir/c", 2);
    put("dir/c///", 3);
    check_is("dir/c", 3);
    /* An incomplete checkpoint is replaced, too; other files and folders are not. */
    assert_int_equal(unlink(at("dir/c", files[2])), 0);
    put("dir/c", 4);
    check_is("dir/c", 4);
    assert_int_equal(entries("dir"), 1);
    lk_checkpoint *c = make(5);
    temp_write(at("dir/file", NULL), "x", 1);
    assert_fails(lk_checkpoint_save(c, at("dir/file", NULL)), LK_STATUS_USAGE, "not a folder");
    assert_int_equal(mkdir(at("dir/own", NULL), 0777), 0);
    temp_write(at("dir/own/thesis", NULL), "x", 1);
    assert_fails(lk_checkpoint_save(c, at("dir/own", NULL)), LK_STATUS_USAGE, "\"thesis\"");
    assert_fails(lk_checkpoint_save(c, at("absent/c", NULL)), LK_STATUS_NOT_FOUND, "absent");
    assert_int_equal(lk_checkpoint_save(c, ""), LK_STATUS_USAGE);
    lk_checkpoint_destroy(c);
    assert_int_equal(entries("dir"), 3);
    assert_int_equal(entries("dir/own"), 1);
    temp_folder_remove(at("dir", NULL));
}

static void test_list(void **ctx)
{
    static const uint64_t steps[] = {UINT64_MAX, 500, 2, 1000000000, 40};
    uint64_t *found = NULL;
    size_t count = 9;
    assert_ok(lk__checkpoint_list(at("absent", NULL), &found, &count));
    assert_int_equal(count, 0);
    lk__mem_free(found);
    assert_int_equal(mkdir(at("dir", NULL), 0777), 0);
    for (size_t i = 0; i < 5; i++) {
        char path[512];
        assert_ok(lk__checkpoint_path(at("dir", NULL), steps[i], path, sizeof path));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    static const char *const others[] = {"step-1",     "step-0000000500", "step-00000050x",
                                         "step-",      "xstep-000000001", "step-99999999999999999999999",
                                         ".lk-1-1.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(mkdir(at("dir", others[i]), 0777), 0);
    assert_ok(lk__checkpoint_list(at("dir", NULL), &found, &count));
    assert_int_equal(count, 5);
    static const uint64_t sorted[] = {2, 40, 500, 1000000000, UINT64_MAX};
    assert_memory_equal(found, sorted, sizeof sorted);
    lk__mem_free(found);
    assert_true(there("dir/step-000000500"));
    assert_true(there("dir/step-1000000000"));
    char small[8];
    assert_int_equal(lk__checkpoint_path("dir", 1, small, sizeof small), LK_STATUS_USAGE);
    temp_folder_remove(at("dir", NULL));
}

static void test_remove(void **ctx)
{
    assert_int_equal(mkdir(at("dir", NULL), 0777), 0);
    put("dir/step-000000001", 1);
    put("dir/step-000000002", 2);
    assert_ok(lk__checkpoint_remove(at("dir", NULL), 1));
    assert_int_equal(entries("dir"), 1);
    check_is("dir/step-000000002", 2);
    assert_int_equal(lk__checkpoint_remove(at("dir", NULL), 1), LK_STATUS_NOT_FOUND);
    /* Leftovers of a crash, and a file that is not the library's. */
    put("dir/.lk-12-3.tmp", 5);
    assert_int_equal(mkdir(at("dir/.lk-12-4.tmp", NULL), 0777), 0);
    temp_write(at("dir/.lk-12-5.tmp", NULL), "x", 1);
    assert_int_equal(symlink("step-000000002", at("dir/.lk-12-6.tmp", NULL)), 0);
    temp_write(at("dir/.lock", NULL), "", 0);
    assert_ok(lk__checkpoint_sweep(at("dir", NULL)));
    assert_int_equal(entries("dir"), 2);
    assert_true(there("dir/.lock"));
    check_is("dir/step-000000002", 2);
    assert_ok(lk__checkpoint_sweep(at("absent", NULL)));
    temp_folder_remove(at("dir", NULL));
}

static void test_best(void **ctx)
{
    uint64_t step = 77;
    assert_int_equal(mkdir(at("dir", NULL), 0777), 0);
    assert_false(lk__checkpoint_best(at("dir", NULL), &step));
    put("dir/step-000000001", 1);
    put("dir/step-000000002", 2);
    assert_ok(lk__checkpoint_set_best(at("dir", NULL), 1));
    assert_true(lk__checkpoint_best(at("dir", NULL), &step));
    assert_int_equal(step, 1);
    check_is("dir/best", 1);
    assert_ok(lk__checkpoint_set_best(at("dir/", NULL), 2));
    assert_true(lk__checkpoint_best(at("dir/", NULL), &step));
    assert_int_equal(step, 2);
    check_is("dir/best", 2);
    assert_int_equal(entries("dir"), 3);
    /* A link is not replaced by a folder, and a dangling link is ignored. */
    lk_checkpoint *c = make(3);
    assert_int_equal(lk_checkpoint_save(c, at("dir/best", NULL)), LK_STATUS_USAGE);
    lk_checkpoint_destroy(c);
    assert_ok(lk__checkpoint_remove(at("dir", NULL), 2));
    assert_false(lk__checkpoint_best(at("dir", NULL), &step));
    assert_int_equal(step, 2);
    temp_folder_remove(at("dir", NULL));
}

/* A folder that cannot be opened because no descriptor is free is an error; a folder without read permission
 * is skipped. */
static void test_sync(void **ctx)
{
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_ok(lk__folder_sync(temp_folder));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    lk_status status = lk__folder_sync(temp_folder);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_fails(status, LK_STATUS_IO, "cannot sync the folder ");
    assert_int_equal(lk__folder_sync(at("absent", NULL)), LK_STATUS_IO);
    assert_int_equal(mkdir(at("closed", NULL), 0300), 0);
    assert_ok(lk__folder_sync(at("closed", NULL)));
    assert_int_equal(rmdir(at("closed", NULL)), 0);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_notes), TEST(test_round_trip), TEST(test_empty_states),
          TEST(test_as_model), TEST(test_bits), TEST(test_cut), TEST(test_names), TEST(test_swapped),
          TEST(test_swapped_alike), TEST(test_versions), TEST(test_replace), TEST(test_list), TEST(test_remove),
          TEST(test_best), TEST(test_sync))
