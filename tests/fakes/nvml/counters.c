/* Counters: each climbs from zero, and a reload of the driver or a reset of the GPU puts it back there. */
#include "fake.h"

/* The start of the present epoch; 0, with whatever the counters held before, where there was no reload yet. */
static int64_t epoch_us(const struct gpu *gpu, int64_t now_us) {
    int64_t start_us = 0;
    for (size_t i = 0; i < gpu->epoch_count && gpu->epochs_ms[i] * 1000 <= now_us; i++) start_us = gpu->epochs_ms[i] * 1000;
    return start_us;
}

/* The integral over the epoch up to the last whole millisecond: all counters move once a millisecond, so that a test that
 * knows the moment of a reading to the millisecond knows the value exactly. */
static __int128 since_epoch(const struct gpu *gpu, const struct steps *steps, int64_t now_us) {
    int64_t whole_ms_us = now_us < 0 ? 0 : now_us / 1000 * 1000;
    return steps_integral(steps, epoch_us(gpu, now_us), whole_ms_us);
}

/* Milliwatts times microseconds are nanojoules. */
uint64_t energy_mj(const struct gpu *gpu, int64_t now_us) {
    uint64_t offset_mj = epoch_us(gpu, now_us) == 0 ? gpu->energy_offset_mj : 0;
    return offset_mj + (uint64_t)(since_epoch(gpu, &gpu->energy_power, now_us) / 1000000);
}

/* Thousandths times microseconds are nanoseconds. */
uint64_t throttled_ns(const struct gpu *gpu, enum throttle_reason reason, int64_t now_us) {
    uint64_t offset_ns = epoch_us(gpu, now_us) == 0 ? gpu->throttled_offset_ns[reason] : 0;
    return offset_ns + (uint64_t)since_epoch(gpu, &gpu->throttled[reason], now_us);
}

uint64_t nvlink_kib(const struct gpu *gpu, const struct steps *mib_per_s, int64_t now_us) {
    return (uint64_t)(since_epoch(gpu, mib_per_s, now_us) * 1024 / 1000000000);
}

/* The scenario counts errors from its start; the driver those since it was loaded. */
uint64_t ecc_since_load(const struct gpu *gpu, const struct steps *errors, int64_t now_us) {
    int64_t start_us = epoch_us(gpu, now_us);
    int64_t before = start_us == 0 ? 0 : steps_at(errors, start_us - 1);
    return (uint64_t)(steps_at(errors, now_us) - before);
}
