/* test_secret.c - the user's secret: made once by processes that start together, refused when others could
 * use it or when it is damaged; the token of a job that is derived from it. */
#include <sys/socket.h>
#include <sys/stat.h>

#include "check.h"
#include "net/auth.h"
#include "net/secret.h"
#include "processes.h"
#include "temp_folder.h"

static char home[TEMP_FOLDER_BYTES + 32], path[TEMP_FOLDER_BYTES + 64];

/* Each test has a home folder of its own, which is empty. */
static int set_up(void **state)
{
    static int number;
    snprintf(home, sizeof home, "%s/home%d", temp_folder, number++);
    snprintf(path, sizeof path, "%s/.config/lockstep/secret", home);
    assert_int_equal(mkdir(home, 0755), 0);
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("LOCKSTEP_INSECURE");
    unsetenv("LOCKSTEP_TOKEN");
    unsetenv("LOCKSTEP_TOKEN_FILE");
    return 0;
}

static void read_secret(char text[LK_SECRET_TEXT])
{
    assert_int_equal(lk__secret_own(text), LK_OK);
    assert_int_equal(strlen(text), 64);
    assert_int_equal(strspn(text, "0123456789abcdef"), 64);
}

static mode_t mode_of(const char *name)
{
    struct stat info;
    assert_int_equal(stat(name, &info), 0);
    return info.st_mode & 07777;
}

static int files_in(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void test_made_at_first_use(void **state)
{
    char first[LK_SECRET_TEXT], again[LK_SECRET_TEXT], folder[sizeof home + 32];
    mode_t mask = umask(0);
    read_secret(first);
    umask(mask);
    read_secret(again);
    assert_string_equal(first, again);
    assert_int_equal(mode_of(path), 0600);
    snprintf(folder, sizeof folder, "%s/.config", home);
    assert_int_equal(mode_of(folder), 0700);
    snprintf(folder, sizeof folder, "%s/.config/lockstep", home);
    assert_int_equal(mode_of(folder), 0700);
    assert_int_equal(files_in(folder), 1);
}

static void test_place(void **state)
{
    lk_secret_path found;
    assert_int_equal(lk__secret_find(&found), LK_OK);
    assert_string_equal(found.full, path);
    assert_string_equal(found.remote, ".config/lockstep/secret");
    assert_string_equal(found.local, "~/.config/lockstep/secret");
    setenv("XDG_CONFIG_HOME", "/elsewhere/", 1);
    assert_int_equal(lk__secret_find(&found), LK_OK);
    assert_string_equal(found.full, "/elsewhere/lockstep/secret");
    assert_string_equal(found.remote, found.full);
    assert_string_equal(found.local, found.full);
    /* A relative path and an empty one do not count. */
    setenv("XDG_CONFIG_HOME", "config", 1);
    assert_int_equal(lk__secret_find(&found), LK_OK);
    assert_string_equal(found.full, path);
    setenv("XDG_CONFIG_HOME", "", 1);
    assert_int_equal(lk__secret_find(&found), LK_OK);
    assert_string_equal(found.full, path);
    /* Without HOME, the home folder of the user's entry counts. */
    unsetenv("HOME");
    assert_int_equal(lk__secret_find(&found), LK_OK);
    assert_string_not_equal(found.full, path);
    setenv("HOME", "here", 1);
    assert_fails(lk__secret_find(&found), LK_STATUS_USAGE, "LOCKSTEP_TOKEN");
}

typedef struct race {
    char texts[8][LK_SECRET_TEXT];
    int ready;
} race;

static void make_in_race(int number, void *arg)
{
    race *all = arg;
    __atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < 8)
        sleep_ms(0);
    CHECK(lk__secret_own(all->texts[number]) == LK_OK);
}

static void test_race(void **state)
{
    race *all = process_share(sizeof *all);
    for (int round = 0; round < 20; round++) {
        set_up(NULL);
        *all = (race){.ready = 0};
        assert_true(processes_run(8, make_in_race, all, 0));
        for (int i = 1; i < 8; i++)
            assert_string_equal(all->texts[i], all->texts[0]);
        *strrchr(path, '/') = '\0';
        assert_int_equal(files_in(path), 1);
    }
    munmap(all, sizeof *all);
}

/* Writes the secret with this content and mode. */
static void write_secret(const char *content, size_t bytes, mode_t mode)
{
    char text[LK_SECRET_TEXT];
    remove(path);
    read_secret(text);
    temp_write(path, content, bytes);
    assert_int_equal(chmod(path, mode), 0);
}

static void assert_refused(lk_status status, const char *part)
{
    char text[LK_SECRET_TEXT];
    assert_int_equal(lk__secret_own(text), status);
    assert_detail("your secret");
    assert_detail(path);
    assert_detail(part);
}

static const char digits[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void test_others_could_use_it(void **state)
{
    static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0644, 0666, 0601};
    for (size_t i = 0; i < COUNT_OF(open_modes); i++) {
        write_secret(digits, 64, open_modes[i]);
        assert_refused(LK_STATUS_USAGE, "run: chmod 600 ");
        assert_detail("remove it, and the next job makes a new one");
    }
    char text[LK_SECRET_TEXT];
    write_secret(digits, 64, 0400);
    read_secret(text);
    assert_string_equal(text, digits);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(path, 1, 1), 0);
    assert_refused(LK_STATUS_USAGE, "belongs to user 1, not to you (0); run as that user");
}

static void test_damaged(void **state)
{
    char text[66];
    write_secret("", 0, 0600);
    assert_refused(LK_STATUS_FORMAT, "is empty; remove it, and the next job makes a new one");
    write_secret(digits, 63, 0600);
    assert_refused(LK_STATUS_FORMAT, "is damaged: it should hold 64 hexadecimal digits; remove it");
    snprintf(text, sizeof text, "%s0", digits);
    write_secret(text, 65, 0600);
    assert_refused(LK_STATUS_FORMAT, "is damaged");
    text[64] = '\0', text[3] = 'g';
    write_secret(text, 64, 0600);
    assert_refused(LK_STATUS_FORMAT, "is damaged");
    text[3] = '\0';
    write_secret(text, 64, 0600);
    assert_refused(LK_STATUS_FORMAT, "zero byte at 3");
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(LK_STATUS_USAGE, "is not a regular file; remove it");
    remove(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(LK_STATUS_USAGE, "is not a regular file");
}

static void test_home_that_cannot_hold_it(void **state)
{
    remove(home);
    assert_refused(LK_STATUS_IO, "No such file or directory; set LOCKSTEP_TOKEN");
    temp_write(home, "x", 1);
    assert_refused(LK_STATUS_IO, "Not a directory; set LOCKSTEP_TOKEN");
    assert_detail("LOCKSTEP_TOKEN_FILE");
    remove(home);
    assert_int_equal(mkdir(home, 0500), 0);
    /* Root may write everywhere. */
    if (geteuid() != 0)
        assert_refused(LK_STATUS_IO, "Permission denied; set LOCKSTEP_TOKEN");
    /* The reason is that of the folder which cannot be made. */
    char text[LK_SECRET_TEXT];
    setenv("HOME", "/sys", 1);
    assert_int_equal(lk__secret_own(text), LK_STATUS_IO);
    assert_detail("cannot make your secret /sys/.config/lockstep/secret");
    assert_null(strstr(lk_error_detail(), "No such file"));
}

static lk_token job_token(const char *job)
{
    lk_token token;
    assert_int_equal(lk__token_for_job(job, &token), LK_OK);
    return token;
}

static void test_token_of_a_job(void **state)
{
    lk_token a = job_token("a"), again = job_token("a"), b = job_token("b"), plain;
    assert_int_equal(a.origin, LK_TOKEN_ORIGIN_SECRET);
    assert_memory_equal(&a, &again, sizeof a);
    assert_memory_not_equal(a.key, b.key, sizeof a.key);
    remove(path);
    again = job_token("a");
    assert_memory_not_equal(a.key, again.key, sizeof a.key);
    /* On request, the text alone; then no file is needed. */
    setenv("LOCKSTEP_INSECURE", "1", 1);
    remove(path);
    a = job_token("a");
    assert_int_equal(a.origin, LK_TOKEN_ORIGIN_OPEN);
    assert_int_equal(lk__token_from_text("a", &plain), LK_OK);
    assert_memory_equal(a.key, plain.key, sizeof a.key);
    assert_int_equal(access(path, F_OK), -1);
    setenv("LOCKSTEP_INSECURE", "0", 1);
    a = job_token("a");
    assert_int_equal(a.origin, LK_TOKEN_ORIGIN_SECRET);
    setenv("LOCKSTEP_INSECURE", "yes", 1);
    assert_fails(lk__token_for_job("a", &a), LK_STATUS_USAGE, "LOCKSTEP_INSECURE is 'yes'");
}

/* Runs a handshake between a client and a server with these tokens; both must fail. */
static void assert_both_told(const lk_token *client, const lk_token *server, const char *client_part,
                             const char *server_part)
{
    int fd[2];
    lk_handshake near, far;
    const uint8_t greeting[LK_GREETING_BYTES] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    lk__handshake_init(&near, client, false, greeting);
    lk__handshake_init(&far, server, true, greeting);
    assert_int_equal(lk__handshake_step(&near, fd[0]), LK_HANDSHAKE_STATE_PENDING);
    assert_int_equal(lk__handshake_step(&far, fd[1]), LK_HANDSHAKE_STATE_PENDING);
    assert_int_equal(lk__handshake_step(&near, fd[0]), LK_HANDSHAKE_STATE_PENDING);
    assert_int_equal(lk__handshake_step(&far, fd[1]), LK_HANDSHAKE_STATE_FAILED);
    assert_detail(server_part);
    /* The refused client has got nothing beyond the hello. */
    assert_int_equal(far.sent_bytes, LK_HELLO_BYTES);
    shutdown(fd[1], SHUT_RDWR);
    assert_int_equal(lk__handshake_step(&near, fd[0]), LK_HANDSHAKE_STATE_FAILED);
    assert_detail(client_part);
    close(fd[0]);
    close(fd[1]);
}

static void test_both_sides_are_told(void **state)
{
    lk_token mine = job_token("a"), given, open;
    remove(path);
    lk_token other = job_token("a");
    assert_int_equal(lk__token_from_text("x", &given), LK_OK);
    setenv("LOCKSTEP_INSECURE", "1", 1);
    open = job_token("a");
    static const char copy_here[] = "run here: scp HOST:.config/lockstep/secret ~/.config/lockstep/secret",
                      copy_there[] = "run there: scp HOST:.config/lockstep/secret ~/.config/lockstep/secret";
    assert_both_told(&mine, &other, copy_here, copy_there);
    assert_both_told(&mine, &given, copy_here, "has another job token");
    assert_both_told(&given, &mine, "has another job token", copy_there);
    assert_both_told(&open, &mine, "LOCKSTEP_INSECURE=1", copy_there);
}

#define SECRET_TEST(name) cmocka_unit_test_setup(name, set_up)
TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, SECRET_TEST(test_made_at_first_use), SECRET_TEST(test_place),
          SECRET_TEST(test_race), SECRET_TEST(test_others_could_use_it), SECRET_TEST(test_damaged),
          SECRET_TEST(test_home_that_cannot_hold_it), SECRET_TEST(test_token_of_a_job),
          SECRET_TEST(test_both_sides_are_told))
