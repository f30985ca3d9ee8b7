/* test_gauge.c - the use, memory and temperature of GPUs in ranks.jsonl. fake_nvml.c (tests/tensor) is the driver's
 * library, and the CPU, under another name and with PCI bus ids, is two GPUs. */
#include <math.h>

#include "cli/cli.h"
#include "cli/options/args.h"
#include "record/read.h"
#include "temp_folder.h"
#include "tensor/device.h"

static lk_device_type gpu;

/* CUDA's order is not the driver's. */
static bool gpu_address(int index, char out[LK_DEVICE_ADDRESS])
{
    snprintf(out, LK_DEVICE_ADDRESS, "%s", index == 0 ? "0000:af:00.0" : "0000:3b:00.0");
    return true;
}

static int add_gpus(void **state)
{
    gpu = lk__device_cpu;
    gpu.name = "gpu";
    gpu.address = gpu_address;
    return lk__device_add(&gpu) == LK_OK ? temp_folder_set_up(state) : -1;
}

/* Trains two ranks and opens their run folder, the only one in log. */
static lk_record *train(const char *devices, const char *log)
{
    lk_args args;
    lk_record *record;
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    char *const argv[] = {"--model",   "mlp",           "--max-steps", "12",        "--no-test",
                          "--devices", (char *)devices, "--log-dir",   (char *)log, "--quiet"};
    char folder[1024] = "";
    assert_ok(lk__args_parse(&set, sizeof argv / sizeof *argv, argv, &args));
    assert_int_equal(lk__cmd_train(&args), 0);
    DIR *names = opendir(log);
    for (const struct dirent *entry; (entry = readdir(names)) != NULL;) {
        if (*entry->d_name != '.')
            snprintf(folder, sizeof folder, "%s/%s", log, entry->d_name);
    }
    closedir(names);
    assert_ok(lk__record_open(folder, &record));
    return record;
}

static void rows_have_the_sensors_of_each_gpu(void **state)
{
    lk_record *record = train("gpu:0,gpu:1", temp_path("gpus"));
    const lk_record_table *table = lk__record_table(record, LK_RECORD_KIND_RANKS);
    assert_int_equal(table->count, 4);
    for (size_t i = 0; i < table->count; i++) {
        double percent = table->column[LK_RECORD_COLUMN_GPU_PCT][i],
               celsius = table->column[LK_RECORD_COLUMN_GPU_CELSIUS][i];
        bool second = table->column[LK_RECORD_COLUMN_RANK][i] == 1;
        assert_true(second ? percent == 87 : isnan(percent));
        assert_true(second ? celsius >= 40 && celsius < 70 : celsius >= 70);
        assert_true(table->column[LK_RECORD_COLUMN_GPU_MEMORY_MB][i] == (second ? 1500 : 3072));
        assert_int_equal(table->mask[i] >> LK_RECORD_COLUMN_GPU_PCT & 1, second);
    }
    lk__record_close(record);
}

static void without_a_gpu_there_are_none(void **state)
{
    lk_record *record = train("cpu:0,cpu:1", temp_path("cpus"));
    const lk_record_table *table = lk__record_table(record, LK_RECORD_KIND_RANKS);
    assert_int_equal(table->count, 4);
    assert_null(table->column[LK_RECORD_COLUMN_GPU_PCT]);
    assert_null(table->column[LK_RECORD_COLUMN_GPU_MEMORY_MB]);
    assert_null(table->column[LK_RECORD_COLUMN_GPU_CELSIUS]);
    lk__record_close(record);
}

TEST_MAIN(add_gpus, temp_folder_tear_down, TEST(rows_have_the_sensors_of_each_gpu), TEST(without_a_gpu_there_are_none))
