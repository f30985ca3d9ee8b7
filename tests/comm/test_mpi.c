/* test_mpi.c - which plug-in is chosen and how it is refused, the thread level, tags, and the end of MPI, with a
 * table that stands for an MPI library. tests/comm/mpi.sh runs real ones. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/mpi/load.h"
#include "comm/mpi/session.h"
#include "comm/mpi/share.h"
#include "processes.h"

/* What the table's functions were called for, in memory that parent and child share. */
typedef struct diary {
    _Atomic int started, finished, aborted, code;
} diary;
static diary *page;
static lk_mpi_level granted = LK_MPI_LEVEL_SERIALIZED;

static int fake_start(lk_mpi_level wanted, lk_mpi_place *out)
{
    CHECK(wanted == LK_MPI_LEVEL_SERIALIZED);
    page->started++;
    *out = (lk_mpi_place){.rank = 1, .size = 3, .tag_limit = 10, .level = granted, .library = "Fake MPI 1.0"};
    return 0;
}

static int refuse_start(lk_mpi_level wanted, lk_mpi_place *out)
{
    return 17;
}

static void fake_explain(int code, char *text, size_t bytes)
{
    snprintf(text, bytes, "fake error %d", code);
}

static int fake_finish(void)
{
    page->finished++;
    return 0;
}

static void fake_abort(int code)
{
    page->aborted++;
    page->code = code;
}

static const lk_mpi fake = {.version = LK_MPI_VERSION,
                            .name = "fake",
                            .start = fake_start,
                            .finish = fake_finish,
                            .abort = fake_abort,
                            .explain = fake_explain};

static void clear_variables(void)
{
    static const char *const names[] = {"LOCKSTEP_MPI", "LOCKSTEP_PLUGINS", "OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",    "PMI_RANK",         "PMI_SIZE"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        unsetenv(names[i]);
}

static void expect_choice(const char *variable, const char *value, const char *name)
{
    const lk_mpi_module *module = NULL;
    const char *because = NULL;
    setenv(variable, value, 1);
    assert_int_equal(lk__mpi_module_choose(&module, &because), LK_OK);
    assert_string_equal(module->name, name);
    assert_string_equal(because, variable);
}

static void launchers_choose_the_plugin(void **state)
{
    const lk_mpi_module *module = NULL;
    const char *because = NULL;
    clear_variables();
    assert_int_equal(lk__mpi_module_choose(&module, &because), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "mpirun -n 4"));
    expect_choice("PMI_SIZE", "4", "mpich");
    expect_choice("PMI_RANK", "0", "mpich");
    expect_choice("PMIX_RANK", "0", "openmpi");
    expect_choice("OMPI_COMM_WORLD_SIZE", "4", "openmpi");
    expect_choice("LOCKSTEP_MPI", "mpich", "mpich");
    setenv("LOCKSTEP_MPI", "lam", 1);
    assert_int_equal(lk__mpi_module_choose(&module, &because), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "'lam'"));
    clear_variables();
}

static void missing_plugins_are_named(void **state)
{
    const lk_mpi *mpi = NULL;
    clear_variables();
    setenv("LOCKSTEP_MPI", "openmpi", 1);
    setenv("LOCKSTEP_PLUGINS", "/nowhere", 1);
    assert_int_equal(lk__mpi_load(&mpi), LK_STATUS_NOT_FOUND);
    assert_non_null(strstr(lk_error_detail(), "lockstep-openmpi.so, is in none of these folders: /nowhere"));
    assert_non_null(strstr(lk_error_detail(), "libopenmpi-dev"));
    clear_variables();
}

static void mpi_is_due_where_it_is_asked_for(void **state)
{
    clear_variables();
    assert_true(lk__mpi_is_due("mpi"));
    assert_false(lk__mpi_is_due("tcp"));
    assert_false(lk__mpi_is_due("auto"));
    assert_false(lk__mpi_is_due(NULL));
    setenv("LOCKSTEP_BACKEND", "mpi", 1);
    assert_true(lk__mpi_is_due(NULL));
    assert_true(lk__mpi_is_due(""));
    assert_false(lk__mpi_is_due("auto"));
    unsetenv("LOCKSTEP_BACKEND");
}

/* A plug-in that is missing is no failure of the caller, whose detail stays. */
static void no_is_an_answer(void **state)
{
    static const char *const task[][2] = {{"OMPI_COMM_WORLD_RANK", "0"},
                                          {"OMPI_COMM_WORLD_SIZE", "4"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
    clear_variables();
    (void)lk__fail(LK_STATUS_USAGE, "the caller's failure");
    assert_false(lk__mpi_is_due("auto"));
    for (size_t i = 0; i < COUNT_OF(task); i++)
        setenv(task[i][0], task[i][1], 1);
    setenv("LOCKSTEP_PLUGINS", "/nowhere", 1);
    assert_true(lk__mpi_module_is_chosen());
    assert_false(lk__mpi_is_due("auto"));
    assert_string_equal(lk_error_detail(), "the caller's failure");
    lk__mpi_use(&fake);
    assert_true(lk__mpi_is_due("auto"));
    lk__mpi_use(NULL);
    for (size_t i = 0; i < COUNT_OF(task); i++)
        unsetenv(task[i][0]);
    clear_variables();
}

/* Each case is a process, because MPI starts once. */
static void start_low(int number, void *arg)
{
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    granted = LK_MPI_LEVEL_FUNNELED;
    lk__mpi_use(&fake);
    for (int i = 0; i < 2; i++) {
        CHECK(lk__mpi_start(0, &mpi, &place) == LK_STATUS_UNSUPPORTED);
        CHECK(strstr(lk_error_detail(), "Fake MPI 1.0") && strstr(lk_error_detail(), "MPI_THREAD_FUNNELED"));
        CHECK(strstr(lk_error_detail(), "MPI_THREAD_SERIALIZED") && !mpi);
    }
    exit(4);
}

static void start_refused(int number, void *arg)
{
    lk_mpi broken = fake;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    broken.start = refuse_start;
    lk__mpi_use(&broken);
    CHECK(lk__mpi_start(0, &mpi, &place) == LK_STATUS_PEER && strstr(lk_error_detail(), "fake error 17"));
}

static int start_never(lk_mpi_level wanted, lk_mpi_place *out)
{
    page->started++;
    sleep(60);
    return 0;
}

/* The process can say why, and ends although a thread is inside MPI. */
static void start_late(int number, void *arg)
{
    lk_mpi stuck = fake;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    stuck.start = start_never;
    lk__mpi_use(&stuck);
    CHECK(lk__mpi_start(0.05, &mpi, &place) == LK_STATUS_PEER && !mpi);
    CHECK(lk__mpi_start(0, &mpi, &place) == LK_STATUS_PEER && strstr(lk_error_detail(), "within 0.05 s"));
    exit(5);
}

static int never_finish(void)
{
    page->finished++;
    sleep(60);
    return 0;
}

/* The memory of a share that is late belongs to MPI; a search for leaks must find it. */
static void *volatile shared;

static int fake_share(lk_mpi_comm comm, void *data, size_t bytes, lk_mpi_request *out)
{
    shared = data;
    snprintf(data, bytes, "of rank 0");
    *out = 1;
    return 0;
}

static int never_test(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    *done_count = 0;
    return 0;
}

/* A request of number n is done after n tests. */
static int fake_test(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    *done_count = --requests[0] == 0;
    done[0] = (lk_mpi_done){0};
    return 0;
}

static void hear_late(const char *detail)
{
    CHECK(strstr(detail, "MPI (fake) has not ended within 0.05 s"));
    page->code = 77;
}

/* Another process is gone: this one ends with a message and a status of its own. */
static void finish_late(int number, void *arg)
{
    lk_mpi stuck = fake;
    stuck.finish = never_finish;
    lk__mpi_use(&stuck);
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    lk__mpi_set_late_notice(hear_late);
    CHECK(lk__mpi_start(30, &mpi, &place) == LK_OK); /* the start has more time than the end */
    CHECK(lk__mpi_begin("mpi", 0.05) == LK_OK);
    exit(0);
}

static void share_late(int number, void *arg)
{
    lk_mpi stuck = fake;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    char text[16] = "mine";
    stuck.share = fake_share;
    stuck.test = never_test;
    lk__mpi_use(&stuck);
    CHECK(lk__mpi_start(30, &mpi, &place) == LK_OK);
    CHECK(lk__mpi_share(mpi, 0, text, sizeof text, 0.05) == LK_STATUS_PEER && strcmp(text, "mine") == 0);
    CHECK(strstr(lk_error_detail(), "has not shared a text within 0.05 s"));
    exit(8);
}

static void share_well(int number, void *arg)
{
    lk_mpi shares = fake;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    char text[16] = "mine";
    shares.share = fake_share;
    shares.test = fake_test;
    lk__mpi_use(&shares);
    CHECK(lk__mpi_start(30, &mpi, &place) == LK_OK);
    CHECK(lk__mpi_share(mpi, 0, text, sizeof text, 30) == LK_OK && strcmp(text, "of rank 0") == 0);
    exit(0);
}

static void start_in_time(int number, void *arg)
{
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    lk__mpi_use(&fake);
    CHECK(lk__mpi_start(30, &mpi, &place) == LK_OK && mpi == &fake && place.rank == 1 && place.size == 3);
}

static void start_well(int number, void *arg)
{
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    lk__mpi_use(&fake);
    for (int i = 0; i < 3; i++)
        CHECK(lk__mpi_start(0, &mpi, &place) == LK_OK && mpi == &fake && place.rank == 1 && place.size == 3);
}

static void use_tags(int number, void *arg)
{
    int first = 0, second = 0;
    start_well(number, arg);
    CHECK(lk__mpi_tags(NULL, 4, &first) == LK_OK && lk__mpi_tags(NULL, 3, &second) == LK_OK && second == first + 4);
    CHECK(lk__mpi_tags(NULL, 4, &first) == LK_STATUS_UNSUPPORTED && strstr(lk_error_detail(), "10 tags"));
}

static void exit_badly(int number, void *arg)
{
    start_well(number, arg);
    exit(6);
}

static void exit_after_failure(int number, void *arg)
{
    start_well(number, arg);
    lk__mpi_mark_failed();
}

static void refuse_process(void)
{
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    CHECK(lk__mpi_start(0, &mpi, &place) == LK_STATUS_USAGE && !mpi);
    CHECK(strstr(lk_error_detail(), "start every rank with mpirun"));
}

/* The child has only a copy of its parent's MPI. */
static void fork_then_exit(int number, void *arg)
{
    start_well(number, arg);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        refuse_process();
        exit(9);
    }
    CHECK(process_wait(child) == 9);
    CHECK(page->finished == 0 && page->aborted == 0);
}

/* A rank that `lockstep run` has started in a task of mpirun is no process of MPI. */
static void start_under_run(int number, void *arg)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GROUP_WORLD_SIZE"};
    static const char *const values[] = {"1", "3", "0", "127.0.0.1", "3"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        setenv(names[i], values[i], 1);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    lk__mpi_use(&fake);
    CHECK(lk__mpi_is_due("auto"));
    setenv("LOCKSTEP_RUN_ID", "1", 1);
    CHECK(!lk__mpi_is_due("auto"));
    refuse_process();
}

static void mpi_starts_once_and_ends_with_the_process(void **state)
{
    static const struct {
        process_fn fn;
        int status, started, finished, aborted, code;
    } cases[] = {
        {start_low, 4, 1, 0, 1, 4},      {start_refused, 0, 0, 0, 0, 0},   {start_well, 0, 1, 1, 0, 0},
        {use_tags, 0, 1, 1, 0, 0},       {exit_badly, 6, 1, 0, 1, 6},      {exit_after_failure, 0, 1, 0, 1, 1},
        {fork_then_exit, 0, 1, 1, 0, 0}, {start_under_run, 0, 0, 0, 0, 0}, {start_late, 5, 1, 0, 0, 0},
        {start_in_time, 0, 1, 1, 0, 0},  {finish_late, 1, 1, 1, 0, 77},    {share_late, 8, 1, 0, 1, 8},
        {share_well, 0, 1, 1, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        page = process_share(sizeof *page);
        assert_int_equal(process_wait(process_start(cases[i].fn, 0, NULL)), cases[i].status);
        assert_int_equal(page->started, cases[i].started);
        assert_int_equal(page->finished, cases[i].finished);
        assert_int_equal(page->aborted, cases[i].aborted);
        assert_int_equal(page->code, cases[i].code);
        munmap(page, sizeof *page);
    }
}

TEST_MAIN(NULL, NULL, TEST(launchers_choose_the_plugin), TEST(missing_plugins_are_named),
          TEST(mpi_is_due_where_it_is_asked_for), TEST(no_is_an_answer),
          TEST(mpi_starts_once_and_ends_with_the_process))
