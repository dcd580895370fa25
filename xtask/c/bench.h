// Shared by the bench drivers: time, random numbers, sizes, and what keeps the compiler from removing a call.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Hides a value from the optimiser, at no cost.
#define opaque(x) __asm__ volatile("" : "+r"(x) : : "memory")

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

// A number below `below`, which is small.
static inline uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*seed >> 33) * below) >> 31);
}

// A size as programs ask for them: mostly small, 16 to 128 bytes in half of all cases, up to 4 KiB in few.
static inline size_t usual_size(uint64_t *seed)
{
    uint32_t kind = draw(seed, 16);
    if (kind < 8)
        return 16 + draw(seed, 113);
    if (kind < 13)
        return 128 + draw(seed, 385);
    if (kind < 15)
        return 512 + draw(seed, 513);
    return 1024 + draw(seed, 3073);
}

// A block whose first bytes are written; ends the program where there is none.
static inline void *take(size_t size)
{
    char *block = malloc(size);
    if (!block) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        exit(3);
    }
    *block = 1;
    return block;
}
