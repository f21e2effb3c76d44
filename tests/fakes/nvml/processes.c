/* Who is on a GPU: the three process lists, and the statistical attribution of utilization to PIDs. */
#include "fake.h"

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

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

static const struct process *nth_alive(const struct gpu *gpu, int64_t now_us, size_t n) {
    for (size_t i = 0; i < gpu->processes.count; i++) {
        if (is_alive(&gpu->processes.items[i], now_us) && n-- == 0) return &gpu->processes.items[i];
    }
    return NULL;
}

static void attribute(const struct gpu *gpu, const struct process *process, int64_t from_us, int64_t to_us,
                      nvmlProcessUtilizationSample_t *samples, unsigned *found) {
    unsigned place = 0;
    while (place < *found && samples[place].pid != process->pid) place++;
    if (place == *found) (*found)++;
    unsigned long long stamp =
        (unsigned long long)(to_us + scenario->start_ms * 1000 + scenario->sample_clock_offset_us);
    samples[place] = (nvmlProcessUtilizationSample_t){
        process->pid, stamp, mean_percent(&gpu->util, from_us, to_us), mean_percent(&gpu->mem_util, from_us, to_us), 0, 0};
}

/* Like the driver: each sample names one PID (here in turn), each PID is reported once with its newest sample; no process
 * is an empty success, nothing new is NOT_FOUND. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                    unsigned *count, unsigned long long last_seen) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(count != NULL);
    if (call.mig != NULL || mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    size_t alive = 0;
    while (nth_alive(call.gpu, call.now_us, alive) != NULL) alive++;
    if (alive == 0) {
        *count = 0;
        return NVML_SUCCESS;
    }

    nvmlProcessUtilizationSample_t fresh[RING_SIZE];
    int64_t ends[RING_SIZE], starts[RING_SIZE];
    size_t held = ring_entries(call.gpu, call.now_us, ends, starts);
    unsigned found = 0;
    for (size_t i = 0; i < held; i++) {
        int64_t stamp = ends[i] + scenario->start_ms * 1000 + scenario->sample_clock_offset_us;
        if (stamp <= (int64_t)last_seen) continue;
        attribute(call.gpu, nth_alive(call.gpu, call.now_us, i % alive), starts[i], ends[i], fresh, &found);
    }
    if (found == 0) return NVML_ERROR_NOT_FOUND;
    if (samples == NULL || *count < found) {
        *count = RING_SIZE; /* room for whatever the second call, a moment later, finds */
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    *count = found;
    for (unsigned i = 0; i < found; i++) samples[i] = fresh[i];
    return NVML_SUCCESS;
}
