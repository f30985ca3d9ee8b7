/* test_fault.c - faults on request: the syntax of the variable, and the sites where faults strike.
 *
 * A process reads the variable once, so every case is a child process. A child reports by its exit status
 * and by the text that it writes. */
#include <errno.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "comm/call.h"
#include "processes.h"

enum { SAID = 2048 };

/* A child process, and the end of the pipe that it writes to. */
typedef struct child {
    pid_t pid;
    int from;
} child;

typedef struct child_part {
    const char *text;
    int (*part)(void *arg, int out);
    void *arg;
    int out;
} child_part;

static void be_child(int number, void *arg)
{
    const child_part *run = arg;
    unsetenv("LOCKSTEP_FAULT");
    if (run->text)
        setenv("LOCKSTEP_FAULT", run->text, 1);
    _exit(run->part(run->arg, run->out));
}

/* Starts a child that runs part(arg, out) with the variable set to text; NULL: not set. */
static child begin(const char *text, int (*part)(void *arg, int out), void *arg)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    child c = {.pid = process_start(be_child, 0, &(child_part){text, part, arg, ends[1]}), .from = ends[0]};
    close(ends[1]);
    return c;
}

/* Waits for the child; said is what it wrote. Returns the result of process_wait. */
static int end(child c, char said[SAID])
{
    size_t used = 0;
    ssize_t got;
    while ((got = read(c.from, said + used, SAID - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = '\0';
    close(c.from);
    return process_wait(c.pid);
}

static void say(int out, const char *text)
{
    size_t length = strlen(text);
    if (write(out, text, length) != (ssize_t)length)
        _exit(99);
}

static int load(void *arg, int out)
{
    lk_status first = lk__fault_load();
    lk__fail(LK_STATUS_IO, "something else");
    lk_status again = lk__fault_load();
    if (first != again)
        return 98;
    say(out, again == LK_OK ? lk__fault_text() : lk_error_detail());
    return (int)again;
}

static void refuses(const char *text, const char *part)
{
    char said[SAID];
    int status = end(begin(text, load, NULL), said);
    if (status != (int)LK_STATUS_USAGE || !strstr(said, part))
        fail_msg("'%s': status %d, \"%s\" lacks \"%s\"", text, status, said, part);
}

static void accepts(const char *text)
{
    char said[SAID];
    int status = end(begin(text, load, NULL), said);
    if (status != 0 || strcmp(said, text ? text : "") != 0)
        fail_msg("'%s': status %d, \"%s\"", text ? text : "(none)", status, said);
}

static void texts_that_are_read(void **state)
{
    accepts(NULL);
    accepts("kill");
    accepts("kill:rank=0");
    accepts("stop:rank=3,step=12,op=eval,nth=2");
    accepts("delay:seconds=.5;delay:seconds=2,rank=1;kill:step=9");
    accepts("write:op=save,nth=17");
    accepts("slow:rank=1,op=backward,seconds=.05;slow:seconds=1,op=data,nth=3");
    accepts("alloc:op=load");
    accepts("flip:bit=0");
    accepts("flip:op=save,bit=9223372036854775807");
}

/* Every call of a group is a known operation; an unknown one would be refused. */
static void every_call_has_a_name(void **state)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        LK_CALL_KIND_LIST(NAME)
#undef NAME
            "step",
        "eval",
        "save",
        "load",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[64];
        snprintf(text, sizeof text, "kill:op=%s", names[i]);
        accepts(text);
    }
}

static void texts_that_are_refused(void **state)
{
    refuses("", "LOCKSTEP_FAULT is set, but empty");
    refuses("kil:rank=1", "LOCKSTEP_FAULT, character 1: no action 'kil'; did you mean 'kill'?");
    refuses(":rank=1", "character 1: an action is missing");
    refuses("kill;", "character 6: an action is missing");
    refuses("kill;;stop", "character 6: an action is missing");
    refuses("kill;stopp", "character 6: no action 'stopp'; did you mean 'stop'?");
    refuses("kill:", "character 6: a key is missing");
    refuses("kill:rank=1,", "character 13: a key is missing");
    refuses("kill:=1", "character 6: a key is missing");
    refuses("kill:rank", "character 6: 'rank' has no value");
    refuses("kill:rank=", "character 11: a value is missing");
    refuses("kill:rnak=1", "character 6: no key 'rnak'; did you mean 'rank'? (known: rank, step, op, nth, restart)");
    refuses("kill:rank=-1", "character 11: rank=-1 must be a whole number from 0");
    refuses("kill:rank=1.5", "rank=1.5 must be a whole number");
    refuses("kill:rank=one", "rank=one must be a whole number");
    refuses("kill:rank=99999999999999999999", "must be a whole number");
    refuses("kill:step=0", "step=0 must be a whole number from 1");
    refuses("kill:nth=0", "nth=0 must be a whole number from 1");
    refuses("kill:rank=1,rank=2", "character 13: 'rank' is given twice");
    refuses("kill:op=alreduce", "character 9: no operation 'alreduce'; did you mean 'allreduce'?");
    refuses("kill:seconds=1", "character 6: no key 'seconds'");
    refuses("kill:bit=1", "no key 'bit'");
    refuses("alloc:bit=1", "no key 'bit'");
    refuses("delay:rank=1", "character 1: delay needs seconds=");
    refuses("delay:seconds=0", "seconds=0 must be a number above 0");
    refuses("delay:seconds=-1", "seconds=-1 must be");
    refuses("delay:seconds=nan", "seconds=nan must be");
    refuses("delay:seconds=1,bit=2", "no key 'bit'");
    refuses("flip:seconds=1", "no key 'seconds' (known: rank, step, op, nth, restart, bit)");
    refuses("flip:bit=-1", "bit=-1 must be");
    refuses("flip:op=allreduce", "no operation 'allreduce' (known: step, save)");
}

static void texts_that_are_too_long(void **state)
{
    char text[2000], word[200];
    memset(word, '1', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    snprintf(text, sizeof text, "kill:rank=%s", word);
    refuses(text, "character 11: a value of 199 characters is too long");
    size_t used = 0;
    for (int i = 0; i < 17; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%skill", i ? ";" : "");
    refuses(text, "there may be 16 faults at most");
    memset(text, 'k', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    refuses(text, "1999 characters");
}

/* A short run as rank 1: five steps of two calls, and two saves of three writes. */
static int run_as_rank_1(void *arg, int out)
{
    if (lk__fault_load() != LK_OK)
        return 97;
    for (uint64_t step = 1; step <= 5; step++) {
        char line[32];
        lk__fault_set_site((lk_fault_site){.rank = 1, .step = step});
        lk__fault_point("step");
        snprintf(line, sizeof line, "%d", (int)step);
        say(out, line);
        for (int call = 0; call < 2; call++) {
            const char *before = lk__fault_enter("allreduce");
            lk__fault_point("allreduce");
            say(out, "a");
            lk__fault_leave(before);
        }
        if (step % 2)
            continue;
        const char *before = lk__fault_enter("save");
        lk__fault_point("save");
        say(out, "s");
        for (int i = 0; i < 3; i++)
            say(out, lk__fault_write() ? (errno == ENOSPC ? "!" : "?") : "w");
        lk__fault_leave(before);
    }
    return 0;
}

/* The run writes `wanted`, and is killed then if it dies. */
static void run_says(const char *text, bool dies, const char *wanted)
{
    char said[SAID];
    int status = end(begin(text, run_as_rank_1, NULL), said);
    bool died = status == 128 + SIGKILL;
    if (strcmp(said, wanted) != 0 || died != dies || (!died && status != 0))
        fail_msg("'%s': status %d, \"%s\", not \"%s\"", text ? text : "", status, said, wanted);
}

static void without_faults_nothing_happens(void **state)
{
    run_says(NULL, false, "1aa2aaswww3aa4aaswww5aa");
}

static void kills_strike_where_all_holds(void **state)
{
    run_says("kill", true, "");
    run_says("kill:rank=1", true, "");
    run_says("kill:rank=0", false, "1aa2aaswww3aa4aaswww5aa");
    run_says("kill:rank=1,step=4", true, "1aa2aaswww3aa");
    run_says("kill:step=6", false, "1aa2aaswww3aa4aaswww5aa");
    run_says("kill:op=step,nth=3", true, "1aa2aaswww");
    run_says("kill:op=allreduce", true, "1");
    run_says("kill:op=allreduce,nth=6", true, "1aa2aaswww3a");
    run_says("kill:op=allreduce,step=3,nth=2", true, "1aa2aaswww3a");
    run_says("kill:op=broadcast", false, "1aa2aaswww3aa4aaswww5aa");
    run_says("kill:op=save", true, "1aa2aa");
    run_says("kill:op=save,nth=2", true, "1aa2aas");
    run_says("kill:op=save,nth=4", true, "1aa2aasww");
    run_says("kill:op=save,nth=5", true, "1aa2aaswww3aa4aa");
    run_says("kill:step=5,nth=3", true, "1aa2aaswww3aa4aaswww5a");
    run_says("kill:step=5,restart=0,nth=3", true, "1aa2aaswww3aa4aaswww5a");
    run_says("kill:step=5,restart=1", false, "1aa2aaswww3aa4aaswww5aa");
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    run_says("kill:step=5,restart=1,nth=3", true, "1aa2aaswww3aa4aaswww5a");
    run_says("kill:step=5,restart=0", false, "1aa2aaswww3aa4aaswww5aa");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

static void writes_fail_once_each(void **state)
{
    run_says("write", false, "1aa2aas!ww3aa4aaswww5aa");
    run_says("write:nth=2", false, "1aa2aasw!w3aa4aaswww5aa");
    run_says("write:op=save,nth=4", false, "1aa2aaswww3aa4aas!ww5aa");
    run_says("write:op=allreduce", false, "1aa2aaswww3aa4aaswww5aa");
    run_says("write:nth=2;write:step=4;kill:op=step,step=5", true, "1aa2aasw!w3aa4aas!ww");
}

/* Says of each fault whether it is of a rank, has struck, and may have struck before a restart. */
static int list_faults(void *arg, int out)
{
    lk_fault_info fault;
    if (lk__fault_load() != LK_OK)
        return 97;
    lk__fault_work("data");
    for (int i = 0; i < 2; i++)
        (void)lk__fault_write();
    for (size_t i = 0; lk__fault_at(i, &fault); i++) {
        char text[128];
        snprintf(text, sizeof text, "%.*s %d%s%s|", fault.length, fault.text, fault.rank, fault.struck ? " struck" : "",
                 fault.earlier ? " earlier" : "");
        say(out, text);
    }
    return 0;
}

static void lists(const char *text, const char *wanted)
{
    char said[SAID];
    assert_int_equal(end(begin(text, list_faults, NULL), said), 0);
    assert_string_equal(said, wanted);
}

static void faults_know_whether_they_struck(void **state)
{
    lists(NULL, "");
    lists("write", "write -1 struck|");
    lists("write:rank=1;write:nth=2;write:rank=0,nth=3;kill:op=save",
          "write:rank=1 1|write:nth=2 -1 struck|write:rank=0,nth=3 0|kill:op=save -1|");
    lists("slow:seconds=.001;slow:seconds=1,op=update", "slow:seconds=.001 -1 struck|slow:seconds=1,op=update -1|");
    lists("write:restart=1", "write:restart=1 -1|");
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    lists(
        "alloc;alloc:restart=0;alloc:restart=1;alloc:restart=2;write:restart=1",
        "alloc -1 earlier|alloc:restart=0 -1 earlier|alloc:restart=1 -1|alloc:restart=2 -1|write:restart=1 -1 struck|");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

static int stop_once(void *arg, int out)
{
    if (lk__fault_load() != LK_OK)
        return 97;
    say(out, "before ");
    lk__fault_point("step");
    say(out, "after ");
    lk__fault_point("step");
    say(out, "end");
    return 0;
}

static void stops_until_continued(void **state)
{
    char said[SAID];
    int status;
    child c = begin("stop", stop_once, NULL);
    assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
    assert_true(WIFSTOPPED(status));
    ssize_t got = read(c.from, said, SAID);
    assert_int_equal(got, (ssize_t)strlen("before "));
    assert_int_equal(kill(c.pid, SIGCONT), 0);
    assert_int_equal(end(c, said), 0);
    assert_string_equal(said, "after end");
}

static void on_alarm(int signal)
{
}

/* An interval timer interrupts the sleep every few milliseconds. */
static int sleep_interrupted(void *arg, int out)
{
    struct sigaction action = {.sa_handler = on_alarm};
    timer_t timer;
    struct itimerspec often = {.it_interval.tv_nsec = 7000000, .it_value.tv_nsec = 7000000};
    if (lk__fault_load() != LK_OK || sigaction(SIGALRM, &action, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, NULL, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0)
        return 97;
    double begins = lk__clock();
    lk__fault_point("step");
    return lk__clock() - begins >= .1 ? 0 : 1;
}

static void delays_last_in_full(void **state)
{
    char said[SAID];
    assert_int_equal(end(begin("delay:seconds=.1", sleep_interrupted, NULL), said), 0);
}

/* Returns how many of ten parts were slowed; points and writes are not. */
static int count_slowed(void *arg, int out)
{
    int slowed = 0;
    if (lk__fault_load() != LK_OK)
        return 97;
    double begins = lk__clock();
    lk__fault_point("step");
    if (lk__fault_write() || lk__clock() - begins >= 10)
        return 98;
    for (int i = 0; i < 10; i++) {
        begins = lk__clock();
        lk__fault_work(i % 2 ? "backward" : "data");
        slowed += lk__clock() - begins >= .02;
    }
    return slowed;
}

/* Slowness lasts: it strikes from the nth time on. A part that is not slowed could be on a busy machine only, so the
 * numbers are lower bounds, apart from none. */
static void slowness_lasts(void **state)
{
    char said[SAID];
    assert_true(end(begin("slow:seconds=.02", count_slowed, NULL), said) == 10);
    assert_true(end(begin("slow:seconds=.02,op=backward", count_slowed, NULL), said) >= 5);
    assert_true(end(begin("slow:seconds=.02,nth=4", count_slowed, NULL), said) >= 7);
}

static int allocate_ten(void *arg, int out)
{
    if (lk__fault_load() != LK_OK)
        return 97;
    for (int i = 0; i < 10; i++) {
        void *block = NULL;
        /* Small blocks, and large blocks that are mapped by the kernel. */
        size_t bytes = i % 2 ? 100 : (size_t)4 << 20;
        const char *before = lk__fault_enter("step"), *within = lk__fault_enter(i < 5 ? "reduce" : "gather");
        lk_status status = lk__mem_alloc(bytes, 1, "a test", &block);
        lk__fault_leave(within);
        lk__fault_leave(before);
        if (status == LK_OK && block)
            say(out, "+");
        else if (status == LK_STATUS_MEMORY && !block)
            say(out, strstr(lk_error_detail(), "no memory for a test (") == lk_error_detail() ? "-" : "?");
        lk__mem_free(block);
    }
    return 0;
}

static void allocations_fail_once(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"alloc", "-+++++++++"},
        {"alloc:nth=4", "+++-++++++"},
        {"alloc:op=gather", "+++++-++++"},
        {"alloc:op=step,nth=10", "+++++++++-"},
        {"alloc:op=load", "++++++++++"},
        {"alloc:rank=1", "++++++++++"},
        {"alloc:rank=0,nth=2;alloc:nth=2", "+-++++++++"},
        {"kill;write;flip", "++++++++++"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[SAID];
        assert_int_equal(end(begin(cases[i].text, allocate_ten, NULL), said), 0);
        assert_string_equal(said, cases[i].wanted);
    }
}

typedef struct flip_case {
    const char *text, *op;
    size_t bits;
    int times; /* the call of lk__fault_flip that inverts a bit, from 1; 0: none */
    size_t bit;
} flip_case;

/* Returns a status other than 0 if no bit, another bit or more than one bit is inverted. */
static int flip_bits(void *arg, int out)
{
    const flip_case *f = arg;
    size_t bit = SIZE_MAX;
    int struck = 0;
    if (lk__fault_load() != LK_OK)
        return 97;
    for (int i = 1; i <= 5; i++) {
        if (!lk__fault_flip(f->op, f->bits, &bit))
            continue;
        if (i != f->times || bit != f->bit)
            return 1;
        struck++;
    }
    return struck == (f->times > 0) ? 0 : 2;
}

static void flips_say_which_bit(void **state)
{
    flip_case cases[] = {
        {"flip", "step", 320, 1, 191},       {"flip", "step", 1, 1, 0},
        {"flip", "step", 0, 0, 0},           {"flip", "save", 320, 0, 0},
        {"flip:bit=5", "step", 320, 1, 5},   {"flip:bit=325,nth=2", "step", 320, 2, 5},
        {"flip:op=save", "save", 64, 1, 63}, {"flip:op=save,nth=3", "save", 24, 3, 12},
        {"kill", "step", 320, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[SAID];
        int status = end(begin(cases[i].text, flip_bits, &cases[i]), said);
        if (status != 0)
            fail_msg("case %zu ('%s'): status %d", i, cases[i].text, status);
    }
}

static void *get_site(void *arg)
{
    *(lk_fault_site *)arg = lk__fault_site();
    return NULL;
}

static int sites(void *arg, int out)
{
    lk_fault_site other;
    pthread_t thread;
    setenv("RANK", "3", 1);
    if (lk__fault_load() != LK_OK || lk__fault_site().rank != 3)
        return 1;
    lk__fault_set_site((lk_fault_site){.rank = 2, .step = 7, .op = "save"});
    lk_fault_site mine = lk__fault_site();
    if (mine.rank != 2 || mine.step != 7 || strcmp(mine.op, "save") != 0)
        return 2;
    if (pthread_create(&thread, NULL, get_site, &other) != 0 || pthread_join(thread, NULL) != 0)
        return 97;
    if (other.rank != 3 || other.step != 0 || other.op != NULL)
        return 3;
    /* Deeper nesting than is recorded, and back. */
    const char *before[20];
    for (int i = 0; i < 20; i++)
        before[i] = lk__fault_enter("gather");
    for (int i = 20; i-- > 0;)
        lk__fault_leave(before[i]);
    if (strcmp(lk__fault_site().op, "save") != 0)
        return 4;
    return 0;
}

static void be_launched(int rank, void *out)
{
    lk__fault_set_process(rank);
    lk__fault_point("step");
    say(*(int *)out, "rank ");
    lk__fault_point("step");
}

/* A launcher is no rank: faults do not strike it, and its ranks count operations from 1. */
static int launch(void *arg, int out)
{
    if (lk__fault_load() != LK_OK)
        return 97;
    lk__fault_point("step");
    lk__fault_set_process(-1);
    for (int i = 0; i < 5; i++)
        lk__fault_point("step");
    say(out, "launcher ");
    return process_wait(process_start(be_launched, 0, &out)) == 128 + SIGKILL ? 0 : 1;
}

static void launchers_are_spared(void **state)
{
    char said[SAID];
    assert_int_equal(end(begin("kill:nth=2", launch, NULL), said), 0);
    assert_string_equal(said, "launcher rank ");
}

static void every_thread_has_its_site(void **state)
{
    char said[SAID];
    assert_int_equal(end(begin("kill", sites, NULL), said), 0);
}

enum { THREADS = 4, ROUNDS = 5000 };

static void write_often(int thread, void *failed)
{
    for (int i = 0; i < ROUNDS; i++)
        ((int *)failed)[thread] += lk__fault_write();
}

/* Threads count writes together: exactly one of all writes fails. */
static int count_across_threads(void *arg, int out)
{
    int failed[THREADS] = {0}, total = 0;
    if (lk__fault_load() != LK_OK)
        return 97;
    threads_run(THREADS, write_often, failed);
    for (int t = 0; t < THREADS; t++)
        total += failed[t];
    return total;
}

static void threads_count_together(void **state)
{
    char text[64], said[SAID];
    snprintf(text, sizeof text, "write:nth=%d", THREADS * ROUNDS);
    assert_int_equal(end(begin(text, count_across_threads, NULL), said), 1);
    snprintf(text, sizeof text, "write:nth=%d", THREADS * ROUNDS + 1);
    assert_int_equal(end(begin(text, count_across_threads, NULL), said), 0);
}

int main(void)
{
    unsetenv("RANK");
    return RUN_TESTS(NULL, NULL, TEST(texts_that_are_read), TEST(every_call_has_a_name), TEST(texts_that_are_refused),
                     TEST(texts_that_are_too_long), TEST(without_faults_nothing_happens),
                     TEST(kills_strike_where_all_holds), TEST(writes_fail_once_each), TEST(stops_until_continued),
                     TEST(delays_last_in_full), TEST(faults_know_whether_they_struck), TEST(slowness_lasts),
                     TEST(allocations_fail_once), TEST(flips_say_which_bit), TEST(every_thread_has_its_site),
                     TEST(launchers_are_spared), TEST(threads_count_together));
}
