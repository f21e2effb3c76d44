/* What every entry point does first: is the library up, is the handle real, does a fault strike now. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "fake.h"

struct scenario *scenario;
static bool initialized;
static int64_t loaded_us; /* moment at which this process loaded the library */

int64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

__attribute__((constructor)) static void remember_load(void) { loaded_us = clock_us(); }

int64_t scenario_now_us(void) { return clock_us() - scenario->start_ms * 1000; }

void sleep_us(int64_t us) {
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void library_initialized(bool yes) { __atomic_store_n(&initialized, yes, __ATOMIC_RELEASE); }

bool library_is_initialized(void) { return __atomic_load_n(&initialized, __ATOMIC_ACQUIRE); }

static bool is_init(const char *name, size_t length) {
    return (length == 8 && strncmp(name, "nvmlInit", 8) == 0) || (length == 17 && strncmp(name, "nvmlInitWithFlags", 17) == 0);
}

/* The length of a function's name without its version suffix: a fault of nvmlDeviceGetMemoryInfo strikes _v2 too. */
static size_t base_length(const char *name) {
    size_t length = strlen(name);
    bool versioned = length > 3 && name[length - 3] == '_' && name[length - 2] == 'v';
    return versioned ? length - 3 : length;
}

static bool same_function(const char *wanted, const char *called) {
    if (strcmp(wanted, called) == 0) return true;
    size_t base = base_length(called);
    if (is_init(called, base) && is_init(wanted, base_length(wanted))) return true;
    return strlen(wanted) == base && strncmp(wanted, called, base) == 0;
}

static bool strikes(const struct fault *fault, const char *function, const struct gpu *gpu) {
    if (fault->kind == FAULT_MISMATCH || fault->kind == FAULT_DRIVER_NOT_LOADED) return true;
    if (fault->gpu >= 0 && (gpu == NULL || gpu->index != (unsigned)fault->gpu)) return false;
    if (fault->function != NULL) return same_function(fault->function, function);
    bool may_strike_system = fault->kind == FAULT_HANG || fault->kind == FAULT_SLOW;
    return gpu != NULL || may_strike_system;
}

static bool is_active(const struct fault *fault, int64_t now_us) {
    if (now_us < fault->start_ms * 1000) return false;
    if (fault->end_ms == FOREVER || now_us < fault->end_ms * 1000) return true;
    /* A process that loaded the old library keeps it: only one started after the upgrade matches the driver. */
    return fault->kind == FAULT_MISMATCH && loaded_us - scenario->start_ms * 1000 < fault->end_ms * 1000;
}

static void block(const struct fault *fault) {
    while (is_active(fault, scenario_now_us())) sleep_us(20000);
}

static nvmlReturn_t play(const struct fault *fault) {
    switch (fault->kind) {
        case FAULT_LOST: return NVML_ERROR_GPU_IS_LOST;
        case FAULT_RESET_REQUIRED: return NVML_ERROR_RESET_REQUIRED;
        case FAULT_NOT_SUPPORTED: return NVML_ERROR_NOT_SUPPORTED;
        case FAULT_NO_PERMISSION: return NVML_ERROR_NO_PERMISSION;
        case FAULT_FUNCTION_NOT_FOUND: return NVML_ERROR_FUNCTION_NOT_FOUND;
        case FAULT_UNKNOWN: return NVML_ERROR_UNKNOWN;
        case FAULT_TIMEOUT: return NVML_ERROR_TIMEOUT;
        case FAULT_MISMATCH: return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        case FAULT_DRIVER_NOT_LOADED: return NVML_ERROR_DRIVER_NOT_LOADED;
        case FAULT_HANG: block(fault); return NVML_SUCCESS;
        case FAULT_SLOW: sleep_us(fault->delay_ms * 1000); return NVML_SUCCESS;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t faults_of(const char *function, const struct gpu *gpu) {
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct fault *fault = &scenario->faults[i];
        if (!strikes(fault, function, gpu) || !is_active(fault, scenario_now_us())) continue;
        nvmlReturn_t status = play(fault);
        if (status != NVML_SUCCESS) return status;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t begin_system(const char *function) {
    if (!library_is_initialized()) return NVML_ERROR_UNINITIALIZED;
    return faults_of(function, NULL);
}

struct mig *mig_in_slot(const struct gpu *gpu, unsigned slot, int64_t now_us) {
    for (size_t i = 0; i < gpu->mig_count; i++) {
        struct mig *mig = &gpu->migs[i];
        bool alive = mig->start_ms * 1000 <= now_us && (mig->end_ms == FOREVER || now_us < mig->end_ms * 1000);
        if (mig->slot == slot && alive) return mig;
    }
    return NULL;
}

/* A handle is the address of a GPU or of one of its MIG slots; anything else is refused and never followed. */
static bool find_handle(struct call *call, nvmlDevice_t device, struct mig_slot **slot) {
    *slot = NULL;
    for (size_t i = 0; i < scenario->gpu_count; i++) {
        struct gpu *gpu = &scenario->gpus[i];
        call->gpu = gpu;
        if (device == (nvmlDevice_t)gpu) return true;
        for (unsigned number = 0; number < MIG_SLOTS; number++) {
            *slot = &gpu->slots[number];
            if (device == (nvmlDevice_t)*slot) return true;
        }
        *slot = NULL;
    }
    return false;
}

nvmlReturn_t begin_device(struct call *call, const char *function, nvmlDevice_t device, enum scope scope) {
    struct mig_slot *slot;
    if (!library_is_initialized()) return NVML_ERROR_UNINITIALIZED;
    REQUIRE(find_handle(call, device, &slot));
    nvmlReturn_t status = faults_of(function, call->gpu);
    if (status != NVML_SUCCESS) return status;
    /* After the faults, which may have taken their time. */
    call->now_us = scenario_now_us();
    call->mig = slot == NULL ? NULL : mig_in_slot(call->gpu, slot->number, call->now_us);
    REQUIRE(slot == NULL || call->mig != NULL);
    REQUIRE(scope == ANY_DEVICE || slot == NULL);
    return NVML_SUCCESS;
}

bool mig_enabled(const struct call *call) { return steps_at(&call->gpu->mig_mode, call->now_us) != 0; }

nvmlReturn_t copy_text(char *to, unsigned size, const char *text) {
    REQUIRE(to != NULL);
    if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}
