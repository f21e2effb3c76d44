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

static bool lost_one(nvmlEventSet_t set, const char *function) {
    for (size_t i = 0; i < scenario->gpu_count; i++) {
        if ((set->gpus >> i & 1) != 0 && is_lost(function, &scenario->gpus[i])) return true;
    }
    return false;
}

/* The moment (since the epoch) at which something may happen: the next event, the next fault, the end of patience. */
static int64_t wake_us(nvmlEventSet_t set, int64_t end_us) {
    int64_t now_us = scenario_now_us(), next_us = next_fault_us(now_us), start_us = scenario->start_ms * 1000;
    for (size_t i = set->next; i < scenario->xid_count; i++) {
        const struct xid *xid = &scenario->xids[i];
        if ((set->gpus >> xid->gpu & 1) == 0) continue;
        if (xid->at_ms * 1000 < next_us) next_us = xid->at_ms * 1000;
        break; /* they are in order of time */
    }
    return next_us == FOREVER || next_us + start_us > end_us ? end_us : next_us + start_us;
}

/* Sleeps, or polls where the scenario says so. A GPU of the set that is lost ends the wait, and every wait after it, at once. */
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    REQUIRE(set != NULL && data != NULL);
    int64_t end_us = clock_us() + (int64_t)timeout_ms * 1000;
    for (;;) {
        BEGIN_SYSTEM();
        if (take_event(set, data)) return NVML_SUCCESS;
        if (lost_one(set, __func__)) return NVML_ERROR_GPU_IS_LOST;
        int64_t now_us = clock_us(), look_us = now_us + scenario->event_poll_ms * 1000, next_us = wake_us(set, end_us);
        if (now_us >= end_us) return NVML_ERROR_TIMEOUT;
        sleep_until_us(look_us > now_us && look_us < next_us ? look_us : next_us);
    }
}
