/* requeue.c - asks scontrol, with a deadline, and reads what it prints. */
#include "cli/job/requeue.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/spec.h"
#include "launch/executable.h"

/* Seconds that a request may take: scontrol repeats it while the controller of the cluster is busy. */
static const double REQUEUE_SECONDS = 20;
/* Seconds for the state of the job; a question that fails is repeated. */
static const double SHOW_SECONDS = 10;
static const long SHOW_PAUSE_NS = 500 * 1000 * 1000;

enum { LINE_BYTES = 8192 };

#define SCRIPT_LINE "sbatch --requeue --signal=USR1@120 SCRIPT"

const char *lk__requeue_job(void)
{
    const char *job = getenv("SLURM_JOB_ID");
    long long number;
    return job && lk__number_parse_int(job, 1, 1LL << 40, &number) ? job : NULL;
}

lk_status lk__requeue_check(void)
{
    char path[LK_EXECUTABLE_BYTES];
    if (!lk__requeue_job())
        return lk__fail(LK_STATUS_USAGE, "train: `requeue` puts a job of Slurm back into its queue, and this process "
                                         "belongs to none (SLURM_JOB_ID is not set): leave it out, or submit the line "
                                         "in a script: " SCRIPT_LINE);
    if (lk__executable_find("scontrol", path) != LK_OK)
        return lk__fail(LK_STATUS_USAGE,
                        "train: `requeue` asks Slurm by its program scontrol, which is in no folder of $PATH on this "
                        "node: add its folder to $PATH, or leave `requeue` out");
    return LK_OK;
}

/* Fails with the command that was run. */
static lk_status fail_scontrol(const char *const *argv, const char *why)
{
    char line[128] = "";
    for (size_t used = 0; *argv && used < sizeof line; argv++, used = strlen(line))
        snprintf(line + used, sizeof line - used, "%s%s", used ? " " : "", *argv);
    return lk__fail(LK_STATUS_IO, "%s: %s", line, why);
}

/* Runs scontrol with the words, for at most `timeout` seconds; line gets the first line that it printed. */
static lk_status run_scontrol(const char *const *argv, double timeout, char line[LINE_BYTES])
{
    lk_child_output answer;
    lk_status status = lk__child_run((char *const *)(uintptr_t)argv, "", 0, timeout, &answer);
    if (status != LK_OK)
        return fail_scontrol(argv, lk_error_detail());
    if (answer.status != 0) {
        const char *words = lk__child_last_words(&answer);
        status = fail_scontrol(argv, *words ? words : "failed without a word");
    } else {
        snprintf(line, LINE_BYTES, "%.*s", (int)strcspn((char *)answer.out, "\r\n"), (char *)answer.out);
    }
    lk__child_output_free(&answer);
    return status;
}

/* The value of NAME=VALUE in the line that `scontrol show` printed; "" if there is none. */
static const char *find_value(const char *line, const char *name, char value[64])
{
    size_t length = strlen(name);
    const char *at = line;
    while ((at = strstr(at, name)) != NULL && !((at == line || at[-1] == ' ') && at[length] == '='))
        at += length;
    at = at ? at + length + 1 : "";
    snprintf(value, 64, "%.*s", (int)strcspn(at, " "), at);
    return value;
}

/* The line of Slurm about this job. */
static lk_status show_job(double timeout, char line[LINE_BYTES])
{
    return run_scontrol((const char *const[]){"scontrol", "show", "-o", "job", lk__requeue_job(), NULL}, timeout, line);
}

lk_status lk__requeue_expect(void)
{
    char line[LINE_BYTES], value[64];
    lk_status status = show_job(SHOW_SECONDS, line);
    if (status != LK_OK)
        return lk__fail(status,
                        "it is not known whether Slurm would requeue job %s (%s); the run begins, and asks Slurm when "
                        "a signal stops it",
                        lk__requeue_job(), lk_error_detail());
    if (strcmp(find_value(line, "BatchFlag", value), "0") == 0)
        return lk__fail(LK_STATUS_IO, "Slurm requeues batch jobs only, and job %s is none: submit it with " SCRIPT_LINE,
                        lk__requeue_job());
    if (strcmp(find_value(line, "Requeue", value), "0") == 0)
        return lk__fail(LK_STATUS_IO,
                        "job %s was submitted so that Slurm does not requeue it (Requeue=0): submit it "
                        "with " SCRIPT_LINE,
                        lk__requeue_job());
    return LK_OK;
}

/* Writes the state of the job, as in RUNNING; "" if Slurm does not say it in time. */
static void find_state(char state[64])
{
    char line[LINE_BYTES] = "";
    double deadline = lk__clock() + SHOW_SECONDS;
    while (show_job(deadline - lk__clock(), line) != LK_OK && lk__clock() < deadline) {
        *line = '\0';
        nanosleep(&(struct timespec){.tv_nsec = SHOW_PAUSE_NS}, NULL);
    }
    find_value(line, "JobState", state);
}

/* scancel sends SIGTERM too, and scontrol would bring the cancelled job back. A state that is unknown stops nothing:
 * the controller may answer the next question. */
lk_status lk__requeue_ask(void)
{
    char line[LINE_BYTES], state[64];
    find_state(state);
    if (*state && strcmp(state, "RUNNING") != 0)
        return lk__fail(LK_STATUS_IO,
                        "Slurm is ending job %s already (JobState=%s), so it is not requeued; if it came to its time "
                        "limit, let Slurm send a signal earlier: " SCRIPT_LINE,
                        lk__requeue_job(), state);
    return run_scontrol((const char *const[]){"scontrol", "requeue", lk__requeue_job(), NULL}, REQUEUE_SECONDS, line);
}
