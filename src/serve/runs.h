/* runs.h - the runs of a folder and what is newest in each: the list of the live page.
 *
 * Only the ends of files are read, and only of files that have changed. One thread uses an lk_runs. */
#ifndef LK_SERVE_RUNS_H
#define LK_SERVE_RUNS_H

#include <stdint.h>

#include "record/read.h"
#include "serve/body.h"

enum { LK_RUNS_PATH = 4096 };

typedef struct lk_runs_entry {
    char *name, *folder;
    uint64_t stamp;    /* changes when one of the run's files does */
    lk_record *record; /* run.json and the newest rows; NULL: unreadable */
} lk_runs_entry;

typedef struct lk_runs lk_runs;
/* `folder` contains run folders, or is one itself. A folder that does not exist has no runs. */
lk_status lk__runs_create(const char *folder, lk_runs **out) LK_CHECKED;
void lk__runs_destroy(lk_runs *runs);

/* Looks for changes in the folder, if the last look was a second ago. Looks take at most a twentieth of a processor;
 * what is new is read in addition. */
void lk__runs_scan(lk_runs *runs);
/* Valid until the next scan; NULL: there is no such run. Only names that a scan has found are found. */
const lk_runs_entry *lk__runs_find(const lk_runs *runs, const char *name);

/* Changes when a run does, or when a run is added or removed. */
uint64_t lk__runs_version(const lk_runs *runs);
/* Writes a JSON object: folder, version, and a row for each run that has changed since the version in `since`. "all" is
 * true if `since` is no version of this server or a run was removed: then all runs are there. */
void lk__runs_write(const lk_runs *runs, const char *since, lk_body *body);

#endif
