/* realloc keeps the content, whatever the way from one size to the next. */
#include "observe.h"
#include <malloc.h>

static int check(const unsigned char *p, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i += i < 4096 ? 1 : 511)
        if (p[i] != (unsigned char)(i * 31 + seed))
            return 0;
    return 1;
}
static void fill(unsigned char *p, size_t from, size_t to, unsigned seed) {
    for (size_t i = from; i < to; i++)
        p[i] = (unsigned char)(i * 31 + seed);
}

int main(void) {
    uint64_t random = 88172645463325252u;
    for (unsigned round = 0; round < 40; round++) {
        unsigned char *p = NULL;
        size_t len = 0;
        int kept = 1;
        for (int step = 0; step < 30; step++) {
            size_t next = 1 + next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 19));
            p = realloc(p, next);
            MUST(p);
            kept &= check(p, len < next ? len : next, round);
            kept &= aligned_to(p, 16) || next < 16;
            fill(p, len < next ? len : next, next, round);
            len = next;
        }
        free(p);
        printf("round %u: %d\n", round, kept);
    }
    /* By small steps, and by doubling. */
    unsigned char *p = NULL;
    for (size_t n = 8; n <= (4u << 20); n += 8) {
        p = realloc(p, n);
        MUST(p);
        p[n - 8] = (unsigned char)(n >> 3);
    }
    int kept = 1;
    for (size_t n = 8; n <= (4u << 20); n += 8)
        kept &= p[n - 8] == (unsigned char)(n >> 3);
    SAY(kept);
    for (size_t n = 8u << 20; n <= (512u << 20); n *= 2) {
        p = realloc(p, n);
        MUST(p);
        kept &= p[0] == 1 && p[8] == 2;
    }
    SAY(kept);
    p = realloc(p, 16);
    SAY(p[0] == 1 && p[8] == 2);
    free(p);
    /* Blocks with an alignment may be resized as well. */
    for (size_t align = 32; align <= 65536; align *= 4) {
        unsigned char *a = memalign(align, 1000);
        fill(a, 0, 1000, 7);
        a = realloc(a, 100000);
        MUST(a);
        printf("aligned %zu kept: %d\n", align, check(a, 1000, 7));
        free(a);
    }
    return 0;
}
