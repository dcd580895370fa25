/* What the conformance programs share: printing observations that two allocators must agree on. */
#ifndef OBSERVE_H
#define OBSERVE_H
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints whether an expression holds. */
#define SAY(condition) (printf("%s: %s\n", #condition, (condition) ? "yes" : "no"), fflush(stdout))
/* Prints an expression of integer type. */
#define SHOW(expression) (printf("%s = %lld\n", #expression, (long long)(expression)), fflush(stdout))
/* Evaluates an expression with errno at 123 before, and prints errno after. */
#define ERRNO_AFTER(expression) \
    do { \
        errno = 123; \
        expression; \
        int errno_after = errno; \
        printf("errno after %s: %d\n", #expression, errno_after); \
        fflush(stdout); \
    } while (0)
/* Ends the program with a message when something that is no observation fails. */
#define MUST(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(99); \
        } \
    } while (0)

/* A value that the compiler cannot see through. */
static inline size_t opaque(size_t value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}
static inline void *hide(void *pointer) {
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}
static inline int aligned_to(const void *pointer, size_t align) {
    return (uintptr_t)pointer % align == 0;
}
static inline int all_bytes(const void *block, size_t len, unsigned char byte) {
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != byte)
            return 0;
    return 1;
}
/* Resident memory of this process in KiB. */
static inline long resident_kib(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    MUST(file && fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
/* A small generator, the same everywhere. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
#endif
