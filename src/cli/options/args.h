/* args.h - the program's options: their values, and the set of options of a command. */
#ifndef LK_CLI_OPTIONS_ARGS_H
#define LK_CLI_OPTIONS_ARGS_H

#include <lockstep/graph.h>

#include "cli/options/devices.h"
#include "cli/options/options.h"
#include "train/train.h"

/* One bit for each command; a row of the option table lists the commands that have it. */
enum {
    LK_CMD_TRAIN = LK_FOR_TRAIN,
    LK_CMD_EVAL = LK_FOR_EVAL,
    LK_CMD_BENCH = LK_FOR_BENCH,
    LK_CMD_INFO = LK_FOR_INFO,
    LK_CMD_COMPARE = 1 << 4,
    LK_CMD_HELP = 1 << 5,
    LK_CMD_RUN = 1 << 6,
    LK_CMD_CONVERT = 1 << 7,
    LK_CMD_DATA = 1 << 8,
    LK_CMD_VERIFY = 1 << 9,
    LK_CMD_SERVE = 1 << 10,
    LK_CMD_PLOT = 1 << 16,
    LK_CMD_REPORT = 1 << 17,
    LK_CMD_SWEEP = 1 << 18,
    LK_CMD_PREDICT = LK_FOR_PREDICT
};

enum { LK_SCHEDULE_BYTES = 64, LK_PATH_BYTES = 4096 };

/* How ranks are started: options of run, and of train. */
typedef struct lk_args_run {
    const char *nproc; /* a number, or "auto"; NULL: not given */
    int nnodes, node_rank, master_port, max_restarts, bind;
    const char *master_addr, *init_method, *rdzv_endpoint, *log_dir;
    double timeout; /* 0: not given */
    double grace;   /* 0: not given */
    bool standalone;
    char *const *program; /* and its arguments, NULL after the last */
    int rank, world_size; /* of a rank started by hand; world_size 0: not given */
    bool nnodes_given, node_rank_given, bind_given, rank_given;
} lk_args_run;

/* Complete command lines for messages: ranks of two nodes, and ranks started by hand. */
#define LK_NODE_LINE "lockstep train --nnodes 2 --node-rank 1 --master-addr HOST -n 4"
#define LK_HAND_LINE "lockstep train --init-method tcp://HOST:PORT --rank 0 --world-size 2"

/* Indexes of the choices of --parallel. */
typedef enum lk_args_parallel {
    LK_ARGS_PARALLEL_AUTO,
    LK_ARGS_PARALLEL_SINGLE,
    LK_ARGS_PARALLEL_DP,
    LK_ARGS_PARALLEL_DDP,
    LK_ARGS_PARALLEL_PP
} lk_args_parallel;
extern const char *const lk__args_parallel_names[];

/* Indexes of the choices of --log-ranks. */
typedef enum lk_args_log_ranks { LK_ARGS_LOG_RANKS_ONE, LK_ARGS_LOG_RANKS_ALL } lk_args_log_ranks;

/* Indexes of the choices of --completion. */
typedef enum lk_args_completion {
    LK_ARGS_COMPLETION_NONE,
    LK_ARGS_COMPLETION_BASH,
    LK_ARGS_COMPLETION_ZSH
} lk_args_completion;
extern const char *const lk__args_completion_names[];

/* The data set without --data. */
#define LK_ARGS_DATA "digits"

typedef struct lk_args {
    const char *config;  /* the file of options, or NULL; freed by lk__args_release */
    lk_train_opts train; /* data is NULL if --data was not given */
    char device_names[LK_LIST_BYTES], gpu_ids[LK_LIST_BYTES];
    bool no_cuda;
    lk_devices devices; /* the resulting devices; set by lk__args_complete */
    int parallel;       /* an lk_args_parallel */
    int log_ranks;      /* an lk_args_log_ranks */
    double gamma;
    size_t log_interval;
    const char *log_dir;  /* of run folders; NULL: not given */
    size_t steps, repeat; /* of bench */
    lk_args_run run;
    int nproc;              /* of bench and eval: ranks to start; 0: not given */
    const char *backend;    /* NULL: the default */
    size_t max_bytes, runs; /* runs 0: not given */
    bool independent, in_step;
    bool quiet, json, help;
    const char *data_url;                 /* of data; NULL: not given */
    const char *resume;                   /* value of --resume; NULL: not given, "": without a value */
    bool resume_exact;                    /* it names a checkpoint, not a folder of them */
    bool requeue;                         /* Slurm starts the job again after the signal before its time limit */
    const char *input;                    /* of info and bench: "3x32x32"; NULL: not given */
    size_t classes;                       /* of info and bench; 0: not given */
    bool group;                           /* of info */
    const char *output;                   /* file of plot and report, folder of sweep */
    lk_options_swept swept[LK_SWEPT_MAX]; /* of sweep: options of train with their values */
    size_t swept_count;
    const char *slurm;                /* of sweep: options of sbatch; NULL: not given, "": without a value */
    const char *serve;                /* of train: address of the live page; NULL: no page, "": the default */
    const char *host;                 /* of serve; NULL: not given */
    int port;                         /* of serve; 0: not given */
    bool man;                         /* of help */
    int completion;                   /* of help; an lk_args_completion */
    size_t top;                       /* of predict: classes of an image that are printed */
    char notice[LK_PATH_BYTES + 512]; /* what a model file says against the options, or does not say; or
                                       * the run folder that --resume auto cannot read; "" */
    const char *words[LK_WORDS_MAX];
    size_t word_count;
    bool schedule_given, gamma_given, shards_given, save_every_given;
    bool log_interval_typed; /* on the command line, not in a file */
    bool resume_searched;    /* --resume auto has looked for an earlier run in --log-dir */
    bool precision_given;    /* by the user, not by a checkpoint */
    size_t options_given;    /* number of options that were given */
    /* Texts composed of several options. */
    char schedule[LK_SCHEDULE_BYTES];
    char save_path[LK_PATH_BYTES];
} lk_args;

/* The options of a command. */
lk_options_set lk__args_options(const char *command, unsigned bit, size_t max_words);

/* Texts in out point into argv, and into the file of --config, which is kept until lk__args_release. */
lk_status lk__args_parse(const lk_options_set *set, int argc, char *const *argv, lk_args *out) LK_CHECKED;
void lk__args_release(void);
/* A text of the library, or of another rank, in the form for printing: lk__options_spell with the options that
 * were parsed last. Every such text is printed through it. The result is valid until the thread's next call. */
const char *lk__args_spell(const char *text);

/* Whether the command line that was parsed last has the option, in any spelling, or a word that is a parameter of its
 * text (--momentum of --optimizer). */
bool lk__args_typed(const char *name);

/* USAGE if there is no such backend. NULL: $LOCKSTEP_BACKEND, if it is set. */
lk_status lk__args_check_backend(const char *name) LK_CHECKED;
/* USAGE for --data-dir without --data, which would have no effect, and for --data beside --input. */
lk_status lk__args_check_data(const lk_args *args) LK_CHECKED;
/* Replaces the fields of shape that --input and --classes give. USAGE if --input is not of the form CxHxW. */
lk_status lk__args_change_shape(const lk_args *args, lk_model_shape *shape) LK_CHECKED;
/* Sets args->devices; a part of lk__args_complete. */
lk_status lk__args_complete_devices(lk_args *args) LK_CHECKED;
/* Sets the fields of args->train that depend on several options; args must not be moved afterwards. A plan
 * (cli/job/plan.h) sets what depends on the devices. */
lk_status lk__args_complete(lk_args *args) LK_CHECKED;

#endif
