/* launchers.h - the rows of task.h: which variables each launcher sets. Private to detect. */
#ifndef LK_COMM_DETECT_LAUNCHERS_H
#define LK_COMM_DETECT_LAUNCHERS_H

#include "comm/detect/task.h"

enum { LK_LAUNCHER_VARIABLES = 12, LK_LAUNCHER_NAMES = 4 };

typedef struct lk_launcher_reader {
    lk_task_lookup lookup;
    void *arg;
} lk_launcher_reader;

/* The value of a variable; NULL if it is unset or empty. */
const char *lk__launcher_get(const lk_launcher_reader *reader, const char *name);
/* The number in [0,2^24] of the first of these variables that has one; -1: none. *name (may be NULL) gets its name. */
int lk__launcher_number(const lk_launcher_reader *reader, const char *const *names, const char **name);
/* Sets a value; source is a variable or a derivation. */
void lk__launcher_set(lk_task_value *value, int number, const char *text, const char *source);

typedef struct lk_launcher_row {
    lk_launcher launcher;
    bool torchrun;
    /* Optional: whether these variables are those of a task. */
    bool (*started)(const lk_launcher_reader *reader);
    struct {
        lk_task_quantity what;
        const char *names[LK_LAUNCHER_NAMES]; /* the first one that is set counts */
    } variables[LK_LAUNCHER_VARIABLES];       /* names[0] is NULL after the last */
    /* Optional: derives more values of a task from several variables. */
    void (*derive)(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT]);
    /* Optional: fills the allocation if the process runs in one. */
    void (*allocate)(const lk_launcher_reader *reader, lk_task_allocation *out);
} lk_launcher_row;

/* Rows from the innermost launcher to the outermost; NULL after the last. */
const lk_launcher_row *lk__launcher_list(size_t index);

/* The nearest ancestor of this process that was started without this variable: the launcher's process on this host,
 * also if the tasks are scripts that start the program. 0: unknown. */
long lk__launcher_process(const char *variable);

/* The functions of the rows of PMI, PMIx, Slurm and PBS. */
bool lk__launcher_pmi_started(const lk_launcher_reader *reader);
bool lk__launcher_pmix_started(const lk_launcher_reader *reader);
bool lk__launcher_slurm_started(const lk_launcher_reader *reader);
void lk__launcher_slurm_derive(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT]);
void lk__launcher_slurm_allocate(const lk_launcher_reader *reader, lk_task_allocation *out);
/* The index of the job in a job array; not part of the row, because the elements of an array are jobs of their own. */
void lk__launcher_slurm_array(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT]);
bool lk__launcher_pbs_started(const lk_launcher_reader *reader);
void lk__launcher_pbs_derive(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT]);
void lk__launcher_pbs_allocate(const lk_launcher_reader *reader, lk_task_allocation *out);

#endif
