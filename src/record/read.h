/* read.h - reads run folders, while a run writes them or later: run.json, metrics.jsonl and ranks.jsonl.
 *
 * A reader needs the files only, so the folder may be a copy on another machine. Rows are kept as columns of
 * doubles. lk__record_refresh reads what has been added since the last call. One thread at a time may use an
 * lk_record. */
#ifndef LK_RECORD_READ_H
#define LK_RECORD_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/status.h"

/* The value of "format" in run.json. */
extern const char lk__record_format[];

/* Numbers of a row. The same names are the keys of the JSON rows and the heads of metrics.csv. */
typedef enum lk_record_column {
    LK_RECORD_COLUMN_STEP,      /* optimiser steps done */
    LK_RECORD_COLUMN_EPOCH,     /* steps divided by steps of an epoch */
    LK_RECORD_COLUMN_LOSS,      /* mean over the samples */
    LK_RECORD_COLUMN_TOP1,      /* percent */
    LK_RECORD_COLUMN_TOP5,      /* percent */
    LK_RECORD_COLUMN_LR,        /* of this step */
    LK_RECORD_COLUMN_GRAD_NORM, /* of the whole model's gradient, before clipping */
    LK_RECORD_COLUMN_IMG_PER_S,
    LK_RECORD_COLUMN_SECONDS,     /* since training began, with those before a resume */
    LK_RECORD_COLUMN_RANK,        /* this column and those below: ranks only */
    LK_RECORD_COLUMN_WAIT_PCT,    /* percent of the time since the row before: waiting for other ranks */
    LK_RECORD_COLUMN_DATA_PCT,    /* the same: waiting for samples */
    LK_RECORD_COLUMN_COMPUTE_PCT, /* the same: computing */
    LK_RECORD_COLUMN_CPU_PCT,     /* percent of one core; 200: two cores are busy */
    LK_RECORD_COLUMN_MEMORY_MB,   /* of the rank's process, in units of 10^6 bytes, as GPU_MEMORY_MB */
    LK_RECORD_COLUMN_GPU_PCT,
    LK_RECORD_COLUMN_GPU_MEMORY_MB,
    LK_RECORD_COLUMN_GPU_CELSIUS,
    LK_RECORD_COLUMN_COUNT
} lk_record_column;
/* "step", "epoch" ... "gpu_celsius". */
const char *lk__record_column_name(lk_record_column column);

/* Rows of one kind, oldest first. */
typedef enum lk_record_kind {
    LK_RECORD_KIND_TRAIN, /* metrics.jsonl, training */
    LK_RECORD_KIND_TEST,  /* metrics.jsonl, evaluation on test data */
    LK_RECORD_KIND_VAL,   /* metrics.jsonl, evaluation on validation data */
    LK_RECORD_KIND_RANKS, /* ranks.jsonl: one row for each rank at each step */
    LK_RECORD_KIND_COUNT
} lk_record_kind;
/* "train", "test", "val", "ranks". */
const char *lk__record_kind_name(lk_record_kind kind);

typedef struct lk_record_table {
    size_t count;
    /* (count) each; NULL if no row has this column. A number that a row lacks is NaN; so is one that is not finite. */
    double *column[LK_RECORD_COLUMN_COUNT];
    uint32_t *mask; /* (count) bit 1 << column: the row has this column */
    size_t room;    /* rows for which memory is allocated */
} lk_record_table;

typedef struct lk_record lk_record;

/* Reads a run folder. NOT_FOUND if `folder` or its run.json does not exist; FORMAT with "PATH:LINE:" for
 * malformed content. Row files that do not exist yet have no rows. The last line of a file is ignored until it
 * is complete. */
lk_status lk__record_open(const char *folder, lk_record **out) LK_CHECKED;

/* For readers that must answer quickly, whatever the size of the files. */
typedef struct lk_record_limits {
    /* The first call begins about so many bytes before the end of a row file, early enough for one row, and tables
     * hold only the rows that the last call has read. 0: all rows are read and kept. */
    size_t tail;
    size_t bytes;  /* of metrics.jsonl that one call reads, about; 0: no limit */
    bool no_ranks; /* ranks.jsonl is not read */
} lk_record_limits;
/* As lk__record_open, within limits. */
lk_status lk__record_open_within(const char *folder, lk_record_limits limits, lk_record **out) LK_CHECKED;
/* Whether the last call has read to the end; false only with limits.bytes. The next call reads on. */
bool lk__record_is_complete(const lk_record *record);
void lk__record_close(lk_record *record);

/* Reads what has changed. *again is true if rows were removed (the run was resumed from an earlier step): then
 * all rows have been read again, and indices from before are void. After a failure the record keeps the rows that it
 * could read; the folder may have been removed (NOT_FOUND). Borrowed pointers from earlier calls are void. */
lk_status lk__record_refresh(lk_record *record, bool *again) LK_CHECKED;

/* The folder, as given to lk__record_open. This pointer and those below are borrowed from the record. */
const char *lk__record_folder(const lk_record *record);
/* run.json, an object. */
const cJSON *lk__record_run(const lk_record *record);
const lk_record_table *lk__record_table(const lk_record *record, lk_record_kind kind);
/* The newest line of ranks.jsonl, with the names of hosts and devices; NULL if there is none. */
const cJSON *lk__record_last_ranks(const lk_record *record);

/* Whether the folder has a run.json. */
bool lk__record_is_run(const char *folder);
/* Names of the run folders directly inside a folder, sorted. Names begin with date and time: oldest first. */
typedef struct lk_record_list {
    size_t count;
    char **names; /* (count) */
} lk_record_list;
/* A folder without run folders gives an empty list; NOT_FOUND if `dir` does not exist. */
lk_status lk__record_list(const char *dir, lk_record_list **out) LK_CHECKED;
void lk__record_list_destroy(lk_record_list *list);

#endif
