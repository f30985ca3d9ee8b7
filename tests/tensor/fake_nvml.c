/* fake_nvml.c - a libnvidia-ml.so.1 with two GPUs, for tests on machines without one. Each reading of a GPU is one
 * degree warmer. The second GPU does not tell its use, as a part of a GPU does not. */
#include <stdatomic.h>
#include <string.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, GPUS = 2 };

static struct gpu {
    const char *address;
    unsigned percent;
    unsigned long long used;
    atomic_uint celsius;
} gpus[GPUS] = {{"0000:3b:00.0", 87, 1500000000ull, 40}, {"0000:af:00.0", 0, 3072000000ull, 70}};

static atomic_int opened;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **out);
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out);
int fake_nvml_opened(void);

int nvmlInit_v2(void)
{
    opened++;
    return OK;
}

int nvmlShutdown(void)
{
    opened--;
    return OK;
}

/* For tests: calls of nvmlInit that no nvmlShutdown has matched. */
int fake_nvml_opened(void)
{
    return opened;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **out)
{
    for (int i = 0; i < GPUS; i++) {
        if (strcmp(address, gpus[i].address) == 0) {
            *out = &gpus[i];
            return OK;
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2])
{
    out[0] = ((struct gpu *)device)->percent;
    out[1] = 1;
    return out[0] ? OK : UNSUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    out[0] = 80ull << 30;
    out[2] = ((struct gpu *)device)->used;
    out[1] = out[0] - out[2];
    return OK;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    if (sensor != 0)
        return INVALID;
    *out = ((struct gpu *)device)->celsius++;
    return OK;
}
