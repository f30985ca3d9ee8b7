/* test_hostlist.c - Slurm's lists of hosts and of counts. */
#include <stdlib.h>

#include "check.h"
#include "comm/detect/hostlist.h"

static void check_list(const char *list, const char *wanted)
{
    char text[1024] = "", name[LK_HOSTLIST_NAME];
    int count = lk__hostlist_count(list);
    for (int i = 0; i < count; i++) {
        assert_true(lk__hostlist_name(list, i, name, sizeof name));
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", name);
    }
    assert_string_equal(text, wanted);
    assert_false(lk__hostlist_name(list, count, name, sizeof name));
    assert_false(lk__hostlist_name(list, -1, name, sizeof name));
}

static void test_hosts(void **state)
{
    check_list("login", "login");
    check_list("n[1-4,7],gpu-[001-003],login", "n1 n2 n3 n4 n7 gpu-001 gpu-002 gpu-003 login");
    check_list("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03");
    check_list("a[9-11]b.cluster", "a9b.cluster a10b.cluster a11b.cluster");
    check_list("n[08-10]", "n08 n09 n10");
    check_list("[1-2]", "1 2");
    char name[LK_HOSTLIST_NAME];
    assert_int_equal(lk__hostlist_count("n[0-999999]"), 1000000);
    assert_true(lk__hostlist_name("n[0-999999]", 999999, name, sizeof name));
    assert_string_equal(name, "n999999");
    assert_false(lk__hostlist_name("node[1-2]", 0, name, 5));
    assert_true(lk__hostlist_name("node[1-2]", 0, name, 6));
}

static void test_no_hosts(void **state)
{
    static const char *const wrong[] = {"",
                                        ",",
                                        "a,",
                                        "n[",
                                        "n[]",
                                        "n[1",
                                        "n[1-]",
                                        "n[2-1]",
                                        "n[1,]",
                                        "n]",
                                        "n[1]]",
                                        "n[a]",
                                        "a b",
                                        "n[1-2-3]",
                                        "n[[1]]",
                                        "a,,b",
                                        "n[0-99999999]",
                                        "n[1-1025]x[1-1025]",
                                        "n[9999999999]",
                                        "a[1]\n",
                                        "a[1][1][1][1][1][1][1][1][1]"};
    char name[LK_HOSTLIST_NAME];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (lk__hostlist_count(wrong[i]) != -1)
            fail_msg("'%s' has %d hosts", wrong[i], lk__hostlist_count(wrong[i]));
        assert_false(lk__hostlist_name(wrong[i], 0, name, sizeof name));
    }
}

static void test_tasks(void **state)
{
    int before = -1;
    assert_int_equal(lk__hostlist_tasks("2(x3),1"), 7);
    assert_int_equal(lk__hostlist_tasks("4"), 4);
    assert_int_equal(lk__hostlist_tasks_of("2(x3),1", 2, &before), 2);
    assert_int_equal(before, 4);
    assert_int_equal(lk__hostlist_tasks_of("2(x3),1", 3, &before), 1);
    assert_int_equal(before, 6);
    assert_int_equal(lk__hostlist_tasks_of("2(x3),1", 4, NULL), -1);
    static const char *const wrong[] = {"",      "x",    "2,", "2(x3",          "2(3)",
                                        "2(x0)", "2(x)", "-1", "2(x999999999)", "9999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(lk__hostlist_tasks(wrong[i]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_no_hosts),
        cmocka_unit_test(test_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
