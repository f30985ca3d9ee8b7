/* 17_train_loop.c - a whole run in one call: epochs, tests, checkpoints, and resuming after a crash.
 *
 * Start it as one process, or as several ranks (lockstep run -n 3 build/examples/17_train_loop): the bits are the same,
 * and they are those of `lockstep train --model mlp --epochs 2 --batch-size 500 --optimizer adam`. If it is killed and
 * started again, it resumes from its last checkpoint. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

static bool speaks; /* rank 0 prints for all */

static void on_start(void *arg, const lk_train_start *start)
{
    (void)arg;
    speaks = start->rank == 0;
    if (speaks)
        printf("%zu parameters, from step %zu to step %zu\n", start->parameters, start->done, start->steps);
}

static void on_test(void *arg, const lk_train_test *test)
{
    FILE *log = arg;
    double accuracy = 100 * (double)test->metrics.correct / (double)test->metrics.count;
    if (!speaks)
        return;
    printf("epoch %zu: loss %.4f, accuracy %.2f %%\n", test->epoch, test->metrics.loss, accuracy);
    fprintf(log, "%zu,%zu,%.6f,%.2f\n", test->epoch, test->step, test->metrics.loss, accuracy);
}

int main(void)
{
    FILE *log = fopen("17_train_loop.csv", "a");
    lk_train_opts opts = {.model = "mlp", /* or .graph, .train and .test: objects of your own */
                          .epochs = 2,
                          .batch = 500,
                          .optimizer = "adam",
                          .seed = 1,
                          .stages = getenv("STAGES"), /* NULL: one stage; STAGES=2 lockstep run -n 2 ... */
                          .checkpoint = "17_train_loop.checkpoints",
                          .save_every = 50,
                          .resume = "auto",
                          .save_model = "17_train_loop.safetensors"};
    lk_train_events events = {.arg = log, .start = on_start, .test = on_test};
    lk_train_result result;
    if (!log || lk_train(&opts, &events, &result) != LK_OK) {
        fprintf(stderr, "17_train_loop: %s\n", log ? lk_error_detail() : "cannot write 17_train_loop.csv");
        return 1;
    }
    if (speaks)
        printf("best at step %zu; saved %s\n", result.best_step, opts.save_model);
    fclose(log);
    return 0;
}
