/* Preloaded into a process: ends it, or lets its calls fail, at a chosen system call on files below a chosen place.

   Calls that change the disk are counted while they concern a path that contains FAILING_UNDER. `failing_arm(at, code)`
   chooses: at call number `at` the process is killed if code is 0; otherwise this call and all later ones that could
   need room or permission fail with errno = code. Names are resolved by the kernel's list of open files. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long chosen = -1, seen = 0;
static int failure = 0;

void failing_arm(long at, int code) { chosen = at; failure = code; seen = 0; }
long failing_seen(void) { return seen; }

static int concerns(const char *path) {
    const char *under = getenv("FAILING_UNDER");
    return chosen >= 0 && under != NULL && path != NULL && strstr(path, under) != NULL;
}

static int concerns_descriptor(int descriptor) {
    char link[64], path[4096];
    if (chosen < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return concerns(path);
}

static int concerns_at(int folder, const char *path) {
    return concerns(path) || (path != NULL && path[0] != '/' && folder >= 0 && concerns_descriptor(folder));
}

/* Whether this call must fail. demanding: it could need room or permission, as those that remove do not. */
static int fails(int concerned, int demanding) {
    if (!concerned) return 0;
    seen++;
    if (failure == 0) {
        if (seen == chosen) raise(SIGKILL);
        return 0;
    }
    if (seen < chosen || !demanding) return 0;
    errno = failure;
    return 1;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__) = NULL; \
    if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define WRITES(flags) (((flags) & (O_CREAT | O_WRONLY | O_RDWR)) != 0)
#define MODE mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

#define OPEN(name) int name(const char *path, int flags, ...) { \
    MODE REAL(int, #name, const char *, int, ...); \
    if (fails(WRITES(flags) && concerns(path), 1)) return -1; \
    return real(path, flags, mode); }
OPEN(open)
OPEN(open64)

#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { \
    MODE REAL(int, #name, int, const char *, int, ...); \
    if (fails(WRITES(flags) && concerns_at(folder, path), 1)) return -1; \
    return real(folder, path, flags, mode); }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *content, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (fails(concerns_descriptor(descriptor), 1)) return -1;
    return real(descriptor, content, length);
}

#define PWRITE(name) ssize_t name(int descriptor, const void *content, size_t length, off_t offset) { \
    REAL(ssize_t, #name, int, const void *, size_t, off_t); \
    if (fails(concerns_descriptor(descriptor), 1)) return -1; \
    return real(descriptor, content, length, offset); }
PWRITE(pwrite)
PWRITE(pwrite64)

#define ON_DESCRIPTOR(name, demanding) int name(int descriptor) { \
    REAL(int, #name, int); \
    if (fails(concerns_descriptor(descriptor), demanding)) return -1; \
    return real(descriptor); }
ON_DESCRIPTOR(fsync, 1)
ON_DESCRIPTOR(fdatasync, 1)

#define ON_PATH(name) int name(const char *path) { \
    REAL(int, #name, const char *); \
    if (fails(concerns(path), 0)) return -1; \
    return real(path); }
ON_PATH(unlink)
ON_PATH(rmdir)

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    if (fails(concerns_at(folder, path), 0)) return -1;
    return real(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (fails(concerns(path), 1)) return -1;
    return real(path, mode);
}

#define ON_TWO_PATHS(name) int name(const char *from, const char *to) { \
    REAL(int, #name, const char *, const char *); \
    if (fails(concerns(from) || concerns(to), 1)) return -1; \
    return real(from, to); }
ON_TWO_PATHS(rename)
ON_TWO_PATHS(link)

int linkat(int one, const char *from, int other, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    if (fails(concerns(from) || concerns(to), 1)) return -1;
    return real(one, from, other, to, flags);
}

int renameat(int one, const char *from, int other, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    if (fails(concerns(from) || concerns(to), 1)) return -1;
    return real(one, from, other, to);
}
