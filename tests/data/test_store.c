/* test_store.c - memory that processes share for data files: a file is read once, every process gets its content or its
 * error, and a process that dies while it reads delays nobody. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "data/sets/store.h"

#include <stdatomic.h>
#include <sys/resource.h>

#include "data/fixture.h"
#include "data/sets/dataset.h"
#include "processes.h"

enum { SIDE = 28, COUNT = 50, HEADER = 16, RECORD = 3073, RECORDS = 20, SMALL = 10000 };

/* What all processes of a test see. */
typedef struct common {
    atomic_int reads, deaths;
    lk_store_offer offer;
    const char *folder;
    int processes;
} common;

static common *common_create(int processes)
{
    common *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c != MAP_FAILED);
    c->processes = processes;
    return c;
}

static lk_store_key small_key(void)
{
    return (lk_store_key){.device = 1, .inode = 2, .size = 3, .bytes = SMALL};
}

/* Bytes that gzip cannot shrink. */
static void pattern(uint8_t *out, size_t bytes, uint32_t salt)
{
    for (size_t i = 0; i < bytes; i++) {
        salt = salt * 1664525u + 1013904223u;
        out[i] = (uint8_t)(salt >> 24);
    }
}

static lk_status count_read(void *arg, uint8_t *block)
{
    common *c = arg;
    atomic_fetch_add(&c->reads, 1);
    pattern(block, SMALL, 0);
    return LK_OK;
}

static lk_status fail_read(void *arg, uint8_t *block)
{
    common *c = arg;
    memset(block, 1, SMALL);
    return lk__fail(LK_STATUS_FORMAT, "read %d is damaged", atomic_fetch_add(&c->reads, 1));
}

/* The first reader dies with half of its work done. */
static lk_status die_once(void *arg, uint8_t *block)
{
    common *c = arg;
    if (atomic_fetch_add(&c->deaths, 1) == 0) {
        memset(block, 1, SMALL / 2);
        raise(SIGKILL);
    }
    return count_read(arg, block);
}

static void expect_small(lk_store *store, common *c, lk_store_read_fn read)
{
    uint8_t wanted[SMALL];
    const uint8_t *content = NULL;
    lk_store_key key = small_key();
    pattern(wanted, SMALL, 0);
    CHECK_OK(lk__store_get(store, &key, read, c, &content));
    CHECK(content != NULL && memcmp(content, wanted, SMALL) == 0);
}

static void get_small(int number, void *arg)
{
    common *c = arg;
    lk_store *store;
    CHECK_OK(lk__store_open(&c->offer, &store));
    expect_small(store, c, count_read);
    expect_small(store, c, count_read);
    lk__store_destroy(store);
}

static lk_store *make_small(common *c)
{
    lk_store *store;
    lk_store_key key = small_key();
    assert_ok(lk__store_create(&key, 1, &store));
    c->offer = lk__store_offer(store);
    return store;
}

static const int sizes[] = {1, 2, 3, 8};

static void test_once(void **state)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        common *c = common_create(sizes[i]);
        lk_store *store = make_small(c);
        assert_true(processes_run(c->processes, get_small, c, 0));
        assert_int_equal(c->reads, 1);
        expect_small(store, c, fail_read);
        lk__store_destroy(store);
        munmap(c, sizeof *c);
    }
}

static void *get_in_thread(void *arg)
{
    get_small(0, arg);
    return NULL;
}

static void test_threads(void **state)
{
    common *c = common_create(1);
    lk_store *store = make_small(c);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, c), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c->reads, 1);
    lk__store_destroy(store);
    munmap(c, sizeof *c);
}

static void get_failure(int number, void *arg)
{
    common *c = arg;
    lk_store *store;
    lk_store_key key = small_key();
    const uint8_t *content = NULL;
    CHECK_OK(lk__store_open(&c->offer, &store));
    CHECK_FAILS(lk__store_get(store, &key, fail_read, c, &content), LK_STATUS_FORMAT, "is damaged");
    CHECK(content == NULL);
    lk__store_destroy(store);
}

/* Every process reads a file that cannot be read, and finds its error. A later one may find it mended. */
static void test_failure(void **state)
{
    common *c = common_create(3);
    lk_store *store = make_small(c);
    assert_true(processes_run(c->processes, get_failure, c, 0));
    assert_int_equal(c->reads, 3);
    expect_small(store, c, count_read);
    lk__store_destroy(store);
    munmap(c, sizeof *c);
}

static void get_or_die(int number, void *arg)
{
    common *c = arg;
    lk_store *store;
    CHECK_OK(lk__store_open(&c->offer, &store));
    expect_small(store, c, die_once);
    lk__store_destroy(store);
}

static void test_death(void **state)
{
    common *c = common_create(3);
    lk_store *store = make_small(c);
    pid_t pids[3];
    int killed = 0, done = 0;
    for (int i = 0; i < 3; i++)
        pids[i] = process_start(get_or_die, i, c);
    for (int i = 0; i < 3; i++) {
        int ended = process_wait(pids[i]);
        killed += ended == 128 + SIGKILL;
        done += ended == 0;
    }
    assert_int_equal(killed, 1);
    assert_int_equal(done, 2);
    assert_int_equal(c->reads, 1);
    lk__store_destroy(store);
    munmap(c, sizeof *c);
}

static void test_other_file(void **state)
{
    common *c = common_create(1);
    lk_store *store = make_small(c);
    const uint8_t *content = (const uint8_t *)c;
    lk_store_key other = small_key(), none = {0};
    other.nanoseconds++;
    assert_ok(lk__store_get(store, &other, count_read, c, &content));
    assert_null(content);
    assert_ok(lk__store_get(store, &none, count_read, c, &content));
    assert_null(content);
    assert_int_equal(c->reads, 0);
    lk__store_destroy(store);
    munmap(c, sizeof *c);
}

/* A limit on file sizes means that there is no store, not a signal. */
static void test_limit(void **state)
{
    struct rlimit old;
    lk_store *store;
    lk_store_key key = small_key();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max}), 0);
    lk_status status = lk__store_create(&key, 1, &store);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(status, LK_STATUS_IO, "File too large");
}

static void test_offers(void **state)
{
    common *c = common_create(1);
    lk_store *store = make_small(c), *opened;
    lk_store_offer none = {0}, other = c->offer, large = c->offer, small = c->offer, away = c->offer;
    other.inode++;
    large.bytes += 4096;
    small.bytes = 8;
    away.fd += 100;
    assert_int_equal(lk__store_open(&none, &opened), LK_STATUS_IO);
    assert_int_equal(lk__store_open(&other, &opened), LK_STATUS_IO);
    assert_int_equal(lk__store_open(&large, &opened), LK_STATUS_IO);
    assert_int_equal(lk__store_open(&small, &opened), LK_STATUS_IO);
    assert_int_equal(lk__store_open(&away, &opened), LK_STATUS_IO);
    lk__store_destroy(store);
    assert_int_equal(lk__store_open(&c->offer, &opened), LK_STATUS_IO);
    lk__store_destroy(NULL);
    munmap(c, sizeof *c);
}

/* A folder of IDX files whose images are gzipped, and of CIFAR files, both with pseudo-random samples. */
static void put_data(const folder *f)
{
    uint8_t images[HEADER + COUNT * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT}, records[RECORDS * RECORD];
    pattern(images + HEADER, sizeof images - HEADER, 5);
    for (size_t i = 0; i < COUNT; i++)
        labels[8 + i] = (uint8_t)(i * 7 % 10);
    put(f, "mnist/train-images-idx3-ubyte.gz", images, sizeof images);
    put(f, "mnist/train-labels-idx1-ubyte.gz", labels, sizeof labels);
    for (unsigned file = 1; file <= 5; file++) {
        char name[64];
        pattern(records, sizeof records, file);
        for (size_t i = 0; i < RECORDS; i++)
            records[i * RECORD] = (uint8_t)((i + file) % 10);
        snprintf(name, sizeof name, "cifar10/data_batch_%u.bin", file);
        put(f, name, records, sizeof records);
    }
}

static void expect_equal(const lk_dataset *a, const lk_dataset *b)
{
    const lk_dataset_info *info = lk_dataset_get_info(a);
    uint8_t x[3072], y[3072];
    CHECK(info->count == lk_dataset_get_info(b)->count && info->classes == lk_dataset_get_info(b)->classes);
    for (size_t i = 0; i < info->count; i++) {
        int32_t p = -1, q = -2;
        CHECK_OK(lk_dataset_get(a, i, x, &p));
        CHECK_OK(lk_dataset_get(b, i, y, &q));
        CHECK(p == q && memcmp(x, y, info->channels * info->height * info->width) == 0);
    }
    CHECK(lk__dataset_fingerprint(a) == lk__dataset_fingerprint(b));
    uint64_t p = 1, q = 2;
    CHECK_OK(lk__dataset_hash_files(a, &p));
    CHECK_OK(lk__dataset_hash_files(b, &q));
    CHECK(p == q && p != 0);
}

static const char *const names[] = {"mnist", "cifar10"};

static void compare_data(int number, void *arg)
{
    common *c = arg;
    lk_store *store;
    CHECK_OK(lk__store_open(&c->offer, &store));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        lk_dataset *shared, *own;
        CHECK_OK(lk_dataset_open(names[i], c->folder, LK_SPLIT_TRAIN, &own));
        CHECK_OK(lk__dataset_open_idle(names[i], c->folder, LK_SPLIT_TRAIN, &shared));
        CHECK_OK(lk__dataset_begin(shared, store, number, c->processes));
        expect_equal(shared, own);
        lk_dataset_destroy(shared);
        lk_dataset_destroy(own);
    }
    lk__store_destroy(store);
}

/* Processes that are started have it, too, and a search for leaks must find it there. */
static lk_store *volatile made;

static lk_store *make_store(const char *dir, common *c)
{
    lk_store_key keys[LK_STORE_MAX_FILES];
    lk_store *store;
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        lk_dataset *data;
        assert_ok(lk__dataset_open_idle(names[i], dir, LK_SPLIT_TRAIN, &data));
        lk__dataset_keys(data, keys, &count);
        lk_dataset_destroy(data);
    }
    assert_int_equal(count, 6);
    assert_ok(lk__store_create(keys, count, &store));
    c->offer = lk__store_offer(store);
    c->folder = dir;
    made = store;
    return store;
}

static void test_data_sets(void **state)
{
    folder f = folder_create();
    put_data(&f);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        common *c = common_create(sizes[i]);
        lk_store *store = make_store(f.path, c);
        assert_true(processes_run(c->processes, compare_data, c, 0));
        lk__store_destroy(store);
        munmap(c, sizeof *c);
    }
    folder_destroy(&f);
}

/* The message of a damaged file is that of a process alone. */
static void expect_damage(int number, void *arg)
{
    common *c = arg;
    lk_store *store;
    CHECK_OK(lk__store_open(&c->offer, &store));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char alone[1024] = "", shared[1024] = "", sample[3072];
        lk_dataset *data;
        int32_t label;
        if (lk_dataset_open(names[i], c->folder, LK_SPLIT_TRAIN, &data) == LK_OK) {
            CHECK(lk_dataset_get(data, 0, sample, &label) == LK_STATUS_FORMAT);
            snprintf(alone, sizeof alone, "%s", lk_error_detail());
            lk_dataset_destroy(data);
        } else {
            snprintf(alone, sizeof alone, "%s", lk_error_detail());
        }
        CHECK_OK(lk__dataset_open_idle(names[i], c->folder, LK_SPLIT_TRAIN, &data));
        if (lk__dataset_begin(data, store, number, c->processes) == LK_OK)
            CHECK(lk_dataset_get(data, 0, sample, &label) == LK_STATUS_FORMAT);
        snprintf(shared, sizeof shared, "%s", lk_error_detail());
        CHECK(strcmp(alone, shared) == 0);
        CHECK_TEXT(shared, c->folder);
        lk_dataset_destroy(data);
    }
    lk__store_destroy(store);
}

/* Inverts a byte; a negative position counts from the end of the file. */
static void flip(const char *dir, const char *name, long at)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_true(fputc(byte ^ 0xff, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

static void test_damaged(void **state)
{
    folder f = folder_create();
    common *c = common_create(3);
    put_data(&f);
    flip(f.path, "mnist/train-images-idx3-ubyte.gz", -6); /* the checksum */
    flip(f.path, "cifar10/data_batch_3.bin", 2 * RECORD);
    lk_store *store = make_store(f.path, c);
    assert_true(processes_run(c->processes, expect_damage, c, 0));
    lk__store_destroy(store);
    munmap(c, sizeof *c);
    folder_destroy(&f);
}

/* A file that was replaced after the store was made has no block in it, and is read. */
static void test_replaced(void **state)
{
    folder f = folder_create();
    common *c = common_create(1);
    put_data(&f);
    lk_store *store = make_store(f.path, c);
    flip(f.path, "cifar10/data_batch_2.bin", 10);
    assert_true(processes_run(1, compare_data, c, 0));
    lk__store_destroy(store);
    munmap(c, sizeof *c);
    folder_destroy(&f);
}

TEST_MAIN(NULL, NULL, TEST(test_once), TEST(test_threads), TEST(test_failure), TEST(test_death), TEST(test_other_file),
          TEST(test_limit), TEST(test_offers), TEST(test_data_sets), TEST(test_damaged), TEST(test_replaced))
