/* gauge.c - reads a GPU's sensors through NVML. The declarations below are NVML's: its header is part of the CUDA
 * toolkit, and a build without CUDA has this file too. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "tensor/gauge.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/libraries.h"
#include "base/mem.h"
#include "base/thread.h"

/* Nanoseconds between two readings. Seconds that destroy waits. */
enum { EVERY_NS = 500 * 1000 * 1000, END_SECONDS = 5 };

/* nvmlReturn_t, nvmlTemperatureSensors_t, nvmlUtilization_t, nvmlMemory_t. */
enum { NVML_SUCCESS = 0, NVML_TEMPERATURE_GPU = 0 };
typedef struct utilization {
    unsigned gpu, memory; /* percent */
} utilization;
typedef struct memory {
    unsigned long long total, free, used; /* bytes */
} memory;

static struct {
    int (*init)(void);
    int (*shut_down)(void);
    int (*find)(const char *address, void **gpu);
    int (*utilization)(void *gpu, utilization *out);
    int (*memory)(void *gpu, memory *out);
    int (*temperature)(void *gpu, int sensor, unsigned *out);
} nvml;

static bool loaded;

struct lk_gauge {
    void *gpu;
    pthread_t thread;
    pthread_mutex_t lock; /* of the fields below */
    pthread_cond_t wake;
    bool ending;
    lk_gauge_reading reading;
};

#define LOAD(function, name) lk__library_symbol(library, name, &nvml.function)

static void load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    loaded = library != NULL && LOAD(init, "nvmlInit_v2") && LOAD(shut_down, "nvmlShutdown") &&
             LOAD(find, "nvmlDeviceGetHandleByPciBusId_v2") && LOAD(utilization, "nvmlDeviceGetUtilizationRates") &&
             LOAD(memory, "nvmlDeviceGetMemoryInfo") && LOAD(temperature, "nvmlDeviceGetTemperature");
}

static const lk_gauge_reading nothing = {NAN, NAN, NAN};

/* Each number may be missing on its own, as the use of a part of a GPU (MIG). */
static lk_gauge_reading ask(void *gpu)
{
    lk_gauge_reading reading = nothing;
    utilization use;
    memory bytes;
    unsigned celsius;
    if (nvml.utilization(gpu, &use) == NVML_SUCCESS)
        reading.busy_pct = use.gpu;
    if (nvml.memory(gpu, &bytes) == NVML_SUCCESS)
        reading.memory_mb = (double)bytes.used / 1e6;
    if (nvml.temperature(gpu, NVML_TEMPERATURE_GPU, &celsius) == NVML_SUCCESS)
        reading.celsius = celsius;
    return reading;
}

static struct timespec after(clockid_t clock, long seconds, long ns)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_sec += seconds + (at.tv_nsec + ns) / 1000000000;
    at.tv_nsec = (at.tv_nsec + ns) % 1000000000;
    return at;
}

static void *watch(void *arg)
{
    lk_gauge *gauge = arg;
    pthread_mutex_lock(&gauge->lock);
    while (!gauge->ending) {
        struct timespec until = after(CLOCK_MONOTONIC, 0, EVERY_NS);
        if (pthread_cond_timedwait(&gauge->wake, &gauge->lock, &until) == 0)
            continue;
        pthread_mutex_unlock(&gauge->lock);
        lk_gauge_reading reading = ask(gauge->gpu);
        pthread_mutex_lock(&gauge->lock);
        gauge->reading = reading;
    }
    pthread_mutex_unlock(&gauge->lock);
    return NULL;
}

static void init_lock(lk_gauge *gauge)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&gauge->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&gauge->wake, &steady);
    pthread_condattr_destroy(&steady);
}

static void release(lk_gauge *gauge)
{
    pthread_cond_destroy(&gauge->wake);
    pthread_mutex_destroy(&gauge->lock);
    lk__mem_free(gauge);
    (void)nvml.shut_down();
}

/* NVML counts the calls of nvmlInit and nvmlShutdown, so each gauge has its own pair. */
lk_gauge *lk__gauge_create(const char *address)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    lk_gauge *gauge;
    void *gpu;
    pthread_once(&once, load);
    if (!loaded || nvml.init() != NVML_SUCCESS)
        return NULL;
    if (nvml.find(address, &gpu) != NVML_SUCCESS || LK_ALLOC(1, "gauge of a GPU", &gauge) != LK_OK) {
        (void)nvml.shut_down();
        return NULL;
    }
    gauge->gpu = gpu;
    gauge->reading = ask(gpu);
    init_lock(gauge);
    if (lk__thread_create(&gauge->thread, watch, gauge) == 0)
        return gauge;
    release(gauge);
    return NULL;
}

lk_gauge_reading lk__gauge_read(lk_gauge *gauge)
{
    if (!gauge)
        return nothing;
    pthread_mutex_lock(&gauge->lock);
    lk_gauge_reading reading = gauge->reading;
    pthread_mutex_unlock(&gauge->lock);
    return reading;
}

void lk__gauge_destroy(lk_gauge *gauge)
{
    if (!gauge)
        return;
    pthread_mutex_lock(&gauge->lock);
    gauge->ending = true;
    pthread_cond_signal(&gauge->wake);
    pthread_mutex_unlock(&gauge->lock);
    /* A driver may block the thread for long. The thread then still uses the gauge, whose memory stays. */
    struct timespec until = after(CLOCK_REALTIME, END_SECONDS, 0);
    if (pthread_timedjoin_np(gauge->thread, NULL, &until) == 0)
        release(gauge);
}
