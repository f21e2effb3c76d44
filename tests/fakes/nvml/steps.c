/* Values and exact integrals of piecewise-constant functions; the Python side computes the same integers. */
#include <stdlib.h>

#include "fake.h"

static bool holds(const struct steps *steps, size_t piece, int64_t t_us) {
    return (piece == 0 || steps->at_ms[piece] * 1000 <= t_us) &&
           (piece + 1 == steps->count || t_us < steps->at_ms[piece + 1] * 1000);
}

/* The piece that holds at the given moment: mostly the one that was asked for last, or the one before it, because rings are
 * read from the newest period back. The note of the last one may be anybody's: it is checked before it is believed. */
static size_t piece_at(const struct steps *steps, int64_t t_us) {
    size_t last = __atomic_load_n(steps->last, __ATOMIC_RELAXED);
    if (holds(steps, last, t_us)) return last;
    if (last > 0 && holds(steps, last - 1, t_us)) return last - 1;
    size_t low = 0, high = steps->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (steps->at_ms[middle] * 1000 <= t_us) {
            low = middle;
        } else {
            high = middle;
        }
    }
    __atomic_store_n(steps->last, low, __ATOMIC_RELAXED);
    return low;
}

int64_t steps_at_milli(const struct steps *steps, int64_t t_us) { return steps->milli[piece_at(steps, t_us)]; }

int64_t steps_at(const struct steps *steps, int64_t t_us) { return steps_at_milli(steps, t_us) / 1000; }

/* The integral from the first moment on; negative before it, where the first value holds too. */
static __int128 until(const struct steps *steps, int64_t t_us) {
    size_t piece = piece_at(steps, t_us);
    return steps->before[piece] + (__int128)steps->milli[piece] * (t_us - steps->at_ms[piece] * 1000);
}

/* Thousandths of the unit times microseconds. */
__int128 steps_integral(const struct steps *steps, int64_t from_us, int64_t to_us) {
    return until(steps, to_us) - until(steps, from_us);
}

/* Sums up once, when a scenario is read, so that an integral costs two searches however many steps there are. */
void steps_sum(struct steps *steps) {
    steps->before = calloc(steps->count, sizeof *steps->before);
    steps->last = calloc(1, sizeof *steps->last);
    if (steps->before == NULL || steps->last == NULL) abort();
    for (size_t i = 1; i < steps->count; i++) {
        int64_t length_us = (steps->at_ms[i] - steps->at_ms[i - 1]) * 1000;
        steps->before[i] = steps->before[i - 1] + (__int128)steps->milli[i - 1] * length_us;
    }
}
