/* System calls on files below one folder fail at random; preloaded into a program under test.
 *
 *   FAULTS_FOLDER   what may fail: paths that begin with it
 *   FAULTS_CONTROL  a file of four 32-bit numbers, read at every call: failures per million calls,
 *                   a mask of kinds of calls, a mask of errors, and a number that starts the dice anew
 *   FAULTS_SEED     the dice of this process
 *   FAULTS_LOG      where each failure is noted
 *
 * The same seed and the same order of calls give the same failures; threads may change the order.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, RENAME = 16, REMOVE = 32, LOOK = 64 };
enum error { IO = 1, SPACE = 2, FILES = 4 };

struct control {
    volatile uint32_t per_million, kinds, errors, round;
};

static struct control *control;
static const char *folder;
static size_t folder_length;
static uint64_t seed;
static int log_file = -1;
static _Atomic uint64_t calls;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    const char *text = getenv("FAULTS_SEED");
    const char *log_path = getenv("FAULTS_LOG");
    folder = getenv("FAULTS_FOLDER");
    if (!path || !folder || !log_path)
        return;
    folder_length = strlen(folder);
    seed = text ? strtoull(text, NULL, 10) : 0;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        abort();
    void *at = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (at == MAP_FAILED)
        abort();
    log_file = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    control = at;
}

/* The output function of splitmix64. */
static uint64_t dice(void)
{
    uint64_t x = seed + 0x9e3779b97f4a7c15u * (atomic_fetch_add(&calls, 1) + 1) + control->round;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int below(const char *path)
{
    return strncmp(path, folder, folder_length) == 0;
}

static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlink, link, path, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* The error with which this call fails, or 0. */
static int fate(enum kind kind, int file, const char *path, int creates, const char *name)
{
    char found[PATH_MAX];
    if (!control || control->per_million == 0 || !(control->kinds & kind))
        return 0;
    if (path && path[0] == '/' && !below(path))
        return 0;
    uint64_t thrown = dice();
    if (thrown % 1000000 >= control->per_million)
        return 0;
    if (!path || path[0] != '/') {
        int saved = errno;
        int known = path_of(file, found);
        errno = saved;
        if (!known || !below(found))
            return 0;
    } else {
        strncpy(found, path, sizeof found - 1);
        found[sizeof found - 1] = 0;
    }
    int possible[3], count = 0;
    if (control->errors & IO)
        possible[count++] = EIO;
    if ((control->errors & SPACE) && (creates || kind == WRITE || kind == SYNC || kind == RENAME))
        possible[count++] = ENOSPC;
    if ((control->errors & FILES) && kind == OPEN)
        possible[count++] = EMFILE;
    if (count == 0)
        return 0;
    int error = possible[(thrown >> 32) % count];
    char line[PATH_MAX + 128];
    int length = snprintf(line, sizeof line, "%d call %llu %s %s: %s\n", (int)getpid(),
                          (unsigned long long)atomic_load(&calls), name, found, strerrorname_np(error));
    syscall(SYS_write, log_file, line, length);
    return error;
}

#define NEXT(name) \
    static __typeof__(&name) next; \
    if (!next) \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL(result, kind, file, path, creates, name) \
    do { \
        int error = fate(kind, file, path, creates, name); \
        if (error) { \
            errno = error; \
            return result; \
        } \
    } while (0)

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        NEXT(name); \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = va_arg(list, mode_t); \
        va_end(list); \
        FAIL(-1, OPEN, AT_FDCWD, path, flags & O_CREAT, #name); \
        return next(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        NEXT(name); \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = va_arg(list, mode_t); \
        va_end(list); \
        FAIL(-1, OPEN, at, path, flags & O_CREAT, #name); \
        return next(at, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

DIR *opendir(const char *path)
{
    NEXT(opendir);
    FAIL(NULL, OPEN, AT_FDCWD, path, 0, "opendir");
    return next(path);
}

ssize_t read(int file, void *to, size_t length)
{
    NEXT(read);
    FAIL(-1, READ, file, NULL, 0, "read");
    return next(file, to, length);
}

ssize_t pread(int file, void *to, size_t length, off_t offset)
{
    NEXT(pread);
    FAIL(-1, READ, file, NULL, 0, "pread");
    return next(file, to, length, offset);
}

ssize_t pread64(int file, void *to, size_t length, off64_t offset)
{
    NEXT(pread64);
    FAIL(-1, READ, file, NULL, 0, "pread64");
    return next(file, to, length, offset);
}

/* A disk that fills up takes the first half. */
ssize_t write(int file, const void *from, size_t length)
{
    NEXT(write);
    int error = fate(WRITE, file, NULL, 0, "write");
    if (error && length > 1 && (length & 1))
        return next(file, from, length / 2);
    if (error) {
        errno = error;
        return -1;
    }
    return next(file, from, length);
}

ssize_t writev(int file, const struct iovec *from, int count)
{
    NEXT(writev);
    FAIL(-1, WRITE, file, NULL, 0, "writev");
    return next(file, from, count);
}

ssize_t pwrite(int file, const void *from, size_t length, off_t offset)
{
    NEXT(pwrite);
    FAIL(-1, WRITE, file, NULL, 0, "pwrite");
    return next(file, from, length, offset);
}

ssize_t pwrite64(int file, const void *from, size_t length, off64_t offset)
{
    NEXT(pwrite64);
    int error = fate(WRITE, file, NULL, 0, "pwrite64");
    if (error) {
        /* What was written before the error stays: a torn page. */
        if (length > 1 && error == ENOSPC)
            next(file, from, length / 2, offset);
        errno = error;
        return -1;
    }
    return next(file, from, length, offset);
}

int ftruncate64(int file, off64_t length)
{
    NEXT(ftruncate64);
    FAIL(-1, WRITE, file, NULL, 0, "ftruncate64");
    return next(file, length);
}

int fsync(int file)
{
    NEXT(fsync);
    FAIL(-1, SYNC, file, NULL, 0, "fsync");
    return next(file);
}

int fdatasync(int file)
{
    NEXT(fdatasync);
    FAIL(-1, SYNC, file, NULL, 0, "fdatasync");
    return next(file);
}

int rename(const char *from, const char *to)
{
    NEXT(rename);
    FAIL(-1, RENAME, AT_FDCWD, to, 1, "rename");
    return next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    FAIL(-1, RENAME, AT_FDCWD, path, 1, "mkdir");
    return next(path, mode);
}

int unlink(const char *path)
{
    NEXT(unlink);
    FAIL(-1, REMOVE, AT_FDCWD, path, 0, "unlink");
    return next(path);
}

int statx(int at, const char *restrict path, int flags, unsigned int mask, struct statx *restrict to)
{
    NEXT(statx);
    FAIL(-1, LOOK, at, path && path[0] ? path : NULL, 0, "statx");
    return next(at, path, flags, mask, to);
}
