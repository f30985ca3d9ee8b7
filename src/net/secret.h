/* secret.h - files that only this user may use, and the user's own secret, which is one of them.
 *
 * The secret is the key of the user's jobs that have no token. It is in $XDG_CONFIG_HOME/lockstep/secret, or
 * in ~/.config/lockstep/secret. Hosts that share the home folder share the secret. */
#ifndef LK_NET_SECRET_H
#define LK_NET_SECRET_H

#include <limits.h>

#include "base/status.h"

/* Starts libsodium; any number of calls is allowed. */
lk_status lk__secret_start(void) LK_CHECKED;
/* Draws a random secret, as a text of 64 hexadecimal digits. */
enum { LK_SECRET_TEXT = 65 };
lk_status lk__secret_draw(char text[LK_SECRET_TEXT]) LK_CHECKED;

typedef struct lk_secret_file {
    const char *path;
    const char *what;   /* begins messages: "the token file" */
    const char *remedy; /* for a file that cannot be used: what to do, in the imperative */
} lk_secret_file;

/* Reads one line of text from a regular file that belongs to this user and that nobody else may read or write;
 * newlines at its end are dropped. Never blocks on a pipe. NOT_FOUND: there is no file. */
enum { LK_SECRET_BYTES = 4096 };
lk_status lk__secret_read(const lk_secret_file *file, char text[LK_SECRET_BYTES + 1]) LK_CHECKED;

/* Reads the user's secret; makes the file first if there is none. Processes that make it at the same time all
 * read the same secret. */
lk_status lk__secret_own(char text[LK_SECRET_TEXT]) LK_CHECKED;

/* The path of the user's secret: in full; as scp(1) takes it on another host; as a shell of this host takes it. */
typedef struct lk_secret_path {
    char full[PATH_MAX], remote[PATH_MAX], local[PATH_MAX];
} lk_secret_path;
lk_status lk__secret_find(lk_secret_path *out) LK_CHECKED;

#endif
