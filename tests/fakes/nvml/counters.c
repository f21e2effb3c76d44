/* Counters: each climbs from what it held when the scenario began. */
#include "fake.h"

/* The integral up to the last whole millisecond: all counters move once a millisecond, so that a test that knows the moment
 * of a reading to the millisecond knows the value exactly. */
static __int128 so_far(const struct steps *steps, int64_t now_us) {
    return steps_integral(steps, 0, now_us < 0 ? 0 : now_us / 1000 * 1000);
}

/* Milliwatts times microseconds are nanojoules. */
uint64_t energy_mj(const struct gpu *gpu, int64_t now_us) {
    return gpu->energy_offset_mj + (uint64_t)(so_far(&gpu->energy_power, now_us) / 1000000);
}

/* Thousandths times microseconds are nanoseconds. */
uint64_t throttled_ns(const struct gpu *gpu, enum throttle_reason reason, int64_t now_us) {
    return gpu->throttled_offset_ns[reason] + (uint64_t)so_far(&gpu->throttled[reason], now_us);
}
