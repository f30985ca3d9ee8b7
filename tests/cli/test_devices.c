/* test_devices.c - lists of devices with device tables of the test: exact ids in their order, every kind of
 * mistake, and the part of each process. */
#include "check.h"
#include "cli/options/devices.h"

static int gpus; /* number of GPUs of the machine */

static int count_gpus(void)
{
    return gpus;
}

static const lk_device_type fake_cpu = {.name = "cpu", .host_memory = true};
static const lk_device_type fake_cuda = {.name = "cuda", .count = count_gpus};

static const lk_device_type *with_gpus(size_t index)
{
    const lk_device_type *const rows[] = {&fake_cpu, &fake_cuda, NULL};
    return rows[index];
}

static const lk_device_type *without_gpus(size_t index)
{
    return index == 0 ? &fake_cpu : NULL;
}

static int sixteen_gpus(void **state)
{
    gpus = 16;
    return 0;
}

static void joined(const lk_devices *list, char *text, size_t bytes)
{
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < list->count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " " : "", list->name[i]);
}

/* The choice gives exactly these devices, separated by blanks. */
static void gives(lk_devices_choice choice, lk_devices_table table, const char *expected)
{
    lk_devices list;
    char text[LK_DEVICES_MAX * LK_DEVICE_NAME_BYTES];
    if (lk__devices_choose(&choice, table, &list) != LK_OK)
        fail_msg("instead of '%s': %s", expected, lk_error_detail());
    joined(&list, text, sizeof text);
    assert_string_equal(text, expected);
}

#define DEVICES(text) ((lk_devices_choice){.devices = text})
#define IDS(text) ((lk_devices_choice){.gpu_ids = text})

/* The choice fails, the detail has both words, and the list is not written. */
static void refuse(lk_devices_choice choice, lk_devices_table table, const char *word, const char *other)
{
    lk_devices list = {.count = -1};
    lk_status status = lk__devices_choose(&choice, table, &list);
    assert_true(status == LK_STATUS_USAGE || status == LK_STATUS_UNSUPPORTED);
    assert_int_equal(list.count, -1);
    assert_detail(word);
    assert_detail(other);
}

static void names_in_their_order(void **state)
{
    gives(DEVICES("cpu"), without_gpus, "cpu");
    gives(DEVICES("cpu:0,cpu:1"), without_gpus, "cpu:0 cpu:1");
    gives(DEVICES("cpu:3"), without_gpus, "cpu:3");
    gives(DEVICES("cuda:0,cuda:2"), with_gpus, "cuda:0 cuda:2");
    gives(DEVICES("cuda:15,cuda:3,cuda:10"), with_gpus, "cuda:15 cuda:3 cuda:10");
    gives(DEVICES("cuda"), with_gpus, "cuda");
    gives(DEVICES("cuda:07"), with_gpus, "cuda:7");
}

/* Each mention of a device is one rank. */
static void one_device_several_times(void **state)
{
    gives(DEVICES("cuda:0,cuda:0"), with_gpus, "cuda:0 cuda:0");
    gives(DEVICES("cpu,cpu,cpu:0"), with_gpus, "cpu cpu cpu:0");
    gives(IDS("3,03,1,3"), with_gpus, "cuda:3 cuda:3 cuda:1 cuda:3");
}

static void named(lk_devices_choice choice, bool expected)
{
    lk_devices list;
    assert_int_equal(lk__devices_choose(&choice, with_gpus, &list), LK_OK);
    assert_int_equal(list.named, expected);
}

/* Only devices that the user did not name may be replaced by the CPU. */
static void auto_names_nothing(void **state)
{
    lk_devices list;
    named(DEVICES("auto"), false);
    named(DEVICES(NULL), false);
    named(DEVICES("cuda:0,cuda:1"), true);
    named(DEVICES("cpu"), true);
    named(IDS("1,2"), true);
    named((lk_devices_choice){.no_cuda = true}, true);
    gpus = 3;
    assert_int_equal(lk__devices_choose(&DEVICES("auto"), with_gpus, &list), LK_OK);
    lk__devices_use_cpu(&list);
    assert_int_equal(list.count, 3);
    for (int i = 0; i < list.count; i++)
        assert_string_equal(list.name[i], "cpu");
    assert_int_equal(lk__devices_choose(&DEVICES("cpu:0,cpu:1"), with_gpus, &list), LK_OK);
    assert_int_equal(lk__devices_share(&list, false, 1, 2, &list), LK_OK);
    assert_true(list.named);
}

static void ids_are_numbers_not_digits(void **state)
{
    gives(IDS("1,6,3"), with_gpus, "cuda:1 cuda:6 cuda:3");
    gives(IDS("0"), with_gpus, "cuda:0");
    gives(DEVICES("0,1"), with_gpus, "cuda:0 cuda:1");
    gives(DEVICES("0"), with_gpus, "cuda:0");
    gives(IDS("10,11"), with_gpus, "cuda:10 cuda:11");
    gives(IDS("15,0,1,10"), with_gpus, "cuda:15 cuda:0 cuda:1 cuda:10");
    gpus = 1000;
    gives(IDS("100,0,10,999"), with_gpus, "cuda:100 cuda:0 cuda:10 cuda:999");
}

static void auto_takes_what_there_is(void **state)
{
    const lk_devices_choice no_cuda = {.devices = "auto", .no_cuda = true};
    gives(DEVICES("auto"), without_gpus, "cpu");
    gives(DEVICES(""), without_gpus, "cpu");
    gives(DEVICES(NULL), without_gpus, "cpu");
    gives(no_cuda, without_gpus, "cpu");
    gpus = 3;
    gives(DEVICES("auto"), with_gpus, "cuda:0 cuda:1 cuda:2");
    gives(no_cuda, with_gpus, "cpu");
    gives((lk_devices_choice){.devices = "auto", .gpu_ids = "2"}, with_gpus, "cuda:2");
    gpus = 0;
    gives(DEVICES("auto"), with_gpus, "cpu");
    /* Hides the GPUs of this machine. */
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    gives(DEVICES("auto"), lk__device_list, "cpu");
    refuse(DEVICES("auto,cpu"), with_gpus, "auto,cpu", "alone");
    refuse(DEVICES("cpu,auto"), with_gpus, "cpu,auto", "alone");
}

static void misspelt_lists(void **state)
{
    refuse(DEVICES("cdua:0"), with_gpus, "'cdua'", "'cuda'");
    refuse(DEVICES("cdua:0"), without_gpus, "'cdua'", "'cuda'");
    refuse(DEVICES("cpuu"), with_gpus, "'cpuu'", "'cpu'");
    refuse(DEVICES("quantum"), with_gpus, "'quantum'", "auto, cpu, cuda");
    refuse(DEVICES("gpu"), with_gpus, "'gpu'", "cuda:0");
    refuse(DEVICES("gpu:1"), without_gpus, "'gpu:1'", "no cuda devices");
    refuse(DEVICES("2"), with_gpus, "`gpu_ids` 2", "-n 2");
    refuse(DEVICES("0,cpu"), with_gpus, "0,cpu", "one kind");
    refuse(DEVICES("1,99999"), with_gpus, "'99999'", "whole number");
    refuse(DEVICES("0,1"), without_gpus, "'0,1'", "no cuda devices");
    const char *const bad[] = {"cpu:", "cpu:x", "cpu:-1", "cpu:1.5", "cpu:0:1", "cpu: 1", "cpu:65536"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(DEVICES(bad[i]), with_gpus, bad[i], "whole number");
    const char *const bad_ids[] = {"x", "-1", "1.5", "cuda:1", " 1", "1 6", "0x1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad_ids / sizeof *bad_ids; i++)
        refuse(IDS(bad_ids[i]), with_gpus, bad_ids[i], "whole number");
    refuse(IDS("1,,3"), with_gpus, "1,,3", "missing");
    refuse(IDS("1,"), with_gpus, "1,", "missing");
    refuse(DEVICES(",cpu"), with_gpus, ",cpu", "missing");
    refuse(IDS("1111111111111111111111111111111111111111111111111111111111111111111111"), with_gpus, "`gpu_ids`",
           "no device");
}

static void contradictions(void **state)
{
    refuse(DEVICES("cpu:0,cuda:0"), with_gpus, "one kind", "cpu and cuda");
    refuse((lk_devices_choice){.devices = "cpu", .gpu_ids = "0"}, with_gpus, "`devices` cpu", "`gpu_ids` 0");
    refuse((lk_devices_choice){.devices = "cuda:0", .gpu_ids = "0"}, with_gpus, "`devices` cuda:0", "`gpu_ids` 0");
    refuse((lk_devices_choice){.gpu_ids = "0", .no_cuda = true}, with_gpus, "`no_cuda`", "`gpu_ids` 0");
    refuse((lk_devices_choice){.devices = "cuda:1", .no_cuda = true}, with_gpus, "`no_cuda`", "`devices` cuda:1");
    gives((lk_devices_choice){.devices = "cpu:0,cpu:1", .no_cuda = true}, with_gpus, "cpu:0 cpu:1");
}

static void contradicts(lk_devices_choice choice, lk_devices_table table)
{
    lk_devices list;
    assert_fails(lk__devices_choose(&choice, table, &list), LK_STATUS_USAGE, "contradict each other; give one");
}

/* The command line is the mistake, whether or not the machine or the build has GPUs. */
static void contradictions_without_gpus(void **state)
{
    static const lk_devices_choice choices[] = {
        {.devices = "cuda:0", .no_cuda = true}, {.devices = "cuda:6", .no_cuda = true},
        {.devices = "0,1", .no_cuda = true},    {.devices = "cpu", .gpu_ids = "0"},
        {.gpu_ids = "0", .no_cuda = true},
    };
    gpus = 0;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        contradicts(choices[i], with_gpus);
        contradicts(choices[i], without_gpus);
    }
    contradicts((lk_devices_choice){.devices = "gpu", .no_cuda = true}, without_gpus);
}

static void devices_that_are_not_there(void **state)
{
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    refuse(DEVICES("cuda:0"), without_gpus, "'cuda:0'", "this build has no cuda devices");
    refuse(IDS("0"), without_gpus, "`gpu_ids` '0'", "this build has no cuda devices");
    refuse(IDS("15,16"), with_gpus, "cuda:16", "this machine shows 16 GPUs (cuda:0 to cuda:15)");
    gpus = 2;
    refuse(DEVICES("cuda:6"), with_gpus, "cuda:6", "this machine shows 2 GPUs (cuda:0, cuda:1)");
    gpus = 1;
    refuse(IDS("1,6,3"), with_gpus, "cuda:1", "this machine shows 1 GPU (cuda:0)");
    gpus = 0;
    refuse(IDS("0"), with_gpus, "`gpu_ids` '0'", "this machine has no cuda device");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "-1", 1), 0);
    refuse(IDS("0"), with_gpus, "this machine shows no GPU with CUDA_VISIBLE_DEVICES '-1' (", "unset that variable");
    gpus = 1;
    refuse(IDS("1"), with_gpus, "shows 1 GPU (cuda:0) with CUDA_VISIBLE_DEVICES '-1'", "");
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

/* Writes the list "cpu:0,cpu:1,..." of `count` devices. */
static void cpus(int count, char *text, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%scpu:%d", i ? "," : "", i);
}

static void choose_cpus(int count, lk_devices *out)
{
    char text[2 * LK_DEVICES_MAX * LK_DEVICE_NAME_BYTES];
    cpus(count, text, sizeof text);
    assert_int_equal(lk__devices_choose(&DEVICES(text), without_gpus, out), LK_OK);
}

static void no_more_than_the_limit(void **state)
{
    char text[2 * LK_DEVICES_MAX * LK_DEVICE_NAME_BYTES];
    lk_devices list;
    choose_cpus(LK_DEVICES_MAX, &list);
    assert_int_equal(list.count, LK_DEVICES_MAX);
    assert_string_equal(list.name[LK_DEVICES_MAX - 1], "cpu:63");
    cpus(LK_DEVICES_MAX + 1, text, sizeof text);
    refuse(DEVICES(text), without_gpus, "`devices`", "more than 64");
    gpus = 100;
    assert_int_equal(lk__devices_choose(&DEVICES("auto"), with_gpus, &list), LK_OK);
    assert_int_equal(list.count, LK_DEVICES_MAX);
}

static void share_is(int devices, bool dp, int rank, int size, const char *expected)
{
    lk_devices all, part;
    char text[LK_DEVICES_MAX * LK_DEVICE_NAME_BYTES];
    choose_cpus(devices, &all);
    assert_int_equal(lk__devices_share(&all, dp, rank, size, &part), LK_OK);
    joined(&part, text, sizeof text);
    assert_string_equal(text, expected);
}

static void each_process_takes_its_part(void **state)
{
    share_is(4, false, 0, 2, "cpu:0 cpu:1");
    share_is(4, false, 1, 2, "cpu:2 cpu:3");
    share_is(3, false, 0, 3, "cpu:0");
    share_is(3, false, 2, 3, "cpu:2");
    share_is(3, false, 0, 1, "cpu:0 cpu:1 cpu:2");
    share_is(1, false, 4, 5, "cpu:0");
    share_is(3, true, 1, 2, "cpu:0 cpu:1 cpu:2");
    share_is(3, false, 0, 0, "cpu:0 cpu:1 cpu:2");
    share_is(3, true, 0, 0, "cpu:0 cpu:1 cpu:2");
}

static void parts_of_a_device_are_refused(void **state)
{
    lk_devices all, part = {.count = -1};
    choose_cpus(3, &all);
    assert_fails(lk__devices_share(&all, false, 0, 2, &part), LK_STATUS_USAGE, "3 devices");
    assert_detail("2 processes");
    assert_fails(lk__devices_share(&all, false, 1, 4, &part), LK_STATUS_USAGE, "4 processes");
    assert_int_equal(part.count, -1);
}

/* "auto" chooses GPUs only where every rank of the host gets its own. */
static void ranks_that_would_share_gpus(void **state)
{
    lk_devices list;
    gpus = 1;
    assert_int_equal(lk__devices_choose(&DEVICES("auto"), with_gpus, &list), LK_OK);
    assert_true(lk__devices_crowded(&list, false, 16));
    assert_true(lk__devices_crowded(&list, false, 2));
    assert_false(lk__devices_crowded(&list, false, 1));
    gpus = 4;
    assert_int_equal(lk__devices_choose(&DEVICES("auto"), with_gpus, &list), LK_OK);
    assert_true(lk__devices_crowded(&list, false, 5));
    assert_false(lk__devices_crowded(&list, false, 4));
    assert_false(lk__devices_crowded(&list, false, 2));
    assert_false(lk__devices_crowded(&list, true, 1));
    assert_true(lk__devices_crowded(&list, true, 2));
    /* GPUs that the user names may be shared. */
    assert_int_equal(lk__devices_choose(&DEVICES("cuda:0"), with_gpus, &list), LK_OK);
    assert_false(lk__devices_crowded(&list, false, 16));
    assert_int_equal(lk__devices_choose(&DEVICES("auto"), without_gpus, &list), LK_OK);
    assert_false(lk__devices_crowded(&list, false, 16));
}

static void names_of_the_option(void **state)
{
    refuse(IDS("x"), with_gpus, "`gpu_ids` 'x'", "'`gpu_ids` 0,1'");
    refuse((lk_devices_choice){.gpu_ids = "1", .no_cuda = true}, with_gpus, "`gpu_ids` 1", "`no_cuda`");
    refuse((lk_devices_choice){.devices = "cpu", .gpu_ids = "1"}, with_gpus, "`gpu_ids` 1", "`devices` cpu");
}

static void devices_that_cannot_be_opened(void **state)
{
    lk_device *device = NULL;
    lk_device_opts opts = {.threads = 1};
    assert_int_equal(lk__device_open("quantum", &opts, &device), LK_STATUS_USAGE);
    const lk_device_type *type;
    for (size_t i = 0; (type = lk__device_list(i)); i++)
        assert_detail(type->name);
    opts.precision = LK_PRECISION_TF32;
    assert_fails(lk__device_open("cpu:1", &opts, &device), LK_STATUS_UNSUPPORTED, "`precision` tf32");
    opts.precision = LK_PRECISION_TF32CONV;
    assert_fails(lk__device_open("cpu", &opts, &device), LK_STATUS_UNSUPPORTED, "`precision` tf32conv");
    assert_null(device);
}

/* Devices that are chosen can be opened by the library's device table. */
static void the_librarys_table(void **state)
{
    lk_devices list;
    const lk_device_type *cpu = lk__device_list(0);
    assert_string_equal(cpu->name, "cpu");
    assert_true(cpu->host_memory);
    assert_null(cpu->count);
    assert_int_equal(lk__devices_choose(&DEVICES("cpu:1,cpu:40"), lk__device_list, &list), LK_OK);
    for (int i = 0; i < list.count; i++) {
        lk_device *device;
        lk_device_opts opts = {.threads = 1, .crowded = true};
        assert_int_equal(lk__device_open(list.name[i], &opts, &device), LK_OK);
        lk__device_close(device);
    }
}

#define CASE(test) cmocka_unit_test_setup(test, sixteen_gpus)
TEST_MAIN(NULL, NULL, CASE(names_in_their_order), CASE(one_device_several_times), CASE(auto_names_nothing),
          CASE(ids_are_numbers_not_digits), CASE(auto_takes_what_there_is), CASE(misspelt_lists), CASE(contradictions),
          CASE(contradictions_without_gpus), CASE(devices_that_are_not_there), CASE(no_more_than_the_limit),
          TEST(each_process_takes_its_part), TEST(parts_of_a_device_are_refused), CASE(ranks_that_would_share_gpus),
          CASE(names_of_the_option), TEST(devices_that_cannot_be_opened), TEST(the_librarys_table))
