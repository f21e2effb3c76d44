/* Who is on a GPU: the three process lists. */
#include "fake.h"

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

static bool is_alive(const struct process *process, int64_t now_us) {
    return process->start_ms * 1000 <= now_us && (process->end_ms == FOREVER || now_us < process->end_ms * 1000);
}

/* Counts every living process of a kind and writes as many as there is room for. */
static unsigned list_into(const struct process_list *list, enum process_kind kind, const struct mig *mig, int64_t now_us,
                          nvmlProcessInfo_t *infos, unsigned room, unsigned found) {
    for (size_t i = 0; i < list->count; i++) {
        const struct process *process = &list->items[i];
        if (process->kind != kind || !is_alive(process, now_us)) continue;
        if (found < room) {
            infos[found] = (nvmlProcessInfo_t){process->pid, process->mem_bytes, mig == NULL ? NO_INSTANCE : mig->gi,
                                               mig == NULL ? NO_INSTANCE : mig->ci};
        }
        found++;
    }
    return found;
}

/* A whole GPU lists its instances' processes too, each with the ids of its instance. */
static nvmlReturn_t list_processes(const struct call *call, enum process_kind kind, unsigned *count, nvmlProcessInfo_t *infos) {
    REQUIRE(count != NULL && (infos != NULL || *count == 0));
    unsigned room = *count, found = 0;
    if (call->mig != NULL) {
        found = list_into(&call->mig->processes, kind, call->mig, call->now_us, infos, room, found);
    } else {
        found = list_into(&call->gpu->processes, kind, NULL, call->now_us, infos, room, found);
        for (unsigned slot = 0; slot < MIG_SLOTS; slot++) {
            const struct mig *mig = mig_in_slot(call->gpu, slot, call->now_us);
            if (mig != NULL) found = list_into(&mig->processes, kind, mig, call->now_us, infos, room, found);
        }
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESS_LIST(function, kind)                                                                     \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) {       \
        struct call call;                                                                                \
        BEGIN_DEVICE(call, device, ANY_DEVICE);                                                          \
        return list_processes(&call, kind, count, infos);                                                \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

/* No process has been seen at work: an empty success. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, void *samples, unsigned *count,
                                                    unsigned long long last_seen) {
    struct call call;
    (void)samples, (void)last_seen;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(count != NULL);
    if (call.mig != NULL || mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    return NVML_SUCCESS;
}
