/* mpi.h - the functions of an MPI library that Lockstep uses, as a table.
 *
 * plugin.c fills the table. It is the only file that includes MPI's header, and it is compiled once against
 * each MPI library as a module that load.c opens. Types and numbers here are Lockstep's own, so nothing of an
 * MPI's binary interface leaves the module.
 *
 * Messages travel in a communicator of Lockstep's own: a duplicate of MPI_COMM_WORLD, or of a communicator of the
 * program (adopt.h). `peer` is a rank of that communicator. Functions return 0, or MPI's error code, which `explain`
 * turns into a text. One thread at a time may call the functions (session.h has the lock). Only start, sum_open, finish
 * and abort may block. */
#ifndef LK_COMM_MPI_MPI_H
#define LK_COMM_MPI_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LK_MPI_VERSION = 3, /* of this table: a module of another version is refused */
    LK_MPI_TEXT = 256,
    LK_MPI_SMALL = 4096 + 64,   /* bytes of a message that MPI libraries usually copy at once */
    LK_MPI_MOST_BYTES = 1 << 30 /* of one message */
};

/* The thread level that MPI grants, in MPI's order. */
typedef enum lk_mpi_level {
    LK_MPI_LEVEL_SINGLE,
    LK_MPI_LEVEL_FUNNELED,
    LK_MPI_LEVEL_SERIALIZED,
    LK_MPI_LEVEL_MULTIPLE
} lk_mpi_level;

/* What MPI says about this process. */
typedef struct lk_mpi_place {
    int rank, size; /* in MPI_COMM_WORLD, or in the program's communicator */
    int tag_limit;  /* the largest tag */
    lk_mpi_level level;
    bool main_thread;          /* the caller is the thread that has initialised MPI */
    char library[LK_MPI_TEXT]; /* name and version of the MPI library, one line */
} lk_mpi_place;

/* The types of elements that an MPI sum can have. */
typedef enum lk_mpi_type { LK_MPI_TYPE_F32, LK_MPI_TYPE_F64 } lk_mpi_type;

/* A message, sum or other work under way; 0: none. A set of processes that sum; 0: none. */
typedef uint64_t lk_mpi_request;
typedef uint64_t lk_mpi_set;
/* A communicator of Lockstep's own; 0: the duplicate of MPI_COMM_WORLD. */
typedef uint64_t lk_mpi_comm;

/* Where this process is in MPI's life. */
typedef enum lk_mpi_phase { LK_MPI_PHASE_BEFORE, LK_MPI_PHASE_RUNNING, LK_MPI_PHASE_ENDED } lk_mpi_phase;

/* What a handle of the program stands for. */
typedef enum lk_mpi_handle { LK_MPI_HANDLE_NULL, LK_MPI_HANDLE_INTRA, LK_MPI_HANDLE_INTER } lk_mpi_handle;

/* A request that has ended. bytes: of the message, if the request is a receive. */
typedef struct lk_mpi_done {
    int index;
    size_t bytes;
} lk_mpi_done;

typedef struct lk_mpi {
    uint32_t version;     /* LK_MPI_VERSION */
    const char *name;     /* "openmpi", "mpich" */
    const char *built_as; /* the MPI library that the module was compiled against */

    /* Whether predicted payloads may travel without a header (transport/mpi.c). A simulation that moves no bytes of
     * large messages says no. */
    bool sends_bare;

    /* Initialises MPI, unless the program has done so, asks for the thread level, and makes the communicator.
     * Blocks until all processes of MPI_COMM_WORLD have called it. */
    int (*start)(lk_mpi_level wanted, lk_mpi_place *out);
    /* Finalises MPI if start has initialised it. Blocks until all processes have called it. */
    int (*finish)(void);
    /* Ends all processes of the job. Does not return, except where MPI fails to do so. */
    void (*abort)(int code);
    /* Writes a text of an error code. */
    void (*explain)(int code, char *text, size_t bytes);

    /* Start a message of at most LK_MPI_MOST_BYTES. The data must stay in place until the request is done. *out
     * is 0 if a message is gone at once, as small messages often are.
     * Messages with the same peer and tag arrive in order. A message longer than a receive is an error. */
    int (*send)(lk_mpi_comm comm, const void *data, size_t bytes, int peer, int tag, lk_mpi_request *out);
    int (*receive)(lk_mpi_comm comm, void *data, size_t bytes, int peer, int tag, lk_mpi_request *out);
    /* Moves messages, and writes the requests that are done, by ascending index, to done (count). These requests become
     * 0. Requests that are 0 are skipped. */
    int (*test)(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count);
    /* Gives up a receive. Returns whether it has ended: otherwise MPI may still write to its memory. */
    bool (*cancel)(lk_mpi_request *request);

    /* Collective among the processes `ranks` (count), which give the same list and tag. Blocks. */
    int (*sum_open)(lk_mpi_comm comm, const int *ranks, int count, int tag, lk_mpi_set *out);
    void (*sum_close)(lk_mpi_set *set);
    /* Starts MPI_Iallreduce of `count` elements in place: a sum in an order of MPI's choice. */
    int (*sum)(lk_mpi_set set, void *values, size_t count, lk_mpi_type type, lk_mpi_request *out);
    /* Starts to give the bytes of process 0 to all. Collective among all processes of the communicator. The bytes are
     * there when the request is done. */
    int (*share)(lk_mpi_comm comm, void *data, size_t bytes, lk_mpi_request *out);

    /* For a program that has initialised MPI itself. `theirs` is the address of its MPI_Comm. Optional, together. */
    lk_mpi_phase (*phase)(void);
    /* *place is written for a communicator of a single group. */
    int (*inspect)(const void *theirs, lk_mpi_handle *handle, lk_mpi_place *place);
    /* Starts to duplicate a communicator. Collective among its processes. *comm can be used after the request is done
     * and `adopted` has been called. */
    int (*adopt)(const void *theirs, lk_mpi_comm *comm, lk_mpi_request *request);
    int (*adopted)(lk_mpi_comm comm);
    /* Frees the duplicate, unless MPI has ended. Collective, but does not wait for the other processes. */
    void (*release)(lk_mpi_comm comm);
} lk_mpi;

/* The module's only symbol. A program that is linked with plugin.c may call it as well (lk__mpi_use). */
const lk_mpi *lk__mpi_plugin(void);

#endif
