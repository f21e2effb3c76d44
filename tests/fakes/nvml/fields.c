/* The batched field values: errors, repairs, counters, power; each with its own status. */
#include <stdio.h>

#include "fake.h"

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
enum {
    ECC_CORRECTED = 3, ECC_UNCORRECTED = 4, ECC_CORRECTED_LIFETIME = 5, ECC_UNCORRECTED_LIFETIME = 6,
    THROTTLED_POWER_CAP = 74, THROTTLED_SYNC_BOOST = 76, MEMORY_TEMPERATURE = 82, TOTAL_ENERGY = 83, PCIE_REPLAY = 94,
    REMAPPED_CORRECTED = 142, REMAPPED_UNCORRECTED = 143, REMAP_PENDING = 144,
    REMAP_FAILED = 145, RECOVERY_ACTION = 230, RENUMBERED = 251,
    RENUMBERED_END = 274
};
/* Fields 251 to 273: power smoothing has eighteen numbers, throttled time three and power balancing two, in this order from
 * driver 580.82 on. Drivers 575.51 to 580.65 have the last two groups first, those before have power smoothing alone. */
enum { SMOOTHING = 18, THROTTLED = 3, BLACKWELL = 10 };

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

static nvmlReturn_t set32(nvmlFieldValue_t *field, int64_t value) {
    field->valueType = UNSIGNED_INT;
    field->value.uiVal = (unsigned)value;
    return NVML_SUCCESS;
}

static nvmlReturn_t set64(nvmlFieldValue_t *field, uint64_t value) {
    field->valueType = UNSIGNED_LONG_LONG;
    field->value.ullVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t read_ecc(const struct gpu *gpu, int64_t now_us, nvmlFieldValue_t *field) {
    if (!gpu->ecc) return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
        case ECC_CORRECTED: return set64(field, (uint64_t)steps_at(&gpu->ecc_corrected, now_us));
        case ECC_UNCORRECTED: return set64(field, (uint64_t)steps_at(&gpu->ecc_uncorrected, now_us));
        case ECC_CORRECTED_LIFETIME:
            return set64(field, gpu->ecc_corrected_offset + (uint64_t)steps_at(&gpu->ecc_corrected, now_us));
        default: return set64(field, gpu->ecc_uncorrected_offset + (uint64_t)steps_at(&gpu->ecc_uncorrected, now_us));
    }
}

static nvmlReturn_t read_remap(const struct gpu *gpu, int64_t now_us, nvmlFieldValue_t *field) {
    if (!gpu->row_remap) return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
        case REMAPPED_CORRECTED: return set32(field, steps_at(&gpu->remapped_corrected, now_us));
        case REMAPPED_UNCORRECTED: return set32(field, steps_at(&gpu->remapped_uncorrected, now_us));
        case REMAP_PENDING: return set32(field, steps_at(&gpu->remap_pending, now_us));
        default: return set32(field, steps_at(&gpu->remap_failed, now_us));
    }
}

static bool driver_is_before(int major, int minor) {
    int is_major = 0, is_minor = 0;
    if (sscanf(scenario->driver_version, "%d.%d", &is_major, &is_minor) != 2) return false;
    return is_major < major || (is_major == major && is_minor < minor);
}

/* Cards before Blackwell have no power smoothing. */
static nvmlReturn_t read_renumbered(const struct gpu *gpu, int64_t now_us, nvmlFieldValue_t *field) {
    static const enum throttle_reason reasons[] = {SW_THERMAL, HW_THERMAL, POWER_BRAKE};
    unsigned place = field->fieldId - RENUMBERED, first = SMOOTHING;
    if (driver_is_before(575, 51)) {
        if (place >= SMOOTHING || driver_is_before(570, 86)) return NVML_ERROR_INVALID_ARGUMENT;
    } else {
        if (driver_is_before(580, 82)) first = 0;
        if (place >= first && place < first + THROTTLED) {
            return set64(field, throttled_ns(gpu, reasons[place - first], now_us));
        }
    }
    return gpu->arch >= BLACKWELL ? set32(field, 1) : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t read_field(const struct gpu *gpu, int64_t now_us, nvmlFieldValue_t *field) {
    switch (field->fieldId) {
        case ECC_CORRECTED:
        case ECC_UNCORRECTED:
        case ECC_CORRECTED_LIFETIME:
        case ECC_UNCORRECTED_LIFETIME: return read_ecc(gpu, now_us, field);
        case REMAPPED_CORRECTED:
        case REMAPPED_UNCORRECTED:
        case REMAP_PENDING:
        case REMAP_FAILED: return read_remap(gpu, now_us, field);
        case THROTTLED_POWER_CAP: return set64(field, throttled_ns(gpu, POWER_CAP, now_us));
        case THROTTLED_SYNC_BOOST: return set64(field, throttled_ns(gpu, SYNC_BOOST, now_us));
        case MEMORY_TEMPERATURE: return set32(field, steps_at(&gpu->mem_temperature, now_us));
        case TOTAL_ENERGY: return set64(field, energy_mj(gpu, now_us));
        case PCIE_REPLAY: return set32(field, steps_at(&gpu->pcie_replay, now_us));
        case RECOVERY_ACTION: return set32(field, steps_at(&gpu->recovery_action, now_us));
        default:
            if (field->fieldId < RENUMBERED || field->fieldId >= RENUMBERED_END) return NVML_ERROR_NOT_SUPPORTED;
            return read_renumbered(gpu, now_us, field);
    }
}

static nvmlReturn_t error_of(const struct gpu *gpu, unsigned field) {
    for (size_t i = 0; i < gpu->field_error_count; i++) {
        if (gpu->field_errors[i].field == field) return gpu->field_errors[i].status;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(fields != NULL && count > 0);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *field = &fields[i];
        field->timestamp = call.now_us + scenario->start_ms * 1000;
        field->latencyUsec = 1;
        field->valueType = UNSIGNED_INT;
        field->value.ullVal = 0;
        field->nvmlReturn = error_of(call.gpu, field->fieldId);
        if (field->nvmlReturn == NVML_SUCCESS) field->nvmlReturn = read_field(call.gpu, call.now_us, field);
    }
    return NVML_SUCCESS;
}
