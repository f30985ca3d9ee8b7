/* fault.c - reads $LOCKSTEP_FAULT and decides when each fault strikes.
 *
 * The faults are read once and do not change. Their counters are atomic, so that only one thread
 * gets the Kth time. Memory is static, because allocations ask this file whether they shall fail. */
#include "base/fault.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/spec.h"

#define VARIABLE "LOCKSTEP_FAULT"

enum { MAX_FAULTS = 16, MAX_TEXT = 1024, MAX_WORD = 64, MAX_INSIDE = 8 };
#define MAX_SECONDS 1e6

/* Operations in which a fault can strike. The calls of a group are listed in comm/call.h, which is
 * above this module. */
static const char *const operations[] = {
    "step",   "eval",    "save",     "load",    "allreduce", "reduce", "reduce_scatter", "broadcast", "allgather",
    "gather", "scatter", "alltoall", "barrier", "message",   "record", "read",           NULL,
};
/* Operations in which bits are inverted. */
static const char *const flip_operations[] = {"step", "save", NULL};
/* Parts of a step that can be slowed. */
static const char *const slow_operations[] = {"data", "forward", "backward", "update", NULL};

typedef struct fault fault;

typedef enum moment { AT_POINT = 1, AT_WRITE = 2, AT_ALLOC = 4, AT_FLIP = 8, AT_WORK = 16 } moment;

typedef struct action {
    const char *name;
    unsigned moments;           /* bits of enum moment: when it can strike */
    void (*act)(const fault *); /* NULL: the caller carries it out */
    const char *own_key;        /* a key beside those that say where it strikes; NULL: none */
    bool needs_key;
    const char *const *operations;
} action;

struct fault {
    const char *text; /* in fault_text */
    int text_length;
    const action *action;
    long long rank; /* -1: any */
    long long step; /* 0: any */
    const char *op; /* NULL: any */
    long long nth;
    long long restart; /* -1: any */
    double seconds;
    long long bit;         /* -1: not given */
    _Atomic uint64_t seen; /* how often its conditions have held */
};

static void kill_process(const fault *f)
{
    (void)f;
    raise(SIGKILL);
}

static void stop_process(const fault *f)
{
    (void)f;
    raise(SIGSTOP);
}

static void sleep_on(const fault *f)
{
    struct timespec left = {.tv_sec = (time_t)f->seconds};
    left.tv_nsec = (long)((f->seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

static const action actions[] = {
    {"kill", AT_POINT | AT_WRITE, kill_process, NULL, false, operations},
    {"stop", AT_POINT | AT_WRITE, stop_process, NULL, false, operations},
    {"delay", AT_POINT | AT_WRITE, sleep_on, "seconds", true, operations},
    {"write", AT_WRITE, NULL, NULL, false, operations},
    {"alloc", AT_ALLOC, NULL, NULL, false, operations},
    {"flip", AT_FLIP, NULL, "bit", false, flip_operations},
    {"slow", AT_WORK, sleep_on, "seconds", true, slow_operations},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

static fault faults[MAX_FAULTS];
static size_t fault_count;
static char fault_text[MAX_TEXT];
static lk_status load_status;
static char load_detail[MAX_TEXT];

atomic_bool lk__fault_on;

static atomic_int process_rank;
static _Thread_local int thread_rank = -1;
static _Thread_local uint64_t thread_step;
/* The operations that this thread is inside, outermost first; deeper ones are only counted. */
static _Thread_local const char *inside[MAX_INSIDE];
static _Thread_local size_t depth;

static const char *innermost(void)
{
    return depth > 0 && depth <= MAX_INSIDE ? inside[depth - 1] : NULL;
}

static void set_inside(const char *op)
{
    inside[0] = op;
    depth = op ? 1 : 0;
}

void lk__fault_set_process(int rank)
{
    if (atomic_exchange(&process_rank, rank) >= 0)
        return;
    for (size_t i = 0; i < fault_count; i++)
        atomic_store(&faults[i].seen, 0);
}

lk_fault_site lk__fault_site(void)
{
    int rank = thread_rank >= 0 ? thread_rank : atomic_load(&process_rank);
    return (lk_fault_site){.rank = rank, .step = thread_step, .op = innermost()};
}

void lk__fault_set_site(lk_fault_site site)
{
    thread_rank = site.rank;
    thread_step = site.step;
    set_inside(site.op);
}

const char *lk__fault_enter(const char *op)
{
    const char *before = innermost();
    if (depth < MAX_INSIDE)
        inside[depth] = op;
    depth++;
    return before;
}

void lk__fault_leave(const char *before)
{
    depth -= depth > 0;
    /* lk__fault_set_site may have been called since lk__fault_enter. */
    if (depth <= MAX_INSIDE && innermost() != before)
        set_inside(before);
}

static bool is_inside(const char *op)
{
    for (size_t i = 0; i < depth && i < MAX_INSIDE; i++)
        if (inside[i] && strcmp(inside[i], op) == 0)
            return true;
    return false;
}

/* How often the job was restarted, by what the launcher says. */
static long long restarts(void)
{
    const char *text = getenv("TORCHELASTIC_RESTART_COUNT");
    long long count = 0;
    (void)(text && lk__number_parse_int(text, 0, INT_MAX, &count));
    return count;
}

/* Whether f strikes now. begins: the operation that begins now; NULL inside an operation. */
static bool strikes(fault *f, moment now, const char *begins)
{
    lk_fault_site site = lk__fault_site();
    if (!(f->action->moments & now) || site.rank < 0)
        return false;
    if ((f->rank >= 0 && f->rank != site.rank) || (f->step > 0 && (uint64_t)f->step != site.step) ||
        (f->restart >= 0 && f->restart != restarts()))
        return false;
    if (f->op && !(begins ? strcmp(begins, f->op) == 0 : is_inside(f->op)))
        return false;
    uint64_t times = atomic_fetch_add(&f->seen, 1) + 1;
    return now == AT_WORK ? times >= (uint64_t)f->nth : times == (uint64_t)f->nth;
}

/* Counts this moment for every fault. Of the faults that strike now, carries out those that have a
 * function `act`, and returns the first one without: the caller carries that one out. */
static const fault *strike(moment now, const char *begins)
{
    const fault *found = NULL;
    /* Pairs with the release in lk__fault_load: the faults are written. */
    if (!atomic_load_explicit(&lk__fault_on, memory_order_acquire))
        return NULL;
    for (size_t i = 0; i < fault_count; i++) {
        fault *f = &faults[i];
        if (!strikes(f, now, begins))
            continue;
        if (f->action->act)
            f->action->act(f);
        else if (!found)
            found = f;
    }
    return found;
}

void lk__fault_strike(const char *op)
{
    (void)strike(AT_POINT, op);
}

void lk__fault_slows(const char *op)
{
    (void)strike(AT_WORK, op);
}

bool lk__fault_fails_write(void)
{
    if (!strike(AT_WRITE, NULL))
        return false;
    errno = ENOSPC;
    return true;
}

bool lk__fault_fails_alloc(void)
{
    return strike(AT_ALLOC, NULL) != NULL;
}

bool lk__fault_flips(const char *op, size_t bits, size_t *bit)
{
    const fault *f = strike(AT_FLIP, op);
    if (!f)
        return false;
    /* A sign bit: the lowest bit of a float could be rounded away before anything reads it. */
    size_t sign = bits / 2 | 31;
    *bit = f->bit >= 0 ? (size_t)f->bit % bits : sign < bits ? sign : bits / 2;
    return true;
}

/* The position of a word in the variable, for messages. */
typedef char location[sizeof VARIABLE + 32];

static const char *location_of(const char *at, location text)
{
    snprintf(text, sizeof(location), VARIABLE ", character %td", at - fault_text + 1);
    return text;
}

static const char *next_action(const void *arg, size_t index)
{
    (void)arg;
    return index < ACTIONS ? actions[index].name : NULL;
}

static const char *next_operation(const void *arg, size_t index)
{
    const action *a = arg;
    return a->operations[index];
}

typedef struct key {
    const char *name;
    /* Reads the value; NULL: a whole number from min to max. */
    lk_status (*read)(const char *what, const char *value, fault *f);
    long long min, max;
    size_t offset; /* of a long long in struct fault */
} key;

static lk_status read_whole(const char *what, const key *k, const char *value, fault *f)
{
    long long number;
    if (!lk__number_parse_int(value, k->min, k->max, &number))
        return lk__fail(LK_STATUS_USAGE, "%s: %s=%s must be a whole number from %lld to %lld", what, k->name, value,
                        k->min, k->max);
    *(long long *)(void *)((char *)f + k->offset) = number;
    return LK_OK;
}

static lk_status read_op(const char *what, const char *value, fault *f)
{
    size_t index;
    LK_TRY(lk__names_find(&(lk_names){.what = what, .kind = "operation", .next = next_operation, .arg = f->action},
                          value, &index));
    f->op = f->action->operations[index];
    return LK_OK;
}

static lk_status read_seconds(const char *what, const char *value, fault *f)
{
    double seconds;
    if (!lk__number_parse_double(value, &seconds) || !(seconds > 0 && seconds <= MAX_SECONDS))
        return lk__fail(LK_STATUS_USAGE, "%s: seconds=%s must be a number above 0, at most %g", what, value,
                        MAX_SECONDS);
    f->seconds = seconds;
    return LK_OK;
}

/* Keys of every action, then keys of single actions. */
static const key keys[] = {
    {"rank", NULL, 0, INT_MAX, offsetof(fault, rank)},
    {"step", NULL, 1, LLONG_MAX, offsetof(fault, step)},
    {"op", .read = read_op},
    {"nth", NULL, 1, LLONG_MAX, offsetof(fault, nth)},
    {"restart", NULL, 0, INT_MAX, offsetof(fault, restart)},
    {"seconds", .read = read_seconds},
    {"bit", NULL, 0, LLONG_MAX, offsetof(fault, bit)},
};
enum { COMMON_KEYS = 5, KEYS = sizeof keys / sizeof *keys };

/* Lists the keys of an action. */
static const char *next_key(const void *arg, size_t index)
{
    const action *a = arg;
    if (index < COMMON_KEYS)
        return keys[index].name;
    return index == COMMON_KEYS ? a->own_key : NULL;
}

/* Finds the row of a key of this action. */
static lk_status find_key(const char *what, const action *a, const char *name, size_t *row)
{
    const lk_names names = {.what = what, .kind = "key", .next = next_key, .arg = a};
    LK_TRY(lk__names_find(&names, name, row));
    if (*row == COMMON_KEYS)
        while (strcmp(keys[*row].name, a->own_key) != 0)
            (*row)++;
    assert(*row < KEYS);
    return LK_OK;
}

/* Copies a word of length characters that starts at `at`. */
static lk_status take_word(const char *at, size_t length, const char *kind, char word[MAX_WORD])
{
    location where;
    if (length == 0)
        return lk__fail(LK_STATUS_USAGE, "%s: %s is missing (write action:key=value,key=value;action...)",
                        location_of(at, where), kind);
    if (length >= MAX_WORD)
        return lk__fail(LK_STATUS_USAGE, "%s: %s of %zu characters is too long (at most %d)", location_of(at, where),
                        kind, length, MAX_WORD - 1);
    memcpy(word, at, length);
    word[length] = '\0';
    return LK_OK;
}

/* Reads the "key=value" at `at`; *end becomes the character after it. */
static lk_status read_key(const char *at, fault *f, unsigned *seen, const char **end)
{
    char name[MAX_WORD], value[MAX_WORD];
    location where;
    size_t row, length = strcspn(at, "=,;");
    LK_TRY(take_word(at, length, "a key", name));
    LK_TRY(find_key(location_of(at, where), f->action, name, &row));
    if (*seen >> row & 1)
        return lk__fail(LK_STATUS_USAGE, "%s: '%s' is given twice", where, name);
    *seen |= 1u << row;
    if (at[length] != '=')
        return lk__fail(LK_STATUS_USAGE, "%s: '%s' has no value (write %s=...)", where, name, name);
    at += length + 1;
    length = strcspn(at, ",;");
    LK_TRY(take_word(at, length, "a value", value));
    const key *k = &keys[row];
    location_of(at, where);
    LK_TRY(k->read ? k->read(where, value, f) : read_whole(where, k, value, f));
    *end = at + length;
    return LK_OK;
}

/* Reads the fault at `at`; *end becomes the ';' after it, or the end of the text. */
static lk_status read_fault(const char *at, fault *f, const char **end)
{
    char name[MAX_WORD];
    location where;
    size_t index, length = strcspn(at, ":;");
    unsigned seen = 0;
    LK_TRY(take_word(at, length, "an action", name));
    const lk_names names = {.what = location_of(at, where), .kind = "action", .next = next_action};
    LK_TRY(lk__names_find(&names, name, &index));
    f->action = &actions[index];
    f->rank = f->restart = f->bit = -1;
    f->nth = 1;
    if (f->action->moments == AT_FLIP)
        f->op = "step";
    const char *next = at + length;
    f->text = at;
    while (*next != ';' && *next != '\0')
        LK_TRY(read_key(next + 1, f, &seen, &next));
    if (f->action->needs_key && f->seconds == 0)
        return lk__fail(LK_STATUS_USAGE, "%s: %s needs %s=..., as in '%s:%s=2'", where, name, f->action->own_key, name,
                        f->action->own_key);
    f->text_length = (int)(next - at);
    *end = next;
    return LK_OK;
}

static lk_status read_faults(void)
{
    location where;
    for (const char *at = fault_text;; at++) {
        if (fault_count == MAX_FAULTS)
            return lk__fail(LK_STATUS_USAGE, "%s: there may be %d faults at most", location_of(at, where), MAX_FAULTS);
        LK_TRY(read_fault(at, &faults[fault_count++], &at));
        if (*at == '\0')
            return LK_OK;
    }
}

static lk_status read_variable(const char *text)
{
    size_t length = strlen(text);
    if (length == 0)
        return lk__fail(LK_STATUS_USAGE,
                        VARIABLE " is set, but empty: unset it, or name a fault, as in kill:rank=1,step=5");
    if (length >= sizeof fault_text)
        return lk__fail(LK_STATUS_USAGE, VARIABLE " has %zu characters, more than the %zu that are read", length,
                        sizeof fault_text - 1);
    memcpy(fault_text, text, length + 1);
    return read_faults();
}

static void load(void)
{
    const char *text = getenv(VARIABLE), *rank = getenv("RANK");
    long long number;
    if (!text)
        return;
    /* The launcher's $RANK holds until the group sets the rank. */
    if (rank && lk__number_parse_int(rank, 0, INT_MAX, &number))
        lk__fault_set_process((int)number);
    load_status = read_variable(text);
    if (load_status == LK_OK)
        atomic_store_explicit(&lk__fault_on, true, memory_order_release);
    else
        snprintf(load_detail, sizeof load_detail, "%s", lk_error_detail());
}

lk_status lk__fault_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return load_status == LK_OK ? LK_OK : lk__fail(load_status, "%s", load_detail);
}

const char *lk__fault_text(void)
{
    return atomic_load(&lk__fault_on) ? fault_text : "";
}

bool lk__fault_at(size_t index, lk_fault_info *out)
{
    if (!*lk__fault_text() || index >= fault_count)
        return false;
    const fault *f = &faults[index];
    long long before = restarts();
    *out = (lk_fault_info){.text = f->text,
                           .length = f->text_length,
                           .rank = (int)f->rank,
                           .struck = atomic_load(&f->seen) >= (uint64_t)f->nth,
                           .earlier = before > 0 && f->restart < before};
    return true;
}
