/* load.h - finds and loads the plug-in of an MPI library.
 *
 * The base program links no MPI. A plug-in is plugin.c, compiled against one MPI library, in a file
 * lockstep-NAME.so. It must fit the launcher: the library of another MPI cannot talk to the launcher, and
 * every process would start as an MPI job of its own. */
#ifndef LK_COMM_MPI_LOAD_H
#define LK_COMM_MPI_LOAD_H

#include "base/status.h"
#include "comm/mpi/mpi.h"

/* A plug-in that Lockstep knows. */
typedef struct lk_mpi_module {
    const char *name;    /* as in $LOCKSTEP_MPI */
    const char *library; /* the MPI library, for messages */
    const char *package; /* the Debian packages with which the build makes the plug-in */
} lk_mpi_module;

enum { LK_MPI_PATH = 4096 };

/* Row `index` of the table of plug-ins; NULL after the last. */
const lk_mpi_module *lk__mpi_module_list(size_t index);
/* The file of a plug-in: in $LOCKSTEP_PLUGINS if that is set, else beside the program or in the folder where
 * `make install` puts it. NOT_FOUND if there is none; the detail has the folders. */
lk_status lk__mpi_module_find(const lk_mpi_module *module, char path[LK_MPI_PATH]) LK_CHECKED;
/* The plug-in that $LOCKSTEP_MPI names or, without it, the one of the launcher that started this process.
 * *because is the variable that decided. USAGE for an unknown name; USAGE too where no MPI launcher started
 * this process. Loads nothing. */
lk_status lk__mpi_module_choose(const lk_mpi_module **out, const char **because) LK_CHECKED;
/* Whether lk__mpi_module_choose would succeed. */
bool lk__mpi_module_is_chosen(void);

/* The table of the chosen plug-in. Loads the plug-in at the first call; later calls return the same table. */
lk_status lk__mpi_load(const lk_mpi **out) LK_CHECKED;
/* The table of the plug-in for the MPI library that the program itself has loaded and initialised. USAGE if there is
 * none; UNSUPPORTED if Lockstep has no plug-in for it, or has loaded that of another MPI. */
lk_status lk__mpi_load_running(const lk_mpi **out) LK_CHECKED;
/* Uses this table instead of a plug-in, before the first lk__mpi_load: for programs that are linked with
 * plugin.c, and for tests. NULL: plug-ins again. */
void lk__mpi_use(const lk_mpi *table);

#endif
