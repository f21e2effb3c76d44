/* A clock for processes that are started with this library in LD_PRELOAD: time stands still until a test moves it.
 *
 * FALLOW_FAKE_CLOCK names a file of sizeof(struct page) bytes that the test and its processes share. The wall clock and the
 * clocks that never step read from it; sleeping, and waiting in poll() for so long, ends when the test's time has come. A thread
 * that waits says until when, so that the test knows when all have done what they had to do at this moment. CPU time is real.
 *
 * Where the page says that time flows, its clocks are the machine's, moved by what the page holds: whoever moves them skips the time
 * in which nobody has anything to do, and every timeout of the programs means what it says.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 1024
#define LOOK_NS 300000 /* between two looks at the page */
#define FOREVER INT64_MAX
#define EXPORT __attribute__((visibility("default")))

enum waits_in { RUNNING, SLEEPING, POLLING };

/* One thread that has waited before; `tests/fakes/clock/__init__.py` has the same layout. */
struct slot {
    int32_t tid, pid;
    int64_t waits_in;
    int64_t until_us; /* on the clock that never steps */
};

struct page {
    int64_t wall_us, steady_us; /* of a clock that flows: by how much it is ahead of the machine's */
    int64_t flows;
    int64_t look_ns; /* between two looks, where not LOOK_NS: hundreds of threads that look keep a machine busy */
    struct slot slots[SLOTS];
};

static volatile struct page *page;
static _Thread_local volatile struct slot *own;

static volatile struct slot *own_slot(void) {
    if (own != NULL) return own;
    int32_t tid = (int32_t)syscall(SYS_gettid);
    for (int i = 0; i < SLOTS; i++) {
        int32_t nobody = 0;
        if (__atomic_compare_exchange_n(&page->slots[i].tid, &nobody, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            own = &page->slots[i];
            own->pid = getpid();
            return own;
        }
    }
    abort(); /* more threads than a test of ours has */
}

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("FALLOW_FAKE_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return;
    page = memory;
    own_slot(); /* a process that starts has something to do at this moment */
}

static int64_t us_of(const struct timespec *time) { return (int64_t)time->tv_sec * 1000000 + time->tv_nsec / 1000; }

static int real_clock(clockid_t clock, struct timespec *now) {
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static int64_t real_us(clockid_t clock) {
    struct timespec now = {0, 0};
    if (page->flows) real_clock(clock, &now);
    return us_of(&now);
}

static int64_t wall_us(void) { return __atomic_load_n(&page->wall_us, __ATOMIC_ACQUIRE) + real_us(CLOCK_REALTIME); }

static int64_t steady_us(void) { return __atomic_load_n(&page->steady_us, __ATOMIC_ACQUIRE) + real_us(CLOCK_MONOTONIC); }

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    if (page == NULL) return real_clock(clock, now);
    int64_t us;
    switch (clock) {
        case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE: us = wall_us(); break;
        case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_RAW: case CLOCK_MONOTONIC_COARSE: us = steady_us(); break;
        default: return real_clock(clock, now);
    }
    *now = (struct timespec){us / 1000000, us % 1000000 * 1000};
    return 0;
}

static void begin_wait(enum waits_in waits_in, int64_t until_us) {
    volatile struct slot *slot = own_slot();
    __atomic_store_n(&slot->until_us, until_us, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->waits_in, waits_in, __ATOMIC_RELEASE);
}

static void end_wait(void) { __atomic_store_n(&own_slot()->waits_in, RUNNING, __ATOMIC_RELEASE); }

static void look_again_later(int64_t left_us) {
    int64_t look_ns = page->look_ns > 0 ? page->look_ns : LOOK_NS;
    if (page->flows && left_us < look_ns / 1000) look_ns = left_us * 1000 + 1000;
    struct timespec pause = {0, look_ns};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

static int64_t after(int64_t now_us, int64_t span_us) { return span_us > FOREVER - now_us ? FOREVER : now_us + span_us; }

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    if (page == NULL) return syscall(SYS_clock_nanosleep, clock, flags, time, left) == 0 ? 0 : errno;
    int64_t now_us = clock == CLOCK_REALTIME ? wall_us() : steady_us();
    int64_t until_us = time->tv_sec >= 1ll << 40 ? FOREVER : flags & TIMER_ABSTIME ? us_of(time) : after(now_us, us_of(time));
    while ((now_us = clock == CLOCK_REALTIME ? wall_us() : steady_us()) < until_us) {
        begin_wait(SLEEPING, until_us == FOREVER ? FOREVER : after(steady_us(), until_us - now_us));
        look_again_later(until_us - now_us);
    }
    end_wait();
    return 0;
}

EXPORT int nanosleep(const struct timespec *time, struct timespec *left) {
    if (page == NULL) return (int)syscall(SYS_nanosleep, time, left);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

static int real_poll(struct pollfd *files, nfds_t count, int timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    return (int)syscall(SYS_ppoll, files, count, timeout_ms < 0 ? NULL : &timeout, NULL, 8);
}

static int poll_for_ms(int64_t left_us) {
    int64_t look_us = page->look_ns / 1000;
    if (page->flows && left_us < look_us) look_us = left_us;
    return look_us < 1000 ? 1 : (int)(look_us / 1000);
}

EXPORT int poll(struct pollfd *files, nfds_t count, int timeout_ms) {
    if (page == NULL || timeout_ms == 0) return real_poll(files, count, timeout_ms);
    int64_t until_us = timeout_ms < 0 ? FOREVER : steady_us() + (int64_t)timeout_ms * 1000;
    int ready = 0;
    for (;;) {
        begin_wait(POLLING, until_us);
        ready = real_poll(files, count, poll_for_ms(until_us - steady_us()));
        if (ready != 0 || steady_us() >= until_us) break;
    }
    end_wait();
    return ready;
}

/* A file that gets its name is as old as the clock that flows says: whoever asks for its age lives by that clock. */
EXPORT int rename(const char *old, const char *new) {
    int failed = (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
    if (failed || page == NULL || !page->flows) return failed;
    int64_t now_us = wall_us();
    struct timespec times[2] = {{now_us / 1000000, now_us % 1000000 * 1000}, {now_us / 1000000, now_us % 1000000 * 1000}};
    utimensat(AT_FDCWD, new, times, 0);
    return 0;
}
