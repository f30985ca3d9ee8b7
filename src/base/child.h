/* child.h - runs another program to its end: a text on its stdin, its output in memory. */
#ifndef LK_BASE_CHILD_H
#define LK_BASE_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lk_child_output {
    int status;         /* exit status; 128 + N if signal N ended the program */
    uint8_t *out, *err; /* what it wrote to stdout and stderr, 0 after the last byte */
    size_t out_bytes, err_bytes;
} lk_child_output;

/* Runs argv[0], which is looked for in $PATH, with `bytes` bytes of `input` as its stdin. Blocks until it ends, at
 * most `timeout` seconds; then it is killed, and the status is IO. NOT_FOUND if there is no such program. A
 * program that fails is no failure of this function. The caller frees *out with lk__child_output_free. */
lk_status lk__child_run(char *const *argv, const void *input, size_t bytes, double timeout,
                        lk_child_output *out) LK_CHECKED;
void lk__child_output_free(lk_child_output *output);
/* The last line of stderr that is not empty, made printable; "" if there is none. Borrowed from output, whose stderr
 * it changes. */
const char *lk__child_last_words(lk_child_output *output);

#endif
