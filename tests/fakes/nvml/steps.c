/* Values and exact integrals of piecewise-constant functions; the Python side computes the same integers. */
#include "fake.h"

/* The piece that holds at the given moment. */
static size_t piece_at(const struct steps *steps, int64_t t_us) {
    size_t low = 0, high = steps->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (steps->at_ms[middle] * 1000 <= t_us) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

int64_t steps_at_milli(const struct steps *steps, int64_t t_us) { return steps->milli[piece_at(steps, t_us)]; }

int64_t steps_at(const struct steps *steps, int64_t t_us) { return steps_at_milli(steps, t_us) / 1000; }

/* Thousandths of the unit times microseconds. */
__int128 steps_integral(const struct steps *steps, int64_t from_us, int64_t to_us) {
    __int128 sum = 0;
    size_t piece = piece_at(steps, from_us);
    while (from_us < to_us) {
        bool last = piece + 1 == steps->count;
        int64_t until_us = last ? to_us : steps->at_ms[piece + 1] * 1000;
        if (until_us > to_us) until_us = to_us;
        sum += (__int128)steps->milli[piece] * (until_us - from_us);
        from_us = until_us;
        piece++;
    }
    return sum;
}
