/* The batched field values: memory temperature, energy, average and instantaneous power; each with its own status. */
#include "fake.h"

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
enum { MEMORY_TEMPERATURE = 82, TOTAL_ENERGY = 83, POWER_AVERAGE = 185, POWER_INSTANT = 186 };

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

static void read_field(const struct call *call, nvmlFieldValue_t *field) {
    const struct gpu *gpu = call->gpu;
    field->timestamp = call->now_us + scenario->start_ms * 1000;
    field->latencyUsec = 1;
    field->nvmlReturn = NVML_SUCCESS;
    field->valueType = UNSIGNED_INT;
    field->value.ullVal = 0;
    switch (field->fieldId) {
        case MEMORY_TEMPERATURE: field->value.uiVal = (unsigned)steps_at(&gpu->mem_temperature, call->now_us); break;
        case TOTAL_ENERGY:
            field->valueType = UNSIGNED_LONG_LONG;
            field->value.ullVal = energy_mj(gpu, call->now_us);
            break;
        case POWER_AVERAGE:
        case POWER_INSTANT: field->value.uiVal = (unsigned)steps_at_milli(&gpu->power, call->now_us); break;
        default: field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(fields != NULL && count > 0);
    for (int i = 0; i < count; i++) read_field(&call, &fields[i]);
    return NVML_SUCCESS;
}
