/* A preloaded library that wraps mmap and friends and looks the real ones up with dlsym, as faketime and sandboxes do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/types.h>

void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    return real(address, len, protection, flags, fd, offset);
}
int munmap(void *address, size_t len) {
    static int (*real)(void *, size_t);
    if (!real)
        real = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    return real(address, len);
}
int madvise(void *address, size_t len, int advice) {
    static int (*real)(void *, size_t, int);
    if (!real)
        real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    return real(address, len, advice);
}
char *getenv(const char *name) {
    static char *(*real)(const char *);
    if (!real)
        real = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    return real(name);
}
