/* test_gpu_count.c - counting GPUs by their device nodes, which are files in a folder of the test, and by
 * CUDA_VISIBLE_DEVICES. */
#include "temp_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tensor/cuda/runtime/query.h"

static char root[TEMP_FOLDER_BYTES];

static void make_file(const char *name, const char *text)
{
    char path[2 * TEMP_FOLDER_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void make_gpu(int index, const char *uuid)
{
    char name[128], text[256];
    snprintf(name, sizeof name, "dev/nvidia%d", index);
    make_file(name, "");
    snprintf(name, sizeof name, "proc/driver/nvidia/gpus/0000:%02x:00.0/information", index);
    snprintf(text, sizeof text, "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t %s\nDevice Minor: \t %d\n", uuid,
             index);
    make_file(name, text);
}

static int create(void **state)
{
    temp_folder_create(root);
    return 0;
}

static int four_gpus(void **state)
{
    create(state);
    make_gpu(0, "GPU-aaaa0000-0000");
    make_gpu(1, "GPU-aaaa1111-1111");
    make_gpu(2, "GPU-bbbb2222-2222");
    make_gpu(13, "GPU-cccc3333-3333");
    make_file("dev/nvidiactl", "");
    make_file("dev/nvidia-uvm", "");
    make_file("dev/nvidia0x", "");
    return 0;
}

static int destroy(void **state)
{
    temp_folder_remove(root);
    return 0;
}

static void count_is(const char *visible, int expected)
{
    int count = lk__cuda_count_below(root, visible);
    if (count != expected)
        fail_msg("'%s': %d GPUs, not %d", visible ? visible : "not set", count, expected);
}

static void none(void **state)
{
    count_is(NULL, 0);
    count_is("0", 0);
    make_file("dev/null", "");
    count_is(NULL, 0);
    count_is("0,1", 0);
    count_is("GPU-aaaa", 0);
    count_is("MIG-aaaa", 0);
}

static void all(void **state)
{
    count_is(NULL, 4);
    count_is("0,1,2,3", 4);
}

static void numbers(void **state)
{
    count_is("2", 1);
    count_is("3,0", 2);
    count_is(" 1, 2", 2);
    /* The list ends at the first entry that is no GPU. */
    count_is("", 0);
    count_is("-1", 0);
    count_is("0,-1,1", 1);
    count_is("1,4,2", 1);
    count_is("0,1,", 2);
    count_is("NoDevFiles", 0);
    count_is("1,GPU-bbbb", 1);
    count_is("99999999999999999999", 0);
    /* A GPU that is listed twice is an error and hides all. */
    count_is("1,1", 0);
    count_is("0,1,2,3,0", 0);
}

static void uuids(void **state)
{
    count_is("GPU-bbbb2222-2222", 1);
    count_is("GPU-bbbb2222-2222,GPU-aaaa0000-0000", 2);
    count_is("GPU-b,GPU-c", 2);
    count_is("GPU-aaaa", 0);
    count_is("GPU-b,GPU-dddd,GPU-c", 1);
    count_is("GPU-b,0", 1);
    count_is("GPU-b,GPU-bbbb", 0);
    count_is("MIG-12345678,MIG-9", 1);
}

static void uuids_that_the_driver_does_not_tell(void **state)
{
    make_gpu(1, "GPU-????????");
    count_is("GPU-bbbb2222-2222", 1);
    count_is("GPU-x,GPU-y,GPU-z,GPU-u,GPU-v", 4);
}

static void nodes_that_may_not_be_opened(void **state)
{
    char path[2 * TEMP_FOLDER_BYTES];
    snprintf(path, sizeof path, "%s/dev/nvidia1", root);
    assert_int_equal(chmod(path, 0), 0);
    /* Root may open everything. */
    if (access(path, R_OK) != 0)
        count_is(NULL, 3);
}

TEST_MAIN(NULL, NULL, cmocka_unit_test_setup_teardown(none, create, destroy),
          cmocka_unit_test_setup_teardown(all, four_gpus, destroy),
          cmocka_unit_test_setup_teardown(numbers, four_gpus, destroy),
          cmocka_unit_test_setup_teardown(uuids, four_gpus, destroy),
          cmocka_unit_test_setup_teardown(uuids_that_the_driver_does_not_tell, four_gpus, destroy),
          cmocka_unit_test_setup_teardown(nodes_that_may_not_be_opened, four_gpus, destroy))
