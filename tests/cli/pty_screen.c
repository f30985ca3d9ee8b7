/* pty_screen.c - runs a program on a terminal of its own and prints what its screen shows, as tmux would.
 *
 *   pty_screen COLUMNS [TEXT ACTION]... -- PROGRAM [ARGUMENTS]
 *
 * When TEXT is on the screen, ACTION is done, then the next TEXT is awaited: "look" prints the screen after a line
 * "=== TEXT", "ctrl-c" presses those keys, "size=N" makes the screen N columns wide, "raw=FILE" copies all bytes so far
 * and from then on to FILE. When the program has ended, the screen is printed after "=== end". Exits as the program;
 * with 90 if a TEXT does not come, with 91 if a progress line (text that ends with \r) is wider than the screen, with
 * 92 for other trouble. In the first second after a change of size, lines of the old size may still be under way. */
#define _GNU_SOURCE /* posix_openpt, ptsname */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 50, MOST_COLUMNS = 500, RAW_BYTES = 1 << 22, SECONDS = 60 };
enum { NO_TEXT = 90, TOO_WIDE = 91, TROUBLE = 92 };

static char rows[ROWS][MOST_COLUMNS + 1];
static int columns, row, column;
static bool pending_wrap; /* the last character went into the last column */
static bool wrapped;      /* the text since the last \r or \n is wider than the screen */
static bool too_wide;
static time_t resized; /* seconds() at the last change of the size; 0: none */
static char raw[RAW_BYTES];
static size_t raw_bytes;

static void trouble(const char *what)
{
    fprintf(stderr, "pty_screen: %s: %s\n", what, strerror(errno));
    exit(TROUBLE);
}

static time_t seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void clear_from(int at)
{
    memset(rows[row] + at, ' ', (size_t)(MOST_COLUMNS - at));
}

static void next_row(void)
{
    pending_wrap = false;
    if (++row < ROWS)
        return;
    memmove(rows[0], rows[1], sizeof rows[0] * (ROWS - 1));
    row = ROWS - 1;
    clear_from(0);
}

static void put(char c)
{
    if (pending_wrap) {
        wrapped = true;
        next_row();
        column = 0;
    }
    rows[row][column] = c;
    if (column + 1 < columns)
        column++;
    else
        pending_wrap = true;
}

/* One byte of output. Escape sequences: ESC [ numbers letter. */
static void take(char c)
{
    static bool escape;
    static char before;
    /* A terminal sends \r\n for \n, so only \r without \n ends a progress line. */
    too_wide = too_wide || (before == '\r' && c != '\n' && wrapped && seconds() > resized + 1);
    wrapped = wrapped && before != '\r' && before != '\n';
    before = c;
    if (escape) {
        escape = !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
        if (c == 'K')
            clear_from(column);
    } else if (c == 27) {
        escape = true;
    } else if (c == '\r' || c == '\n') {
        pending_wrap = false;
        column = c == '\r' ? 0 : column;
        if (c == '\n')
            next_row();
    } else if (c >= ' ') {
        put(c);
    }
}

/* A row without the blanks at its end. */
static const char *row_text(int index)
{
    static char text[MOST_COLUMNS + 1];
    int length = MOST_COLUMNS;
    memcpy(text, rows[index], sizeof text);
    while (length > 0 && text[length - 1] == ' ')
        length--;
    text[length] = '\0';
    return text;
}

static bool shows(const char *text)
{
    for (int i = 0; i <= row; i++)
        if (strstr(row_text(i), text))
            return true;
    return false;
}

static void print_screen(const char *title)
{
    printf("=== %s\n", title);
    for (int i = 0; i <= row; i++)
        printf("%s\n", row_text(i));
    fflush(stdout);
}

static void set_size(int terminal, int wanted)
{
    columns = wanted > 0 && wanted <= MOST_COLUMNS ? wanted : 80;
    column = column < columns ? column : columns - 1;
    struct winsize size = {.ws_row = ROWS, .ws_col = (unsigned short)columns};
    if (ioctl(terminal, TIOCSWINSZ, &size) != 0)
        trouble("the terminal's size");
}

static int raw_file = -1;

static void write_raw(const char *bytes, size_t count)
{
    if (raw_file >= 0 && write(raw_file, bytes, count) != (ssize_t)count)
        trouble("the copy of the output");
}

static void act(int terminal, const char *text, const char *action)
{
    if (strcmp(action, "look") == 0) {
        print_screen(text);
    } else if (strcmp(action, "ctrl-c") == 0) {
        if (write(terminal, "\003", 1) != 1)
            trouble("ctrl-c");
    } else if (strncmp(action, "size=", 5) == 0) {
        set_size(terminal, (int)strtol(action + 5, NULL, 10));
        resized = seconds();
    } else if (strncmp(action, "raw=", 4) == 0) {
        raw_file = open(action + 4, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        write_raw(raw, raw_bytes);
    } else {
        errno = EINVAL;
        trouble(action);
    }
}

static pid_t start(int terminal, char **argv)
{
    const char *name = ptsname(terminal);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setsid();
    int fd = open(name, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0)
        trouble("the program's terminal");
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    close(terminal);
    execvp(argv[0], argv);
    trouble(argv[0]);
    _exit(TROUBLE);
}

static bool read_some(int terminal)
{
    char bytes[4096];
    struct pollfd fd = {.fd = terminal, .events = POLLIN};
    if (poll(&fd, 1, 100) == 0)
        return true;
    ssize_t n = read(terminal, bytes, sizeof bytes);
    if (n <= 0)
        return n < 0 && errno == EINTR; /* EIO: nobody has the terminal open */
    write_raw(bytes, (size_t)n);
    for (ssize_t i = 0; i < n; i++) {
        take(bytes[i]);
        if (raw_bytes < RAW_BYTES)
            raw[raw_bytes++] = bytes[i];
    }
    return true;
}

/* Does the actions whose texts are shown; returns the first that is left. */
static char **act_on(int terminal, char **pairs)
{
    for (; strcmp(pairs[0], "--") != 0 && shows(pairs[0]); pairs += 2)
        act(terminal, pairs[0], pairs[1]);
    return pairs;
}

static int finish(pid_t pid, const char *missing)
{
    int status;
    print_screen("end");
    if (missing) {
        fprintf(stderr, "pty_screen: '%s' never came\n", missing);
        kill(pid, SIGTERM);
        return NO_TEXT;
    }
    if (waitpid(pid, &status, 0) != pid)
        trouble("waitpid");
    if (too_wide) {
        fprintf(stderr, "pty_screen: a progress line is wider than %d columns\n", columns);
        return TOO_WIDE;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    char **pairs = argv + 2, **program = pairs;
    while (*program && strcmp(*program, "--") != 0)
        program++;
    if (argc < 4 || !*program || !program[1] || (program - pairs) % 2 != 0) {
        errno = EINVAL;
        trouble("usage: COLUMNS [TEXT ACTION]... -- PROGRAM [ARGUMENTS]");
    }
    memset(rows, ' ', sizeof rows);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        trouble("no terminal can be had");
    set_size(terminal, (int)strtol(argv[1], NULL, 10));
    setenv("TERM", "xterm", 1);
    pid_t pid = start(terminal, program + 1);
    time_t began = seconds();
    do
        pairs = act_on(terminal, pairs);
    while (seconds() - began < SECONDS && read_some(terminal));
    return finish(pid, strcmp(*act_on(terminal, pairs), "--") != 0 ? *pairs : NULL);
}
