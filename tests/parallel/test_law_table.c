/* test_law_table.c - this machine reaches the hashes of law_table.h with the best build of the
 * kernels. LAW_ONLY and LAW_SKIP, lists of models with spaces between them, select rows; LAW_ISA selects
 * a build, LAW_THREADS the number of threads; LAW_PRINT prints hashes instead of comparing them. */
#include "law_table.h"

static void test_row(void **arg)
{
    const law_case *c = *arg;
    const char *threads = getenv("LAW_THREADS");
    law_way way = {.isa = getenv("LAW_ISA"), .threads = threads ? (int)strtol(threads, NULL, 10) : 2};
    if (getenv("LAW_PRINT"))
        printf("%s bn=%d: 0x%016llx\n", c->model, (int)c->bn, (unsigned long long)law_run(c, way));
    else
        law_expect(c, way, c->hash);
}

static bool is_listed(const char *list, const char *model)
{
    while (*list) {
        size_t length = strcspn(list, " ");
        if (length == strlen(model) && strncmp(list, model, length) == 0)
            return true;
        list += length + strspn(list + length, " ");
    }
    return false;
}

int main(void)
{
    struct CMUnitTest tests[LAW_TABLE];
    size_t count = 0;
    const char *only = getenv("LAW_ONLY"), *skip = getenv("LAW_SKIP");
    for (size_t i = 0; i < LAW_TABLE; i++) {
        const char *model = law_table[i].model;
        if ((!only || is_listed(only, model)) && (!skip || !is_listed(skip, model)))
            tests[count++] = (struct CMUnitTest){
                .name = model, .test_func = test_row, .initial_state = (void *)(uintptr_t)&law_table[i]};
    }
    return _cmocka_run_group_tests("law table", tests, count, NULL, NULL);
}
