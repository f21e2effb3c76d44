/* Critical errors (XID) as events: a set sees what happens after a GPU was registered with it, in order of time. */
#include <stdlib.h>

#include "fake.h"

#define XID_CRITICAL_ERROR 8ull
#define SUPPORTED_EVENTS 0x1Bull

typedef struct event_set {
    uint64_t gpus; /* bit mask of indexes */
    size_t next;   /* first of the scenario's events that was not delivered */
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(types != NULL);
    *types = SUPPORTED_EVENTS;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    BEGIN_SYSTEM();
    REQUIRE(set != NULL);
    *set = calloc(1, sizeof **set);
    if (*set == NULL) return NVML_ERROR_MEMORY;
    /* The driver keeps no history: what lies in the past is gone. */
    int64_t now_us = scenario_now_us();
    while ((*set)->next < scenario->xid_count && scenario->xids[(*set)->next].at_ms * 1000 <= now_us) (*set)->next++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    BEGIN_SYSTEM();
    REQUIRE(set != NULL);
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(set != NULL && types != 0);
    if ((types & ~SUPPORTED_EVENTS) != 0) return NVML_ERROR_NOT_SUPPORTED;
    if ((types & XID_CRITICAL_ERROR) != 0) set->gpus |= 1ull << call.gpu->index;
    return NVML_SUCCESS;
}

static bool take_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    while (set->next < scenario->xid_count && scenario->xids[set->next].at_ms * 1000 <= scenario_now_us()) {
        const struct xid *xid = &scenario->xids[set->next++];
        if ((set->gpus >> xid->gpu & 1) == 0) continue;
        *data = (nvmlEventData_t){&scenario->gpus[xid->gpu], XID_CRITICAL_ERROR, xid->code, NO_INSTANCE, NO_INSTANCE};
        return true;
    }
    return false;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    BEGIN_SYSTEM();
    REQUIRE(set != NULL && data != NULL);
    int64_t end_us = clock_us() + (int64_t)timeout_ms * 1000;
    while (!take_event(set, data)) {
        int64_t left_us = end_us - clock_us();
        if (left_us <= 0) return NVML_ERROR_TIMEOUT;
        sleep_us(left_us < 20000 ? left_us : 20000);
    }
    return NVML_SUCCESS;
}
