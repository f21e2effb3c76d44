/* What one GPU is and what it reads now: identity, memory, power, energy, temperature, clocks. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_v1_t;

#define MEMORY_V2 0x02000028u
#define TEMPERATURE_V1 0x0100000Cu

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    REQUIRE_INITIALIZED();
    struct gpu *gpu = gpu_at(index);
    REQUIRE(device != NULL && gpu != NULL);
    nvmlReturn_t status = faults_of(__func__, gpu);
    if (status == NVML_SUCCESS) *device = gpu;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    REQUIRE_INITIALIZED();
    REQUIRE(uuid != NULL && device != NULL);
    for (size_t i = 0; i < scenario->gpu_count; i++) {
        struct gpu *gpu = &scenario->gpus[i];
        nvmlDevice_t found = strcmp(gpu->uuid, uuid) == 0 ? gpu : NULL;
        for (unsigned slot = 0; slot < MIG_SLOTS; slot++) {
            const struct mig *mig = mig_in_slot(gpu, slot, scenario_now_us());
            if (mig != NULL && strcmp(mig->uuid, uuid) == 0) found = &gpu->slots[slot];
        }
        if (found == NULL || gpu->position < 0) continue;
        nvmlReturn_t status = faults_of(__func__, gpu);
        if (status == NVML_SUCCESS) *device = found;
        return status;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(index != NULL);
    *index = call.mig == NULL ? (unsigned)call.gpu->position : call.mig->slot;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    return copy_text(name, length, call.mig == NULL ? call.gpu->name : call.mig->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    return copy_text(uuid, length, call.mig == NULL ? call.gpu->uuid : call.mig->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    return copy_text(serial, length, call.gpu->serial);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(pci != NULL);
    memset(pci, 0, sizeof *pci);
    if (sscanf(call.gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return NVML_ERROR_UNKNOWN;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFF, pci->device & 0xFF);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF,
             pci->device & 0xFF);
    return NVML_SUCCESS;
}

/* Parts that share the host's memory have none of their own: every number is 0. */
static void memory_now(const struct call *call, nvmlMemory_v2_t *memory) {
    const struct steps *used = call->mig == NULL ? &call->gpu->mem_used : &call->mig->mem_used;
    memory->total = call->mig == NULL ? call->gpu->mem_total : call->mig->mem_total;
    memory->reserved = memory->used = memory->free = 0;
    if (memory->total == 0) return;
    memory->reserved = call->mig == NULL ? call->gpu->mem_reserved : 0;
    memory->used = (unsigned long long)steps_at(used, call->now_us);
    memory->free = memory->total - memory->reserved - memory->used;
}

/* The old call counts what the driver keeps for itself as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct call call;
    nvmlMemory_v2_t now;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(memory != NULL);
    memory_now(&call, &now);
    *memory = (nvmlMemory_t){now.total, now.free, now.used + now.reserved};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(memory != NULL);
    if (memory->version != MEMORY_V2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory_now(&call, memory);
    return NVML_SUCCESS;
}

static nvmlReturn_t engine_util(const struct call *call, const struct steps *util, unsigned *percent, unsigned *period_us) {
    REQUIRE(percent != NULL && period_us != NULL);
    *percent = (unsigned)steps_at(util, call->now_us);
    *period_us = 167000;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    return engine_util(&call, &call.gpu->encoder_util, percent, period_us);
}

EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    return engine_util(&call, &call.gpu->decoder_util, percent, period_us);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(rates != NULL);
    if (call.mig != NULL || mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    if (call.gpu->ring_recorded) {
        rates->gpu = (unsigned)steps_at(&call.gpu->rates_util, call.now_us);
        rates->memory = (unsigned)steps_at(&call.gpu->rates_mem_util, call.now_us);
        return NVML_SUCCESS;
    }
    rates->gpu = last_sample_percent(&call.gpu->util, call.now_us);
    rates->memory = last_sample_percent(&call.gpu->mem_util, call.now_us);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(energy != NULL);
    *energy = energy_mj(call.gpu, call.now_us);
    return NVML_SUCCESS;
}

static nvmlReturn_t temperature_now(const struct call *call, unsigned sensor, int64_t *celsius) {
    REQUIRE(sensor == 0);
    *celsius = steps_at(&call->gpu->temperature, call->now_us);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *temperature) {
    struct call call;
    int64_t celsius = 0;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(temperature != NULL);
    nvmlReturn_t status = temperature_now(&call, sensor, &celsius);
    *temperature = (unsigned)celsius;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    struct call call;
    int64_t celsius = 0;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(temperature != NULL);
    if (temperature->version != TEMPERATURE_V1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t status = temperature_now(&call, temperature->sensorType, &celsius);
    temperature->temperature = (int)celsius;
    return status;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *clock) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(clock != NULL && type < 4);
    *clock = (unsigned)steps_at(type == 2 ? &call.gpu->mem_clock : &call.gpu->sm_clock, call.now_us);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *clock) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(clock != NULL && type < 4);
    *clock = type == 2 ? call.gpu->max_mem_clock : call.gpu->max_sm_clock;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(major != NULL && minor != NULL);
    *major = (int)call.gpu->cc_major;
    *minor = (int)call.gpu->cc_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(current != NULL && pending != NULL);
    *current = *pending = call.gpu->ecc;
    return NVML_SUCCESS;
}

/* The getters of one number that a whole GPU has. */
#define GPU_NUMBER(function, type, expression)                           \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, type *number) {    \
        struct call call;                                                \
        BEGIN_DEVICE(call, device, WHOLE_GPU);                           \
        REQUIRE(number != NULL);                                         \
        *number = (type)(expression);                                    \
        return NVML_SUCCESS;                                             \
    }

GPU_NUMBER(nvmlDeviceGetMinorNumber, unsigned, call.gpu->minor)
GPU_NUMBER(nvmlDeviceGetArchitecture, unsigned, call.gpu->arch)
GPU_NUMBER(nvmlDeviceGetPersistenceMode, unsigned, call.gpu->persistence)
GPU_NUMBER(nvmlDeviceGetPowerUsage, unsigned, steps_at_milli(&call.gpu->power, call.now_us))
GPU_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, call.gpu->power_limit_mw)
GPU_NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, call.gpu->power_limit_mw)
GPU_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, steps_at(&call.gpu->throttle, call.now_us))
GPU_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, steps_at(&call.gpu->throttle, call.now_us))
