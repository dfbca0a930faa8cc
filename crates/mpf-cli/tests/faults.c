/* Makes one system call of a program fail: LD_PRELOAD this library and set
 *
 *   MPF_FAULT_CALL   alloc, open, read, write, fsync or rename
 *   MPF_FAULT_AT     which one, counted from 1; 0 for none
 *   MPF_FAULT_EVERY  how many calls later the next one fails, and so on; by default none does
 *   MPF_FAULT_KIND   error, interrupted (EINTR) or short (one byte is read or written)
 *   MPF_FAULT_COUNT  a file that gets the number of calls when the program ends
 *
 * Allocations count from the moment at which the program has handlers of signals: before that, it
 * aborts without memory, as any program does while it starts. Writes to standard error are left alone: nothing could be
 * said about them. The system's own files (/proc, /sys) are read in the same loop again and again: of each, the
 * first calls count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum outcome { PASS, FAIL, SHORT };

static const char *call = "";
static const char *kind = "error";
static long at;
static long every;
static atomic_long count;
static atomic_int ready;

__attribute__((constructor)) static void begin(void)
{
    const char *text;
    if ((text = getenv("MPF_FAULT_CALL"))) call = text;
    if ((text = getenv("MPF_FAULT_KIND"))) kind = text;
    if ((text = getenv("MPF_FAULT_AT"))) at = atol(text);
    if ((text = getenv("MPF_FAULT_EVERY"))) every = atol(text);
    if (strcmp(call, "alloc") != 0) atomic_store(&ready, 1);
}

__attribute__((destructor)) static void end(void)
{
    long counted = atomic_load(&count);
    const char *path = getenv("MPF_FAULT_COUNT");
    if (!path) return;
    atomic_store(&ready, 0);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%ld\n", counted);
    fclose(file);
}

static enum outcome next(const char *name, int error)
{
    if (!atomic_load(&ready) || strcmp(call, name) != 0) return PASS;
    long now = atomic_fetch_add(&count, 1) + 1;
    if (now != at && !(every && now > at && (now - at) % every == 0)) return PASS;
    if (strcmp(kind, "short") == 0) return SHORT;
    errno = strcmp(kind, "interrupted") == 0 ? EINTR : error;
    return FAIL;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int sigaction(int signal, const struct sigaction *new, struct sigaction *old)
{
    int result = REAL(sigaction)(signal, new, old);
    if (signal == SIGINT) atomic_store(&ready, 1);
    return result;
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    return next("alloc", ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return next("alloc", ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return next("alloc", ENOMEM) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (next("alloc", ENOMEM)) return ENOMEM;
    *result = __libc_memalign(alignment, size);
    return *result ? 0 : ENOMEM;
}

/* Whether `path` is a file of the system and `most` calls have been seen on it. */
static int is_worn(const char *path, int most)
{
    static atomic_int seen[4096];
    unsigned place = 5381;
    if (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0) return 0;
    for (; *path; path++) place = 33 * place + (unsigned char)*path;
    return atomic_fetch_add(&seen[place % 4096], 1) >= most;
}

static int is_worn_file(int file)
{
    char link[32], path[512];
    if (strcmp(call, "read") != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_worn(path, 4);
}

ssize_t read(int file, void *buffer, size_t size)
{
    switch (is_worn_file(file) ? PASS : next("read", EIO)) {
    case FAIL: return -1;
    case SHORT: size = size ? 1 : 0; /* fall through */
    default: return REAL(read)(file, buffer, size);
    }
}

ssize_t write(int file, const void *buffer, size_t size)
{
    switch (file == STDERR_FILENO ? PASS : next("write", ENOSPC)) {
    case FAIL: return -1;
    case SHORT: size = size ? 1 : 0; /* fall through */
    default: return REAL(write)(file, buffer, size);
    }
}

ssize_t writev(int file, const struct iovec *parts, int n)
{
    switch (file == STDERR_FILENO ? PASS : next("write", ENOSPC)) {
    case FAIL: return -1;
    case SHORT:
        for (int i = 0; i < n; i++)
            if (parts[i].iov_len) return REAL(write)(file, parts[i].iov_base, 1);
        /* fall through */
    default: return REAL(writev)(file, parts, n);
    }
}

int fsync(int file) { return next("fsync", EIO) ? -1 : REAL(fsync)(file); }

int rename(const char *old, const char *new)
{
    return next("rename", ENOSPC) ? -1 : REAL(rename)(old, new);
}

static int open_with(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
    int is_let_through = strcmp(call, "open") == 0 && is_worn(path, 2);
    return !is_let_through && next("open", EMFILE) ? -1 : real(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_with(REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_with(REAL(open64), path, flags, mode);
}
