/* obtain.h - obtains a whole data set: downloads, unpacks and verifies its files. */
#ifndef LK_DATA_DOWNLOAD_OBTAIN_H
#define LK_DATA_DOWNLOAD_OBTAIN_H

#include "data/download/download.h"
#include "data/sets/dataset.h"
#include "data/sets/sources.h"

/* The folder for a source's files: below dir, or below the user's cache if dir is NULL, where
 * opening the data set looks for it. */
lk_status lk__source_folder(const lk_source *source, const char *dir, char folder[LK_MAX_PATH]) LK_CHECKED;

/* Where training finds the data set; "" for a built-in one. NOT_FOUND lists where it looked. */
lk_status lk__source_locate(const char *name, const char *dir, char folder[LK_MAX_PATH]) LK_CHECKED;

/* The result of verifying one file: status is LK_OK, or the thread's error detail says what is
 * wrong. */
typedef struct lk_obtain_verdict {
    const char *path;
    lk_status status;
    const char *remark; /* for a correct file: how it differs from the published one, or "" */
} lk_obtain_verdict;
typedef void (*lk_obtain_verdict_fn)(void *arg, const lk_obtain_verdict *verdict);

/* Checks each file that training would read from the folder and reports it. *right: all are as
 * published. Fails only if nothing can be checked. */
lk_status lk__source_verify(const lk_source *source, const char *folder, lk_obtain_verdict_fn report, void *arg,
                            bool *right) LK_CHECKED;

typedef struct lk_obtain_opts {
    const char *folder; /* created if it is missing */
    const char *server; /* URL of a folder to fetch from, instead of the source's servers; or NULL */
    lk_download_limits limits;
    lk_download_watch watch;
} lk_obtain_opts;

/* What was done; zeros if all files were there already. */
typedef struct lk_obtain_result {
    size_t fetched;  /* files downloaded */
    size_t bytes;    /* bytes downloaded */
    size_t unpacked; /* files from archives, which are removed afterwards */
} lk_obtain_result;

/* Downloads the files of the source that are missing or wrong in the folder. */
lk_status lk__obtain(const lk_source *source, const lk_obtain_opts *opts, lk_obtain_result *out) LK_CHECKED;

#endif
