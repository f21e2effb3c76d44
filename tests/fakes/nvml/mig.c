/* Multi-instance GPUs: mode, enumeration, ids. */
#include <string.h>

#include "fake.h"

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(current != NULL && pending != NULL);
    if (!call.gpu->mig_capable) return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = mig_enabled(&call);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(count != NULL);
    *count = mig_enabled(&call) ? MIG_SLOTS : 0; /* nvml.h: zero if MIG is not supported or enabled */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(mig != NULL && index < MIG_SLOTS);
    if (!call.gpu->mig_capable) return NVML_ERROR_NOT_SUPPORTED;
    if (!mig_enabled(&call) || mig_in_slot(call.gpu, index, call.now_us) == NULL) return NVML_ERROR_NOT_FOUND;
    *mig = &call.gpu->slots[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(is_mig != NULL);
    *is_mig = call.mig != NULL;
    return NVML_SUCCESS;
}

static nvmlReturn_t begin_mig(struct call *call, const char *function, nvmlDevice_t device) {
    nvmlReturn_t status = begin_device(call, function, device, ANY_DEVICE);
    if (status != NVML_SUCCESS) return status;
    REQUIRE(call->mig != NULL);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
    struct call call;
    nvmlReturn_t status = begin_mig(&call, __func__, device);
    if (status == NVML_SUCCESS) *parent = call.gpu;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct call call;
    nvmlReturn_t status = begin_mig(&call, __func__, device);
    if (status == NVML_SUCCESS) *id = call.mig->gi;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct call call;
    nvmlReturn_t status = begin_mig(&call, __func__, device);
    if (status == NVML_SUCCESS) *id = call.mig->ci;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    struct call call;
    nvmlReturn_t status = begin_mig(&call, __func__, device);
    if (status != NVML_SUCCESS) return status;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessorCount = call.mig->compute_slices * 16;
    attributes->gpuInstanceSliceCount = call.mig->gpu_slices;
    attributes->computeInstanceSliceCount = call.mig->compute_slices;
    attributes->memorySizeMB = call.mig->mem_total >> 20;
    return NVML_SUCCESS;
}
