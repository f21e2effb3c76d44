/* GPU performance monitoring: true averages between two samples (Hopper and newer). */
#include <math.h>
#include <stdlib.h>

#include "fake.h"

#define METRICS_MAX 477
#define GPM_VERSION 1

typedef struct {
    struct gpu *gpu;
    unsigned gi; /* NO_INSTANCE: the whole GPU */
    int64_t at_us; /* since the scenario's start; negative: never filled */
} *nvmlGpmSample_t;

typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct {
        const char *shortName, *longName, *unit;
    } metricInfo;
} nvmlGpmMetric_t;

typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[METRICS_MAX];
} nvmlGpmMetricsGet_t;

typedef struct {
    unsigned version, isSupportedDevice;
} nvmlGpmSupport_t;

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(support != NULL);
    if (support->version != GPM_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = call.gpu->gpm_supported;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    BEGIN_SYSTEM();
    REQUIRE(sample != NULL);
    *sample = calloc(1, sizeof **sample);
    if (*sample == NULL) return NVML_ERROR_MEMORY;
    (*sample)->at_us = -1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    BEGIN_SYSTEM();
    REQUIRE(sample != NULL);
    free(sample);
    return NVML_SUCCESS;
}

static struct mig *instance(const struct gpu *gpu, unsigned gi, int64_t now_us) {
    for (unsigned slot = 0; slot < MIG_SLOTS; slot++) {
        struct mig *mig = mig_in_slot(gpu, slot, now_us);
        if (mig != NULL && mig->gi == gi) return mig;
    }
    return NULL;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(sample != NULL);
    if (!call.gpu->gpm_supported) return NVML_ERROR_NOT_SUPPORTED;
    sample->gpu = call.gpu;
    sample->gi = NO_INSTANCE;
    sample->at_us = call.now_us;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(sample != NULL);
    if (!call.gpu->gpm_supported || !mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    if (instance(call.gpu, gi, call.now_us) == NULL) return NVML_ERROR_NOT_FOUND;
    sample->gpu = call.gpu;
    sample->gi = gi;
    sample->at_us = call.now_us;
    return NVML_SUCCESS;
}

static void measure(nvmlGpmMetric_t *metric, const struct gpm_list *list, int64_t from_us, int64_t to_us) {
    metric->value = NAN;
    metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    metric->metricInfo.shortName = metric->metricInfo.longName = metric->metricInfo.unit = "";
    for (size_t i = 0; i < list->count; i++) {
        const struct gpm_metric *known = &list->items[i];
        if (known->id != metric->metricId) continue;
        metric->nvmlReturn = NVML_SUCCESS;
        if (known->is_nan || from_us == to_us) return;
        metric->value = (double)steps_integral(&known->value, from_us, to_us) / (double)(to_us - from_us) / 1000;
    }
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    REQUIRE_INITIALIZED();
    REQUIRE(get != NULL && get->numMetrics <= METRICS_MAX);
    if (get->version != GPM_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpmSample_t first = get->sample1, second = get->sample2;
    REQUIRE(first != NULL && second != NULL && first->at_us >= 0 && second->at_us >= first->at_us);
    REQUIRE(first->gpu == second->gpu && first->gi == second->gi);
    nvmlReturn_t status = faults_of(__func__, first->gpu);
    if (status != NVML_SUCCESS) return status;

    const struct gpm_list *list = &first->gpu->gpm;
    if (first->gi != NO_INSTANCE) {
        const struct mig *mig = instance(first->gpu, first->gi, second->at_us);
        if (mig == NULL) return NVML_ERROR_NOT_FOUND;
        list = &mig->gpm;
    }
    for (unsigned i = 0; i < get->numMetrics; i++) measure(&get->metrics[i], list, first->at_us, second->at_us);
    return NVML_SUCCESS;
}
