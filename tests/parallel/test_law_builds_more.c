/* test_law_builds_more.c - every build of the kernels that this machine can run reaches the hashes of
 * law_table.h, with three threads. */
#include "law_table.h"
#include "tensor/cpu/cpu.h"

static void test_builds(void **arg)
{
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        for (size_t row = 0; row < LAW_TABLE; row++)
            law_expect(&law_table[row], (law_way){.isa = build->name, .threads = 3}, law_table[row].hash);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_builds))
