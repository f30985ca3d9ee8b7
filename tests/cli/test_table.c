/* test_table.c - the closing table of a run: the row of shards that have moved. */
#include "cli/report/report.h"
#include "temp_folder.h"

enum { MAX_RANKS = 16, TABLE = 4096 };

/* Prints the table into a file, and reads it. */
static void print_table(const lk_report *report, const lk_train_outcome *result, char text[TABLE])
{
    char path[TEMP_FOLDER_BYTES + 16];
    snprintf(path, sizeof path, "%s/table", temp_folder);
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    assert_non_null(freopen(path, "w", stdout));
    lk__report_table(report, result);
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, TABLE - 1, file)] = '\0';
    fclose(file);
}

/* The row of a run of `ranks` ranks that end with these shards. */
static void expect_row(int ranks, const int *shards, const char *wanted)
{
    lk_train_use uses[MAX_RANKS] = {{0}};
    lk_train_outcome result = {.ranks = ranks, .uses = uses, .moves = 2, .samples = 1};
    static lk_job_plan plan;
    lk_report report = {.plan = &plan};
    char text[TABLE];
    plan.train.shards = 0;
    for (int r = 0; r < ranks; r++) {
        uses[r] = (lk_train_use){.rank = r, .shards = shards[r], .host = "host", .device = "cpu"};
        plan.train.shards += shards[r];
    }
    print_table(&report, &result, text);
    assert_contains(text, wanted);
}

static void ranks_with_fewer_shards_are_named(void **state)
{
    expect_row(2, (int[]){11, 5}, "shards       moved 2 times; rank 1 has 5 of 16\n");
    expect_row(3, (int[]){7, 7, 2}, "shards       moved 2 times; rank 2 has 2 of 16\n");
}

/* 10 ranks have 1 or 2 of 16 shards at the start: ranks 1, 3, 4, 6, 8 and 9 have 2. */
static void ranks_of_a_large_job_are_named(void **state)
{
    expect_row(10, (int[]){2, 2, 1, 2, 1, 1, 2, 1, 2, 2}, "shards       moved 2 times; rank 4 has 1 of 16\n");
    expect_row(10, (int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 7}, "; rank 4 has 1 of 16; rank 6 has 1 of 16 ...\n");
}

static void shards_that_are_back_are_reported(void **state)
{
    expect_row(2, (int[]){8, 8}, "shards       moved 2 times; every rank has as many as at the start\n");
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(ranks_with_fewer_shards_are_named),
          TEST(ranks_of_a_large_job_are_named), TEST(shards_that_are_back_are_reported))
