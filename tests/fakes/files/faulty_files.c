/* Changes of files that fail, for processes that are started with this library in LD_PRELOAD.
 *
 * FALLOW_FAULTY_FILES names a file of sizeof(struct page) bytes that the test shares with its processes. While `armed`, each call
 * that changes something below `folder` is counted, over all processes; at the one numbered `at` happens what `kind` says, before
 * the call is made: the process is killed, the call fails, or writes the first half alone. A full disk stays full. A mount that hangs lets nobody
 * go before it is no longer armed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PATH_BYTES 4096

enum kind { COUNT, KILL, IO_ERROR, DISK_FULL, SHORT_WRITE, HANG };

/* `tests/fakes/files/__init__.py` has the same layout. */
struct page {
    int64_t armed, count, at, kind;
    char folder[PATH_BYTES];
};

static volatile struct page *page;

__attribute__((constructor)) static void open_page(void) {
    const char *path = getenv("FALLOW_FAULTY_FILES");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) page = memory;
}

static bool is_below(const char *path) {
    if (page == NULL || !page->armed || path == NULL) return false;
    size_t length = strlen((const char *)page->folder);
    return strncmp(path, (const char *)page->folder, length) == 0;
}

static bool is_open_below(int fd) {
    if (page == NULL || !page->armed) return false;
    char link[64], path[PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    return is_below(path);
}

/* Counts one change; the error that it is to fail with, 0 for none. `takes_room` on the disk. */
static int fault(bool takes_room, bool *is_short) {
    int64_t number = __atomic_add_fetch(&page->count, 1, __ATOMIC_SEQ_CST);
    bool is_first = number == page->at;
    switch (page->kind) {
    case KILL:
        if (is_first) raise(SIGKILL);
        return 0;
    case IO_ERROR:
        return is_first ? EIO : 0;
    case DISK_FULL:
        if (is_short != NULL && is_first) *is_short = true;
        return page->at <= number && takes_room && !(is_short != NULL && is_first) ? ENOSPC : 0;
    case HANG:
        while (page->armed && page->at <= number) usleep(10000);
        return 0;
    case SHORT_WRITE:
        if (is_short != NULL && is_first) *is_short = true;
        return 0;
    default:
        return 0;
    }
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(error)        \
    do {                   \
        errno = (error);   \
        return -1;         \
    } while (0)

static size_t allowed(int fd, size_t size, int *error) {
    bool is_short = false;
    *error = is_open_below(fd) ? fault(true, &is_short) : 0;
    return is_short && size > 1 ? size / 2 : size;
}

EXPORT ssize_t write(int fd, const void *data, size_t size) {
    int error;
    size = allowed(fd, size, &error);
    if (error) FAIL(error);
    return REAL(write)(fd, data, size);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    int error;
    size = allowed(fd, size, &error);
    if (error) FAIL(error);
    return REAL(pwrite)(fd, data, size, at);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    int error;
    size = allowed(fd, size, &error);
    if (error) FAIL(error);
    return REAL(pwrite64)(fd, data, size, at);
}

#define ON_FD(name)                                            \
    EXPORT int name(int fd) {                                  \
        int error = is_open_below(fd) ? fault(false, NULL) : 0; \
        if (error) FAIL(error);                                \
        return REAL(name)(fd);                                 \
    }
ON_FD(fsync)
ON_FD(fdatasync)

/* A file server tells of what it could not write when the file is closed; the file is closed all the same. */
EXPORT int close(int fd) {
    int flags = page != NULL && page->armed ? fcntl(fd, F_GETFL) : O_RDONLY;
    bool counts = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && is_open_below(fd);
    int error = counts ? fault(false, NULL) : 0;
    int done = REAL(close)(fd);
    if (error) FAIL(error);
    return done;
}

#define ON_PATH(name, takes_room, parameters, path, ...)                \
    EXPORT int name parameters {                                        \
        int error = is_below(path) ? fault(takes_room, NULL) : 0;       \
        if (error) FAIL(error);                                         \
        return REAL(name)(__VA_ARGS__);                                 \
    }
ON_PATH(mkdir, true, (const char *path, mode_t mode), path, path, mode)
ON_PATH(unlink, false, (const char *path), path, path)
ON_PATH(rmdir, false, (const char *path), path, path)
ON_PATH(rename, false, (const char *from, const char *to), to, from, to)

#define ON_SIZE(name, kind)                                    \
    EXPORT int name(int fd, kind size) {                       \
        int error = is_open_below(fd) ? fault(true, NULL) : 0; \
        if (error) FAIL(error);                                \
        return REAL(name)(fd, size);                           \
    }
ON_SIZE(ftruncate, off_t)
ON_SIZE(ftruncate64, off64_t)

#define ON_OPEN(name)                                                              \
    EXPORT int name(const char *path, int flags, ...) {                            \
        mode_t mode = 0;                                                           \
        if (flags & O_CREAT) {                                                     \
            va_list more;                                                          \
            va_start(more, flags);                                                 \
            mode = va_arg(more, mode_t);                                           \
            va_end(more);                                                          \
        }                                                                          \
        int error = (flags & (O_CREAT | O_TRUNC)) && is_below(path) ? fault(true, NULL) : 0; \
        if (error) FAIL(error);                                                    \
        return REAL(name)(path, flags, mode);                                      \
    }
ON_OPEN(open)
ON_OPEN(open64)
