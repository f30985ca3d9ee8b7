/* obtain.h - a data set as a whole: fetched into a folder, unpacked, verified. */
#ifndef LK_DATA_DOWNLOAD_OBTAIN_H
#define LK_DATA_DOWNLOAD_OBTAIN_H

#include "data/download/download.h"
#include "data/sets/dataset.h"
#include "data/sets/sources.h"

/* Where the files of a source go: below dir or, when that is NULL, the user's
 * cache, in the folder that opening the data set looks for there. */
lk_status lk__source_folder(const lk_source *source, const char *dir, char folder[LK_MAX_PATH]) LK_CHECKED;

/* Where training finds the data set, "" for one that is built in. NOT_FOUND lists
 * where it looked. */
lk_status lk__source_locate(const char *name, const char *dir, char folder[LK_MAX_PATH]) LK_CHECKED;

/* What verifying one file has found: status is LK_OK, or the thread's error
 * detail says what is wrong with it. */
typedef struct lk_obtain_verdict {
    const char *path;
    lk_status status;
    const char *remark; /* on a file that is right: how it differs from the published one, or "" */
} lk_obtain_verdict;
typedef void (*lk_obtain_verdict_fn)(void *arg, const lk_obtain_verdict *verdict);

/* Checks each file that training would read from the folder. *right: all are what
 * was published. Fails only where nothing can be checked. */
lk_status lk__source_verify(const lk_source *source, const char *folder, lk_obtain_verdict_fn tell, void *arg,
                            bool *right) LK_CHECKED;

typedef struct lk_obtain_opts {
    const char *folder; /* made where it is missing */
    const char *server; /* URL of a folder to fetch from, instead of the source's own; or NULL */
    lk_download_limits limits;
    lk_download_watch watch;
} lk_obtain_opts;

/* What was needed: nothing at all where all files were there already. */
typedef struct lk_obtain_result {
    size_t fetched;  /* files */
    size_t bytes;    /* of those */
    size_t unpacked; /* files out of archives, which are removed afterwards */
} lk_obtain_result;

/* Fetches what of the source is not in the folder yet, or is wrong there. */
lk_status lk__obtain(const lk_source *source, const lk_obtain_opts *opts, lk_obtain_result *out) LK_CHECKED;

#endif
