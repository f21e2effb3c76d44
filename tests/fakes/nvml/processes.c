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

/* Which process a sample names: the living ones in turn, by the number of its period, so that none depends on the asking. */
static const struct process *in_turn(const struct gpu *gpu, int64_t now_us, size_t turn, size_t alive) {
    size_t n = turn % alive;
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
    const struct steps *util = process->util.count == 0 ? &gpu->util : &process->util;
    unsigned sm_pct = gpu->process_util_over_100 ? 4000000000u : mean_percent(util, from_us, to_us);
    samples[place] = (nvmlProcessUtilizationSample_t){process->pid, stamp, sm_pct,
                                                      mean_percent(&gpu->mem_util, from_us, to_us), 0, 0};
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
    for (size_t i = 0; i < call.gpu->processes.count; i++) alive += is_alive(&call.gpu->processes.items[i], call.now_us);
    if (alive == 0 || call.gpu->process_util_empty) {
        *count = 0;
        return NVML_SUCCESS;
    }

    nvmlProcessUtilizationSample_t fresh[RING_SIZE];
    int64_t ends[RING_SIZE], starts[RING_SIZE];
    size_t held = ring_entries(call.gpu, call.now_us, last_seen, ends, starts);
    unsigned found = 0;
    for (size_t i = 0; i < held; i++) {
        const struct process *process = in_turn(call.gpu, call.now_us, ring_period(ends[i]), alive);
        attribute(call.gpu, process, starts[i], ends[i], fresh, &found);
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
