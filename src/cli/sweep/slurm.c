/* slurm.c - cells as jobs of Slurm. sbatch gets a script of one line on its stdin. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/spec.h"
#include "cli/sweep/sweep.h"

/* Seconds for an answer of sbatch and squeue. */
enum { TIMEOUT = 60, MOST_WORDS = 64 };

void lk__sweep_put_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fprintf(out, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', out);
}

/* The path of this program. */
static lk_status find_self(char path[LK_PATH_BYTES])
{
    ssize_t bytes = readlink("/proc/self/exe", path, LK_PATH_BYTES - 1);
    if (bytes < 0)
        return lk__fail(LK_STATUS_IO, "sweep: the path of this program cannot be read in /proc/self/exe: %s",
                        strerror(errno));
    path[bytes] = 0;
    return LK_OK;
}

static lk_status write_script(const lk_sweep *sweep, size_t cell, char **script, size_t *bytes)
{
    char self[LK_PATH_BYTES], **line;
    LK_TRY(find_self(self));
    LK_TRY(lk__sweep_line(sweep, cell, &line));
    FILE *out = open_memstream(script, bytes);
    if (out) {
        fprintf(out, "#!/bin/sh\nexec ");
        lk__sweep_put_word(self, out);
        for (size_t i = 0; line[i]; i++) {
            fputc(' ', out);
            lk__sweep_put_word(line[i], out);
        }
        fputc('\n', out);
    }
    lk__sweep_line_free(line);
    return out && fclose(out) == 0 ? LK_OK : lk__fail_memory(0, "script for Slurm");
}

/* The file of the job's output; in sbatch's patterns '%' is written twice. */
static lk_status write_output_option(const lk_sweep *sweep, size_t cell, char *out, size_t bytes)
{
    char path[LK_PATH_BYTES];
    LK_TRY(lk__sweep_path(sweep, cell, "output.txt", path, sizeof path));
    size_t used = (size_t)snprintf(out, bytes, "--output=");
    for (const char *c = path; *c && used + 3 < bytes; c++) {
        out[used++] = *c;
        if (*c == '%')
            out[used++] = '%';
    }
    out[used] = 0;
    return LK_OK;
}

/* Splits options at blanks, in place, and appends the words to argv. */
static lk_status add_options(char *options, char **argv, size_t *count)
{
    char *rest = NULL;
    for (char *word = strtok_r(options, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        if (*count + 1 == MOST_WORDS)
            return lk__fail(LK_STATUS_USAGE, "sweep: --slurm has more words than the %d that it may have",
                            MOST_WORDS - 8);
        argv[(*count)++] = word;
    }
    return LK_OK;
}

/* Without the file, the next start of the sweep would not know that the job runs, and submit another one. */
static lk_status save_job(const lk_sweep *sweep, size_t cell, long long job)
{
    char path[LK_PATH_BYTES];
    LK_TRY(lk__sweep_path(sweep, cell, LK_SWEEP_JOB_FILE, path, sizeof path));
    FILE *file = fopen(path, "w");
    bool written = file && fprintf(file, "%lld\n", job) > 0;
    if (file)
        written &= fclose(file) == 0;
    return written ? LK_OK
                   : lk__fail(LK_STATUS_IO,
                              "sweep: job %lld was submitted, but %s cannot be written: %s; cancel it with 'scancel "
                              "%lld' before you start the sweep again",
                              job, path, strerror(errno), job);
}

static lk_status read_answer(lk_child_output *answer, long long *job)
{
    char text[32];
    /* "123" or, in a federation, "123;cluster". */
    snprintf(text, sizeof text, "%.*s", (int)strcspn((char *)answer->out, ";\n"), (char *)answer->out);
    if (answer->status == 0 && lk__number_parse_int(text, 1, INT64_MAX, job))
        return LK_OK;
    return lk__fail(LK_STATUS_PEER, "sweep: sbatch refused the job: %s", lk__child_last_words(answer));
}

static lk_status submit(char *const *argv, const char *script, size_t bytes, long long *job)
{
    lk_child_output answer;
    lk_status status = lk__child_run(argv, script, bytes, TIMEOUT, &answer);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "sweep: --slurm needs sbatch, and there is none in $PATH; without --slurm "
                        "the cells run here");
    LK_TRY(status);
    status = read_answer(&answer, job);
    lk__child_output_free(&answer);
    return status;
}

/* One task with a core for each thread of each rank: train starts the ranks itself. Options of the user come last and
 * win. */
lk_status lk__sweep_submit(const lk_sweep *sweep, size_t cell, const char *options, long long *job)
{
    char name[LK_SWEEP_CELL + 16], output[LK_PATH_BYTES + 16], folder[LK_PATH_BYTES], cores[64] = "--ntasks=1";
    char *argv[MOST_WORDS] = {"sbatch", "--parsable", "--nodes=1", "--ntasks=1", cores, name, output};
    char *script = NULL, *copy;
    size_t bytes = 0, count = 7;
    long long wanted = 0;
    LK_TRY(lk__sweep_path(sweep, cell, NULL, folder, sizeof folder));
    LK_TRY(lk__folder_make(folder));
    LK_TRY(lk__sweep_clear(sweep, cell));
    LK_TRY(write_output_option(sweep, cell, output, sizeof output));
    snprintf(name, sizeof name, "--job-name=");
    lk__sweep_name(sweep, cell, name + strlen(name));
    LK_TRY(lk__sweep_cores(sweep, cell, &wanted));
    if (wanted)
        snprintf(cores, sizeof cores, "--cpus-per-task=%lld", wanted);
    LK_TRY(lk__mem_copy_text(options, "options of sbatch", &copy));
    lk_status status = add_options(copy, argv, &count);
    if (status == LK_OK)
        status = write_script(sweep, cell, &script, &bytes);
    if (status == LK_OK)
        status = submit(argv, script, bytes, job);
    if (status == LK_OK)
        status = save_job(sweep, cell, *job);
    free(script);
    lk__mem_free(copy);
    return status;
}

/* The number in the cell's folder; 0 if there is none. */
static lk_status read_job(const lk_sweep *sweep, size_t cell, long long *job)
{
    char path[LK_PATH_BYTES], text[32];
    uint8_t *content;
    size_t bytes;
    *job = 0;
    LK_TRY(lk__sweep_path(sweep, cell, LK_SWEEP_JOB_FILE, path, sizeof path));
    if (!lk__file_exists(path))
        return LK_OK;
    LK_TRY(lk__file_read(path, 31, &content, &bytes));
    snprintf(text, sizeof text, "%.*s", (int)bytes, (char *)content);
    lk__mem_free(content);
    text[strcspn(text, "\n")] = 0;
    return lk__number_parse_int(text, 1, INT64_MAX, job)
               ? LK_OK
               : lk__fail(LK_STATUS_FORMAT, "%s has no number of a job", path);
}

/* Marks the jobs that squeue lists, a number on each line. */
static void mark_living(const lk_sweep *sweep, char *list, lk_sweep_job *jobs)
{
    char *rest = NULL;
    for (char *line = strtok_r(list, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        long long number = 0;
        line[strcspn(line, " \t")] = 0;
        if (!lk__number_parse_int(line, 1, INT64_MAX, &number))
            continue;
        for (size_t i = 0; i < sweep->cells; i++)
            jobs[i].lives |= jobs[i].number == number;
    }
}

/* Asks squeue about a list of numbers. It leaves out those that it does not know, and fails if it knows none. */
static lk_status ask(const lk_sweep *sweep, char *numbers, lk_sweep_job *jobs)
{
    char *argv[] = {"squeue", "--noheader", "--format=%A", "--jobs", numbers, NULL};
    lk_child_output answer;
    lk_status status = lk__child_run(argv, "", 0, TIMEOUT, &answer);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "sweep: cells of %s were submitted to Slurm, and without squeue in $PATH "
                        "it cannot be known whether they still run; use a host that has it",
                        sweep->dir);
    LK_TRY(status);
    if (answer.status != 0 && !strstr((char *)answer.err, "Invalid job id"))
        status = lk__fail(LK_STATUS_PEER, "sweep: squeue does not say which jobs still run: %s",
                          lk__child_last_words(&answer));
    else
        mark_living(sweep, (char *)answer.out, jobs);
    lk__child_output_free(&answer);
    return status;
}

lk_status lk__sweep_jobs(const lk_sweep *sweep, lk_sweep_job *jobs)
{
    enum { DIGITS = 21 };
    char *numbers;
    size_t used = 0;
    for (size_t i = 0; i < sweep->cells; i++) {
        jobs[i] = (lk_sweep_job){0};
        LK_TRY(read_job(sweep, i, &jobs[i].number));
    }
    LK_TRY(LK_ALLOC(sweep->cells * DIGITS + 1, "numbers of jobs", &numbers));
    for (size_t i = 0; i < sweep->cells; i++)
        if (jobs[i].number)
            used += (size_t)snprintf(numbers + used, DIGITS + 1, "%s%lld", used ? "," : "", jobs[i].number);
    lk_status status = used ? ask(sweep, numbers, jobs) : LK_OK;
    lk__mem_free(numbers);
    return status;
}
