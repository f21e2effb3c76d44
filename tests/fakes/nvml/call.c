/* What every entry point does first: is the library up, is the handle real, does a fault strike now. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "fake.h"

struct scenario *scenario;
static bool initialized;
static int64_t loaded_us; /* moment at which this process loaded the library */
static int64_t initialized_us; /* moment at which it listed its GPUs */

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

void sleep_until_us(int64_t epoch_us) {
    /* The end of time itself is beyond what the kernel takes. */
    struct timespec until = {.tv_sec = epoch_us == FOREVER ? 1ll << 40 : epoch_us / 1000000, .tv_nsec = epoch_us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == EINTR) {
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
    if (fault->kind == FAULT_DRIVER) return true;
    if (fault->gpu >= 0 && (gpu == NULL || gpu->index != (unsigned)fault->gpu)) return false;
    if (fault->function != NULL) return same_function(fault->function, function);
    bool may_strike_system = fault->kind == FAULT_HANG || fault->kind == FAULT_SLOW || fault->kind == FAULT_CRASH;
    return gpu != NULL || may_strike_system;
}

static bool is_active(const struct fault *fault, int64_t now_us) {
    if (now_us < fault->start_ms * 1000) return false;
    if (fault->end_ms == FOREVER || now_us < fault->end_ms * 1000) return true;
    /* A process that loaded the old library keeps it: only one started after the upgrade matches the driver. A GPU that was
     * out and is back is a new device: the handles from before stay lost until the library is initialised again. */
    int64_t since_us = fault->kind == FAULT_UNPLUG                            ? initialized_us
                       : fault->status == NVML_ERROR_LIB_RM_VERSION_MISMATCH ? loaded_us
                                                                              : INT64_MAX;
    return since_us != INT64_MAX && since_us - scenario->start_ms * 1000 < fault->end_ms * 1000;
}

static void block(const struct fault *fault) {
    while (is_active(fault, scenario_now_us())) {
        sleep_until_us(fault->end_ms == FOREVER ? FOREVER : (scenario->start_ms + fault->end_ms) * 1000);
    }
}

/* A crash inside the library, without a core file for each. */
static _Noreturn void crash(void) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    abort();
}

static nvmlReturn_t play(const struct fault *fault) {
    switch (fault->kind) {
        case FAULT_HANG: block(fault); return NVML_SUCCESS;
        case FAULT_SLOW: sleep_us(fault->delay_ms * 1000); return NVML_SUCCESS;
        case FAULT_CRASH: crash();
        default: return fault->status;
    }
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

bool is_lost(const char *function, const struct gpu *gpu) {
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct fault *fault = &scenario->faults[i];
        bool loses = fault->status == NVML_ERROR_GPU_IS_LOST && strikes(fault, function, gpu);
        if (loses && is_active(fault, scenario_now_us())) return true;
    }
    return false;
}

int64_t next_fault_us(int64_t after_us) {
    int64_t next_us = FOREVER;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        int64_t start_us = scenario->faults[i].start_ms * 1000;
        if (start_us > after_us && start_us < next_us) next_us = start_us;
    }
    return next_us;
}

/* The driver lists its GPUs when a library is initialised; one that is out at that moment has no place in the list. */
void list_gpus(void) {
    initialized_us = clock_us();
    int position = 0;
    for (size_t i = 0; i < scenario->gpu_count; i++) {
        struct gpu *gpu = &scenario->gpus[i];
        bool out = false;
        for (size_t k = 0; k < scenario->fault_count; k++) {
            const struct fault *fault = &scenario->faults[k];
            bool its = fault->gpu < 0 || fault->gpu == (int)i;
            out = out || (fault->kind == FAULT_UNPLUG && its && is_active(fault, scenario_now_us()));
        }
        gpu->position = out ? -1 : position++;
    }
}

struct gpu *gpu_at(unsigned position) {
    for (size_t i = 0; i < scenario->gpu_count; i++) {
        if (scenario->gpus[i].position == (int)position) return &scenario->gpus[i];
    }
    return NULL;
}

nvmlReturn_t begin_system(const char *function) {
    if (!library_is_initialized()) return NVML_ERROR_UNINITIALIZED;
    return faults_of(function, NULL);
}

struct mig *mig_in_slot(const struct gpu *gpu, unsigned slot, int64_t now_us) {
    if (gpu->mig_count == 0 || steps_at(&gpu->mig_mode, now_us) == 0) return NULL;
    for (size_t i = 0; i < gpu->mig_count; i++) {
        struct mig *mig = &gpu->migs[i];
        bool alive = mig->start_ms * 1000 <= now_us && (mig->end_ms == FOREVER || now_us < mig->end_ms * 1000);
        if (mig->slot == slot && alive) return mig;
    }
    return NULL;
}

/* A handle is the address of a GPU or of one of its MIG slots; anything else is refused and never followed. */
static bool find_handle(struct call *call, nvmlDevice_t device, struct mig_slot **slot) {
    uintptr_t first = (uintptr_t)scenario->gpus, size = sizeof(struct gpu), handle = (uintptr_t)device;
    if (handle < first || handle >= first + scenario->gpu_count * size) return false;
    call->gpu = &scenario->gpus[(handle - first) / size];
    size_t place = (handle - first) % size, slots = offsetof(struct gpu, slots);
    bool is_slot = place >= slots && place < slots + sizeof call->gpu->slots && (place - slots) % sizeof **slot == 0;
    *slot = is_slot ? (struct mig_slot *)device : NULL;
    return (place == 0 || is_slot) && call->gpu->position >= 0;
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

nvmlReturn_t begin_pair(struct call *one, struct call *other, const char *function, nvmlDevice_t device1,
                        nvmlDevice_t device2) {
    nvmlReturn_t status = begin_device(one, function, device1, WHOLE_GPU);
    return status != NVML_SUCCESS ? status : begin_device(other, function, device2, WHOLE_GPU);
}

bool mig_enabled(const struct call *call) { return steps_at(&call->gpu->mig_mode, call->now_us) != 0; }

nvmlReturn_t copy_text(char *to, unsigned size, const char *text) {
    REQUIRE(to != NULL);
    if (strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}
