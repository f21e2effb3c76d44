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

enum { GPU_UTILIZATION_SAMPLES = 1, MEMORY_UTILIZATION_SAMPLES = 2 };
enum { UNSIGNED_INT = 1 };

/* 10 s / 72 = 1250000/9 us: kept as a fraction so that 72 periods are exactly 10 s. */
static int64_t grid_us(int64_t k) { return k * 1250000 / 9; }

/* The last grid point at or before a moment since the epoch. */
static int64_t grid_index(int64_t epoch_us) { return ((epoch_us + 1) * 9 - 1) / 1250000; }

static int64_t epoch_of(int64_t scenario_us) { return scenario_us + scenario->start_ms * 1000; }

static int64_t scenario_of(int64_t epoch_us) { return epoch_us - scenario->start_ms * 1000; }

/* Percentages over a scenario's length fit 64 bits, in which a division is many times cheaper. */
unsigned mean_percent(const struct steps *steps, int64_t from_us, int64_t to_us) {
    int64_t whole = (to_us - from_us) * 1000;
    return (unsigned)(((int64_t)steps_integral(steps, from_us, to_us) * 2 + whole) / (whole * 2));
}

static bool is_idle(const struct gpu *gpu, int64_t from_us, int64_t to_us) {
    return steps_integral(&gpu->util, from_us, to_us) == 0;
}

/* UtilizationRates: the last finished period, also when the ring got no entry for it. */
unsigned last_sample_percent(const struct steps *steps, int64_t now_us) {
    int64_t k = grid_index(epoch_of(now_us));
    return mean_percent(steps, scenario_of(grid_us(k - 1)), scenario_of(grid_us(k)));
}

static uint64_t stamp_of(int64_t scenario_us) {
    return (uint64_t)(epoch_of(scenario_us) + scenario->sample_clock_offset_us);
}

/* Fills, oldest first, the ends and the starts (since the scenario's start) of the periods whose entries the ring holds and
 * whose time stamps are beyond `last_seen`: nothing from before the scenario, nothing from idle periods. */
size_t ring_entries(const struct gpu *gpu, int64_t now_us, uint64_t last_seen, int64_t ends[], int64_t starts[]) {
    size_t count = 0;
    int64_t newest = grid_index(epoch_of(now_us));
    int64_t from_us = scenario_of(grid_us(newest));
    for (int64_t k = newest; k > newest - RING_SIZE; k--) {
        int64_t to_us = from_us;
        from_us = scenario_of(grid_us(k - 1));
        if (from_us < 0 || stamp_of(to_us) <= last_seen) break;
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
    nvmlSample_t sample = {.timeStamp = stamp_of(to_us)};
    sample.sampleValue.ullVal = 0;
    const struct steps *util = type == GPU_UTILIZATION_SAMPLES ? &gpu->util : &gpu->mem_util;
    sample.sampleValue.uiVal = mean_percent(util, from_us, to_us);
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

static unsigned made_samples(const struct gpu *gpu, unsigned type, int64_t now_us, uint64_t last_seen, nvmlSample_t fresh[]) {
    int64_t ends[RING_SIZE], starts[RING_SIZE];
    unsigned found = (unsigned)ring_entries(gpu, now_us, last_seen, ends, starts);
    for (unsigned i = 0; i < found; i++) fresh[i] = sample_of(gpu, type, starts[i], ends[i]);
    if (gpu->ring_garbage && found > 0) spoil(fresh, &found);
    return found;
}

/* The newest entries of a recorded ring that were there by now, oldest first, with the time stamps that they had. */
static unsigned recorded_samples(const struct gpu *gpu, unsigned type, int64_t now_us, uint64_t last_seen,
                                 nvmlSample_t fresh[]) {
    const struct recording *ring = type == GPU_UTILIZATION_SAMPLES ? &gpu->ring_util : &gpu->ring_mem_util;
    size_t end = 0;
    while (end < ring->count && ring->at_us[end] <= now_us) end++;
    size_t start = end > gpu->ring_size ? end - gpu->ring_size : 0;
    unsigned found = 0;
    for (size_t i = start; i < end; i++) {
        if (stamp_of(ring->at_us[i]) <= last_seen) continue;
        fresh[found].timeStamp = stamp_of(ring->at_us[i]);
        fresh[found++].sampleValue.ullVal = (unsigned)ring->value[i];
    }
    return found;
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long last_seen,
                                         unsigned *value_type, unsigned *count, nvmlSample_t *samples) {
    struct call call;
    BEGIN_DEVICE(call, device, ANY_DEVICE);
    REQUIRE(value_type != NULL && count != NULL && type < 10);
    if (call.mig != NULL || mig_enabled(&call)) return NVML_ERROR_NOT_SUPPORTED;
    if (type != GPU_UTILIZATION_SAMPLES && type != MEMORY_UTILIZATION_SAMPLES) return NVML_ERROR_NOT_SUPPORTED;
    *value_type = UNSIGNED_INT;
    if (samples == NULL) {
        *count = call.gpu->ring_size;
        return NVML_SUCCESS;
    }
    REQUIRE(*count > 0);

    bool recorded = call.gpu->ring_recorded;
    nvmlSample_t fresh[RECORDED_RING_MAX];
    unsigned found = recorded ? recorded_samples(call.gpu, type, call.now_us, last_seen, fresh)
                              : made_samples(call.gpu, type, call.now_us, last_seen, fresh);
    if (found == 0) return NVML_ERROR_NOT_FOUND;
    if (found < *count) *count = found;
    for (unsigned i = 0; i < *count; i++) samples[i] = fresh[i];
    return NVML_SUCCESS;
}
