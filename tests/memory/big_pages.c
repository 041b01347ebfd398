/* Preloaded: `mmap` and `munmap` act as on a system whose pages have PAGE_BYTES bytes, a power of two from 4096 on.

   Anonymous mappings start at a page, and are whole pages. `munmap` refuses a start within a page, and takes all of the
   last page, whatever else is on it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t page_bytes(void) {
    static size_t known;
    if (known == 0) {
        const char *given = getenv("PAGE_BYTES");
        known = given == NULL ? 65536 : strtoul(given, NULL, 10);
    }
    return known;
}

static size_t rounded_up(size_t n) { return (n + page_bytes() - 1) & ~(page_bytes() - 1); }

void *mmap(void *where, size_t length, int access, int kind, int file, off_t offset) {
    if (where != NULL || !(kind & MAP_ANONYMOUS)) {
        return (void *)syscall(SYS_mmap, where, length, access, kind, file, offset);
    }
    size_t whole = rounded_up(length);
    uintptr_t start = (uintptr_t)syscall(SYS_mmap, NULL, whole + page_bytes(), access, kind, file, offset);
    if (start == (uintptr_t)MAP_FAILED) {
        return MAP_FAILED;
    }
    uintptr_t first = rounded_up(start), end = start + whole + page_bytes();
    if (first > start) {
        syscall(SYS_munmap, start, first - start);
    }
    if (end > first + whole) {
        syscall(SYS_munmap, first + whole, end - first - whole);
    }
    return (void *)first;
}

void *mmap64(void *where, size_t length, int access, int kind, int file, off_t offset) {
    return mmap(where, length, access, kind, file, offset);
}

int munmap(void *start, size_t length) {
    if ((uintptr_t)start % page_bytes() != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_munmap, start, rounded_up(length));
}

long sysconf(int what) {
    static long (*next)(int);
    if (what == _SC_PAGESIZE) {
        return (long)page_bytes();
    }
    if (next == NULL) {
        next = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    }
    return next(what);
}

int getpagesize(void) { return (int)page_bytes(); }
