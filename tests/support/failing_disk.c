/* Makes system calls on files below a directory fail, for tests of full, broken and read-only disks.
 *
 * Loaded with LD_PRELOAD and steered through ctypes, see failing_disk.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char below[PATH_MAX];
static long calls, first_failing, number_failing;
static int error_number, reads_count;

/* From call `first` on, `number` calls on files below `directory` fail with this error. reads: whether reading is
 * among these calls, or only what writes. */
void fail_disk(const char *directory, long first, long number, int error, int reads)
{
    snprintf(below, sizeof below, "%s/", directory);
    calls = 0;
    first_failing = first;
    number_failing = number;
    error_number = error;
    reads_count = reads;
}

void heal_disk(void) { below[0] = 0; }

long count_disk_calls(void) { return calls; }

static int fails_at_path(const char *path)
{
    if (below[0] == 0 || strncmp(path, below, strlen(below)) != 0)
        return 0;
    calls++;
    if (calls < first_failing || calls >= first_failing + number_failing)
        return 0;
    errno = error_number;
    return 1;
}

static int fails_at_file(int file, int is_read)
{
    char name[64], path[PATH_MAX];
    if (below[0] == 0 || (is_read && !reads_count))
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails_at_path(path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ON_FILE(result, name, is_read, parameters, arguments) \
    result name parameters { return fails_at_file(file, is_read) ? -1 : NEXT(name) arguments; }

ON_FILE(ssize_t, write, 0, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, pwrite, 0, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, 0, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, ftruncate, 0, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, 0, (int file, off64_t size), (file, size))
ON_FILE(int, fsync, 0, (int file), (file))
ON_FILE(int, fdatasync, 0, (int file), (file))
ON_FILE(ssize_t, read, 1, (int file, void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, pread, 1, (int file, void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pread64, 1, (int file, void *data, size_t size, off64_t at), (file, data, size, at))

/* Only a file that would be created: a full or read-only disk opens the others. */
#define OPENING(name) \
    int name(const char *path, int flags, ...) \
    { \
        mode_t mode = 0; \
        if (flags & O_CREAT) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
            if (access(path, F_OK) != 0 && fails_at_path(path)) \
                return -1; \
        } \
        return NEXT(name)(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)
