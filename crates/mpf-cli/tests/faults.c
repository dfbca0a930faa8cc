/* Makes one system call of a program fail: LD_PRELOAD this library and set
 *
 *   MPF_FAULT_CALL   alloc, open, read, write, fsync or rename
 *   MPF_FAULT_AT     which one, counted from 1; 0 for none
 *   MPF_FAULT_KIND   error, interrupted (EINTR) or short (one byte is read or written)
 *   MPF_FAULT_COUNT  a file that gets the number of calls when the program ends
 *
 * Allocations count from the moment at which the program has handlers of signals: before that, it
 * aborts without memory, as any program does while it starts. Writes to standard error are left alone: nothing could be
 * said about them.
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
static atomic_long count;
static atomic_int ready;

__attribute__((constructor)) static void begin(void)
{
    const char *text;
    if ((text = getenv("MPF_FAULT_CALL"))) call = text;
    if ((text = getenv("MPF_FAULT_KIND"))) kind = text;
    if ((text = getenv("MPF_FAULT_AT"))) at = atol(text);
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
    if (atomic_fetch_add(&count, 1) + 1 != at) return PASS;
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

ssize_t read(int file, void *buffer, size_t size)
{
    switch (next("read", EIO)) {
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
    return next("open", EMFILE) ? -1 : real(path, flags, mode);
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
