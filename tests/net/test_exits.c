/* test_exits.c - notes of a launcher about ranks that have exited, read in another process. */
#include <sys/wait.h>

#include "check.h"
#include "net/exits.h"

enum { PORT = 4000, RANKS = 3 };

/* What another process finds: "" or the ranks that are gone, as "1 2". */
static void assert_gone(int port, int ranks, const char *wanted)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char path[LK_EXITS_TEXT], text[32] = "";
        uint8_t gone[8] = {0};
        lk__exits_find(port, path);
        bool some = lk__exits_read(path, ranks, gone);
        for (int r = 0; some && r < ranks; r++)
            if (gone[r])
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", *text ? " " : "", r);
        CHECK(strcmp(text, wanted) == 0);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_notes(void **state)
{
    lk_exits exits;
    lk__exits_init(PORT, RANKS, &exits);
    assert_true(exits.fd >= 0);
    assert_int_equal(setenv(LK_EXITS_VARIABLE, exits.text, 1), 0);
    assert_gone(PORT, RANKS, "");
    lk__exits_note(&exits, 1);
    assert_gone(PORT, RANKS, "1");
    lk__exits_note(&exits, 2);
    lk__exits_note(&exits, 2);
    assert_gone(PORT, RANKS, "1 2");
    /* Another job inside of a rank: another port, or another number of ranks. */
    assert_gone(PORT + 1, RANKS, "");
    assert_gone(PORT, RANKS + 1, "");
    lk__exits_fini(&exits);
    assert_gone(PORT, RANKS, "");
}

/* What is in the variable is not trusted. */
static void test_other_files(void **state)
{
    static const char *const texts[] = {
        "",
        "4000",
        "x /proc/self/fd/0",
        "4000 /nonexistent",
        "4000 /dev/zero",
        "4000 /dev/null",
        "4000 /proc/self/exe",
        "4000 /",
        "4000 /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        assert_int_equal(setenv(LK_EXITS_VARIABLE, texts[i], 1), 0);
        assert_gone(PORT, RANKS, "");
    }
    assert_int_equal(unsetenv(LK_EXITS_VARIABLE), 0);
    assert_gone(PORT, RANKS, "");
}

/* A launcher that cannot make the memory goes on without it. */
static void test_none(void **state)
{
    lk_exits none = {.fd = -1};
    lk__exits_note(&none, 0);
    lk__exits_fini(&none);
}

TEST_MAIN(NULL, NULL, TEST(test_notes), TEST(test_other_files), TEST(test_none))
