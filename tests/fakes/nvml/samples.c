/* The driver's sample ring: 72 entries, one each 10/72 s on a grid since the epoch, each the mean over its period. */
#include "fake.h"

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
} nvmlValue_t;

typedef struct {
    unsigned long long timeStamp;
    nvmlValue_t sampleValue;
} nvmlSample_t;

enum { POWER_SAMPLES = 0, GPU_UTILIZATION_SAMPLES = 1, MEMORY_UTILIZATION_SAMPLES = 2, SM_CLOCK_SAMPLES = 5, MEM_CLOCK_SAMPLES = 6 };
enum { UNSIGNED_INT = 1 };

/* 10 s / 72 = 1250000/9 us: kept as a fraction so that 72 periods are exactly 10 s. */
static int64_t grid_us(int64_t k) { return k * 1250000 / 9; }

/* The last grid point at or before a moment since the epoch. */
static int64_t grid_index(int64_t epoch_us) { return ((epoch_us + 1) * 9 - 1) / 1250000; }

static int64_t epoch_of(int64_t scenario_us) { return scenario_us + scenario->start_ms * 1000; }

static int64_t scenario_of(int64_t epoch_us) { return epoch_us - scenario->start_ms * 1000; }

unsigned mean_percent(const struct steps *steps, int64_t from_us, int64_t to_us) {
    __int128 whole = (__int128)(to_us - from_us) * 1000;
    return (unsigned)((steps_integral(steps, from_us, to_us) * 2 + whole) / (whole * 2));
}

static bool is_idle(const struct gpu *gpu, int64_t from_us, int64_t to_us) {
    return steps_integral(&gpu->util, from_us, to_us) == 0;
}

/* UtilizationRates: the last finished period, also when the ring got no entry for it. */
unsigned last_sample_percent(const struct steps *steps, int64_t now_us) {
    int64_t k = grid_index(epoch_of(now_us));
    return mean_percent(steps, scenario_of(grid_us(k - 1)), scenario_of(grid_us(k)));
}

/* Fills, oldest first, the ends and the starts (since the scenario's start) of the periods whose entries the ring holds:
 * nothing from before the scenario, nothing from idle periods. A ring that keeps old entries goes back until it is full. */
size_t ring_entries(const struct gpu *gpu, int64_t now_us, int64_t ends[], int64_t starts[]) {
    size_t count = 0;
    int64_t newest = grid_index(epoch_of(now_us));
    for (int64_t k = newest; count < RING_SIZE && (gpu->ring_keeps_old || k > newest - RING_SIZE); k--) {
        int64_t from_us = scenario_of(grid_us(k - 1)), to_us = scenario_of(grid_us(k));
        if (from_us < 0) break;
        if (!gpu->samples_while_idle && is_idle(gpu, from_us, to_us)) continue;
        ends[count] = to_us;
        starts[count++] = from_us;
    }
    for (size_t i = 0; i < count / 2; i++) {
        int64_t end = ends[i], start = starts[i];
        ends[i] = ends[count - 1 - i];
        starts[i] = starts[count - 1 - i];
        ends[count - 1 - i] = end;
        starts[count - 1 - i] = start;
    }
    return count;
}

static nvmlSample_t sample_of(const struct gpu *gpu, unsigned type, int64_t from_us, int64_t to_us) {
    nvmlSample_t sample = {.timeStamp = (unsigned long long)(epoch_of(to_us) + scenario->sample_clock_offset_us)};
    sample.sampleValue.ullVal = 0;
    switch (type) {
        case POWER_SAMPLES: sample.sampleValue.uiVal = (unsigned)steps_at_milli(&gpu->power, to_us); break;
        case GPU_UTILIZATION_SAMPLES: sample.sampleValue.uiVal = mean_percent(&gpu->util, from_us, to_us); break;
        case MEMORY_UTILIZATION_SAMPLES: sample.sampleValue.uiVal = mean_percent(&gpu->mem_util, from_us, to_us); break;
        case SM_CLOCK_SAMPLES: sample.sampleValue.uiVal = (unsigned)steps_at(&gpu->sm_clock, to_us); break;
        default: sample.sampleValue.uiVal = (unsigned)steps_at(&gpu->mem_clock, to_us); break;
    }
    return sample;
}

/* Two entries of the kind that real rings have been seen to hold: no time stamp, and a value beyond 100. */
static void spoil(nvmlSample_t samples[], unsigned *count) {
    nvmlSample_t beyond = samples[0], timeless = samples[0];
    if (*count + 2 > RING_SIZE) return;
    for (unsigned i = *count; i > 0; i--) samples[i + 1] = samples[i - 1];
    timeless.timeStamp = 0;
    timeless.sampleValue.uiVal = 55;
    beyond.timeStamp -= 7;
    beyond.sampleValue.uiVal = 4000000000u;
    samples[0] = timeless;
    samples[1] = beyond;
    *count += 2;
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long last_seen,
                                         unsigned *value_type, unsigned *count, nvmlSample_t *samples) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(value_type != NULL && count != NULL && type < 10);
    if (call.mig != NULL || mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    if (type == 3 || type == 4 || type > MEM_CLOCK_SAMPLES) return NVML_ERROR_NOT_SUPPORTED;
    *value_type = UNSIGNED_INT;
    if (samples == NULL) {
        *count = RING_SIZE;
        return NVML_SUCCESS;
    }
    REQUIRE(*count > 0);

    int64_t ends[RING_SIZE], starts[RING_SIZE];
    nvmlSample_t fresh[RING_SIZE];
    unsigned found = 0;
    size_t held = ring_entries(call.gpu, call.now_us, ends, starts);
    for (size_t i = 0; i < held; i++) {
        fresh[found] = sample_of(call.gpu, type, starts[i], ends[i]);
        if (fresh[found].timeStamp > last_seen) found++;
    }
    if (found == 0) return NVML_ERROR_NOT_FOUND;
    if (call.gpu->ring_garbage) spoil(fresh, &found);
    if (found < *count) *count = found;
    for (unsigned i = 0; i < *count; i++) samples[i] = fresh[i];
    return NVML_SUCCESS;
}
