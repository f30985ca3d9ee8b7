/* grid.c - the cells of a sweep: values, names, command lines. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/spec.h"
#include "base/text.h"
#include "cli/job/launch.h"
#include "cli/sweep/sweep.h"
#include "nn/models/zoo.h"
#include "optim/optim.h"

/* Options of train that each cell has for itself, or that would let cells disturb each other. */
static const char *const own[] = {"log-dir", "checkpoint", "resume", "requeue",   "save-model",
                                  "serve",   "help",       "rank",   "node-rank", "trace-file"};

bool lk__sweep_takes(const char *option)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(option, own[i]) == 0)
            return false;
    return true;
}

static lk_status check_own(const char *option)
{
    if (!lk__sweep_takes(option))
        return lk__fail(LK_STATUS_USAGE,
                        "sweep: --%s is not possible in a sweep: every cell has a folder of its own, with its log, "
                        "its final model and, with --save-every, its checkpoints",
                        option);
    return LK_OK;
}

static lk_status add_value(lk_sweep_axis *axis, const char *text, size_t length)
{
    char *value;
    LK_TRY(LK_ALLOC(length + 1, "values of a sweep", &value));
    memcpy(value, text, length);
    axis->values[axis->count++] = value;
    if (!length)
        return lk__fail(LK_STATUS_USAGE, "sweep: --%s has an empty value", axis->option);
    for (size_t i = 0; i + 1 < axis->count; i++)
        if (strcmp(axis->values[i], value) == 0)
            return lk__fail(LK_STATUS_USAGE, "sweep: --%s has the value '%s' twice", axis->option, value);
    return LK_OK;
}

/* Values are separated by semicolons if the text has one, otherwise by commas. */
static lk_status split(lk_sweep_axis *axis, const char *text)
{
    const char *separator = strchr(text, ';') ? ";" : ",";
    LK_TRY(LK_ALLOC(strlen(text) + 1, "values of a sweep", &axis->values));
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, separator);
        LK_TRY(add_value(axis, at, length));
        at += length;
        if (!*at)
            return LK_OK;
    }
}

static lk_status add_axis(lk_sweep *sweep, const lk_options_swept *given)
{
    lk_sweep_axis *axis = &sweep->axes[sweep->axis_count];
    LK_TRY(check_own(given->row->name));
    if (given->row->kind == LK_OPTION_KIND_ALIAS)
        return lk__fail(LK_STATUS_USAGE, "sweep: --%s takes no value; sweep the option that it stands for",
                        given->row->name);
    LK_TRY(lk__mem_copy_text(given->row->name, "options of a sweep", &axis->option));
    sweep->axis_count++;
    LK_TRY(split(axis, given->text));
    if (sweep->cells > LK_SWEEP_MOST_CELLS / axis->count)
        return lk__fail(LK_STATUS_USAGE, "sweep: more than %d combinations", LK_SWEEP_MOST_CELLS);
    sweep->cells *= axis->count;
    return LK_OK;
}

static lk_status copy_words(lk_sweep *sweep, char *const *words)
{
    size_t count = 0;
    while (words[count])
        count++;
    LK_TRY(LK_ALLOC(count + 1, "words of a sweep", &sweep->words));
    for (; sweep->word_count < count; sweep->word_count++)
        LK_TRY(lk__mem_copy_text(words[sweep->word_count], "words of a sweep", &sweep->words[sweep->word_count]));
    return LK_OK;
}

/* A cell's line, parsed as train parses it, without the folder that the sweep adds. */
typedef struct parsed_cell {
    char **line;
    int count; /* of its words after "train" */
    lk_args *values;
    lk_options_set set;
    lk_options_parsed options;
} parsed_cell;

static void parsed_cell_fini(parsed_cell *p)
{
    lk__mem_free(p->values);
    if (p->line)
        lk__sweep_line_free(p->line);
}

static lk_status parse_cell(const lk_sweep *sweep, size_t cell, parsed_cell *p)
{
    int count = 0;
    p->set = lk__args_options("train", LK_CMD_TRAIN, 0);
    LK_TRY(lk__sweep_line(sweep, cell, &p->line));
    while (p->line[count])
        count++;
    LK_TRY(LK_ALLOC(1, "options of a cell", &p->values));
    /* Without "train", --log-dir and its value. */
    p->count = count - 3;
    return lk__options_parse(&p->set, p->count, p->line + 1, p->values, &p->options);
}

/* Reads the line with its file of options, as train does, and looks for the names in it. Data and devices are left to
 * the cell, which may run on another host. */
static lk_status check_names(parsed_cell *p)
{
    lk_model_shape shape;
    int ranks;
    LK_TRY(lk__args_parse(&p->set, p->count, p->line + 1, p->values));
    const char *nproc = p->values->run.nproc;
    LK_TRY(lk__model_usual_shape(p->values->train.model, &shape));
    if (lk__optim_default_lr(p->values->train.optimizer) == 0)
        return LK_STATUS_USAGE;
    if (nproc && strcmp(nproc, "gpu") != 0)
        LK_TRY(lk__cli_launch_ranks("train", nproc, &ranks));
    lk__args_release();
    return LK_OK;
}

static lk_status check_cell(const lk_sweep *sweep, size_t cell)
{
    parsed_cell p = {0};
    lk_status status = parse_cell(sweep, cell, &p);
    for (size_t i = 0; status == LK_OK && i < sizeof own / sizeof *own; i++)
        if (lk__options_given(&p.set, &p.options, own[i]))
            status = check_own(own[i]);
    if (status == LK_OK)
        status = check_names(&p);
    parsed_cell_fini(&p);
    return status;
}

lk_status lk__sweep_cores(const lk_sweep *sweep, size_t cell, long long *out)
{
    parsed_cell p = {0};
    long long ranks = 0;
    lk_status status = parse_cell(sweep, cell, &p);
    if (status == LK_OK) {
        int threads = p.values->train.threads;
        bool given = p.values->run.nproc && lk__number_parse_int(p.values->run.nproc, 1, 4096, &ranks);
        *out = given || threads ? (given ? ranks : 1) * (threads ? threads : 1) : 0;
    }
    parsed_cell_fini(&p);
    return status;
}

/* Whether a word of a command line gives the option, under any name. */
static bool gives(const lk_options_set *set, const char *word, const lk_option *row)
{
    size_t length = strcspn(word, "=");
    const char *fixed;
    if (word[0] != '-' || !word[1])
        return false;
    const lk_option *found =
        word[1] == '-' ? lk__options_find_name(set, word + 2, length - 2) : lk__options_find_letter(set, word[1]);
    const lk_options_foreign *foreign = found ? NULL : lk__options_find_foreign(set, word);
    if (foreign)
        found = lk__options_foreign_option(set, foreign, &fixed);
    return found && lk__options_same(found, row);
}

/* Refuses an option that has a list before train and a value after it. Values of a file (--config) yield to the list.
 */
static lk_status check_twice(const lk_sweep *sweep, const lk_options_swept *given)
{
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    for (size_t i = 0; i < sweep->word_count; i++) {
        const char *word = sweep->words[i], *next = i + 1 < sweep->word_count ? sweep->words[i + 1] : "";
        bool alone = strchr(word, '=') || (word[0] == '-' && word[1] != '-' && word[2]) || next[0] == '-' || !*next;
        if (gives(&set, word, given->row))
            return lk__fail(LK_STATUS_USAGE,
                            "sweep: --%s %s before train and %s%s%s after it contradict each other; give one",
                            given->row->name, given->text, word, alone ? "" : " ", alone ? "" : next);
    }
    return LK_OK;
}

static lk_status fill(const lk_args *args, lk_sweep *sweep)
{
    sweep->cells = 1;
    LK_TRY(lk__mem_copy_text(args->output, "folder of a sweep", &sweep->dir));
    LK_TRY(copy_words(sweep, args->run.program + 1));
    for (size_t i = 0; i < args->swept_count; i++)
        LK_TRY(add_axis(sweep, &args->swept[i]));
    for (size_t i = 0; i < args->swept_count; i++)
        LK_TRY(check_twice(sweep, &args->swept[i]));
    for (size_t cell = 0; cell < sweep->cells; cell++)
        LK_TRY(check_cell(sweep, cell));
    return LK_OK;
}

lk_status lk__sweep_create(const lk_args *args, lk_sweep **out)
{
    lk_sweep *sweep;
    if (strcmp(args->run.program[0], "train") != 0)
        return lk__fail(LK_STATUS_USAGE, "sweep: '%s' cannot be swept, only train: lockstep sweep --lr .1,.01 -- train",
                        args->run.program[0]);
    if (!args->swept_count)
        return lk__fail(LK_STATUS_USAGE, "sweep: no option has a list; write one before train, as in 'lockstep sweep "
                                         "--nproc 1,2 -- train'");
    LK_TRY(LK_ALLOC(1, "sweep", &sweep));
    lk_status status = fill(args, sweep);
    if (status == LK_OK)
        *out = sweep;
    else
        lk__sweep_destroy(sweep);
    return status;
}

void lk__sweep_destroy(lk_sweep *sweep)
{
    if (!sweep)
        return;
    for (size_t a = 0; a < sweep->axis_count; a++) {
        for (size_t i = 0; i < sweep->axes[a].count; i++)
            lk__mem_free(sweep->axes[a].values[i]);
        lk__mem_free(sweep->axes[a].values);
        lk__mem_free(sweep->axes[a].option);
    }
    for (size_t i = 0; i < sweep->word_count; i++)
        lk__mem_free(sweep->words[i]);
    lk__mem_free(sweep->words);
    lk__mem_free(sweep->dir);
    lk__mem_free(sweep);
}

const char *lk__sweep_value(const lk_sweep *sweep, size_t cell, size_t axis)
{
    for (size_t a = sweep->axis_count - 1; a > axis; a--)
        cell /= sweep->axes[a].count;
    return sweep->axes[axis].values[cell % sweep->axes[axis].count];
}

static bool is_plain(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._=,-", c));
}

/* Room for the hash of a name that was changed. */
enum { HASH_BYTES = 18 };

/* Appends text with '_' for characters that a name does not have; false if it was changed. */
static bool add_plain(const char *text, char out[LK_SWEEP_CELL], size_t *used)
{
    bool same = true;
    for (; *text; text++) {
        if (*used == LK_SWEEP_CELL - HASH_BYTES)
            return false;
        same &= is_plain(*text);
        out[(*used)++] = *text;
        if (!is_plain(*text))
            out[*used - 1] = '_';
    }
    return same;
}

void lk__sweep_name(const lk_sweep *sweep, size_t cell, char out[LK_SWEEP_CELL])
{
    uint64_t hash = 0;
    size_t used = 0;
    bool changed = false;
    for (size_t a = 0; a < sweep->axis_count; a++) {
        const char *parts[] = {a ? "," : "", sweep->axes[a].option, "=", lk__sweep_value(sweep, cell, a)};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            hash = lk__hash(parts[p], strlen(parts[p]), hash);
            changed |= !add_plain(parts[p], out, &used);
        }
    }
    out[used] = 0;
    if (changed)
        snprintf(out + used, HASH_BYTES, "-%08x", (unsigned)hash);
}

lk_status lk__sweep_path(const lk_sweep *sweep, size_t cell, const char *file, char *out, size_t bytes)
{
    char name[LK_SWEEP_CELL], folder[LK_PATH_BYTES];
    lk__sweep_name(sweep, cell, name);
    if (!lk__path_join(sweep->dir, name, file ? folder : out, file ? sizeof folder : bytes) ||
        (file && !lk__path_join(folder, file, out, bytes)))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", sweep->dir);
    return LK_OK;
}

void lk__sweep_title(const lk_sweep *sweep, size_t cell, char *out, size_t bytes)
{
    size_t used = 0;
    *out = 0;
    for (size_t a = 0; a < sweep->axis_count && used < bytes; a++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s %s", a ? ", " : "", sweep->axes[a].option,
                                 lk__sweep_value(sweep, cell, a));
    lk__text_clean(out, LK_TEXT_KIND_LINE);
}

static lk_status add_word(char **line, size_t *count, const char *text)
{
    LK_TRY(lk__mem_copy_text(text, "words of a cell", &line[*count]));
    ++*count;
    return LK_OK;
}

static lk_status add_option(const lk_sweep *sweep, size_t cell, size_t axis, char **line, size_t *count)
{
    const char *option = sweep->axes[axis].option, *value = lk__sweep_value(sweep, cell, axis);
    size_t bytes = strlen(option) + strlen(value) + 4;
    LK_TRY(lk__mem_alloc(bytes, 1, "words of a cell", (void **)&line[*count]));
    snprintf(line[*count], bytes, "--%s=%s", option, value);
    ++*count;
    return LK_OK;
}

lk_status lk__sweep_line(const lk_sweep *sweep, size_t cell, char ***out)
{
    char folder[LK_PATH_BYTES], **line;
    size_t count = 0;
    LK_TRY(lk__sweep_path(sweep, cell, NULL, folder, sizeof folder));
    LK_TRY(LK_ALLOC(sweep->word_count + sweep->axis_count + 4, "words of a cell", &line));
    lk_status status = add_word(line, &count, "train");
    for (size_t i = 0; status == LK_OK && i < sweep->word_count; i++)
        status = add_word(line, &count, sweep->words[i]);
    for (size_t a = 0; status == LK_OK && a < sweep->axis_count; a++)
        status = add_option(sweep, cell, a, line, &count);
    if (status == LK_OK)
        status = add_word(line, &count, "--log-dir");
    if (status == LK_OK)
        status = add_word(line, &count, folder);
    if (status == LK_OK)
        *out = line;
    else
        lk__sweep_line_free(line);
    return status;
}

void lk__sweep_line_free(char **line)
{
    for (size_t i = 0; line[i]; i++)
        lk__mem_free(line[i]);
    lk__mem_free(line);
}
