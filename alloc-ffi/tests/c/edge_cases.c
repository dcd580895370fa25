/* Sizes at the limits, overflow, zero, odd alignments, options: what each function returns and what it leaves in errno. */
#include "observe.h"
#include <limits.h>
#include <malloc.h>

static const size_t HUGE_SIZES[] = {
    (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095, SIZE_MAX / 2 + 4096, (size_t)PTRDIFF_MAX,
};

static void too_large(size_t size) {
    char *old = malloc(100);
    memset(old, 'x', 100);
    printf("size %zx\n", size);
    ERRNO_AFTER(SAY(malloc(size) == NULL));
    ERRNO_AFTER(SAY(calloc(size, 1) == NULL));
    ERRNO_AFTER(SAY(calloc(1, size) == NULL));
    ERRNO_AFTER(SAY(realloc(NULL, size) == NULL));
    ERRNO_AFTER(SAY(realloc(old, size) == NULL));
    ERRNO_AFTER(SAY(reallocarray(old, size, 1) == NULL));
    ERRNO_AFTER(SAY(reallocarray(old, 1, size) == NULL));
    ERRNO_AFTER(SAY(memalign(64, size) == NULL));
    ERRNO_AFTER(SAY(memalign(1 << 20, size) == NULL));
    ERRNO_AFTER(SAY(aligned_alloc(4096, size) == NULL));
    ERRNO_AFTER(SAY(valloc(size) == NULL));
    ERRNO_AFTER(SAY(pvalloc(size) == NULL));
    void *untouched = &untouched;
    SHOW(posix_memalign(&untouched, 64, size));
    SAY(untouched == &untouched);
    SAY(all_bytes(old, 100, 'x'));
    free(old);
}

static void overflow(void) {
    char *old = malloc(100);
    memset(old, 'y', 100);
    ERRNO_AFTER(SAY(calloc(opaque(SIZE_MAX / 2 + 1), 2) == NULL));
    ERRNO_AFTER(SAY(calloc(2, opaque(SIZE_MAX / 2 + 1)) == NULL));
    ERRNO_AFTER(SAY(calloc(opaque((size_t)1 << 32), opaque((size_t)1 << 32)) == NULL));
    ERRNO_AFTER(SAY(reallocarray(old, opaque(SIZE_MAX / 2 + 1), 2) == NULL));
    ERRNO_AFTER(SAY(reallocarray(NULL, opaque(SIZE_MAX / 2 + 1), 2) == NULL));
    SAY(all_bytes(old, 100, 'y'));
    free(old);
}

static void zero(void) {
    void *a = malloc(opaque(0)), *b = malloc(opaque(0)), *c = realloc(NULL, opaque(0)), *d = calloc(0, 8);
    void *e = calloc(8, opaque(0)), *f = reallocarray(NULL, opaque(0), 8), *g = memalign(64, opaque(0));
    SAY(a && b && c && d && e && f && g);
    SAY(a != b && b != c && c != d && d != e && e != f && f != g && a != c);
    SAY(malloc_usable_size(a) >= 1);
    ERRNO_AFTER(SAY(realloc(a, opaque(0)) == NULL));
    ERRNO_AFTER(SAY(reallocarray(b, opaque(0), 8) == NULL));
    char *p = malloc(3 << 20);
    ERRNO_AFTER(SAY(realloc(p, opaque(0)) == NULL));
    ERRNO_AFTER(free(NULL));
    SHOW(malloc_usable_size(NULL));
    free(c), free(d), free(e), free(f), free(g);
    void *zero = NULL;
    SHOW(posix_memalign(&zero, 64, opaque(0)));
    SAY(zero != NULL);
    free(zero);
    void *page = pvalloc(opaque(0));
    SAY(page != NULL && aligned_to(page, 4096));
    free(page);
}

static void alignments(void) {
    static const size_t aligns[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 32, 48, 100, 512, 4095, 4096, 5000, 8192, 65536};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        size_t align = aligns[i], power = 8;
        while (power < align)
            power *= 2;
        for (size_t size = 1; size < 100000; size = size * 7 + 1) {
            void *a = memalign(align, size), *b = aligned_alloc(align, size);
            MUST(a && b);
            int good = aligned_to(a, power) && aligned_to(b, power);
            good &= malloc_usable_size(a) >= size && malloc_usable_size(b) >= size;
            memset(a, 1, size), memset(b, 2, size);
            printf("align %zu size %zu: %d\n", align, size, good);
            free(a), free(b);
        }
        void *p = &p;
        int result = posix_memalign(&p, align, 100);
        printf("posix_memalign %zu: %d, changed %d, aligned %d\n", align, result, p != &p,
               p != &p && aligned_to(p, align));
        if (p != &p)
            free(p);
    }
    ERRNO_AFTER(SAY(memalign(SIZE_MAX, 1) == NULL));
    ERRNO_AFTER(SAY(memalign(((size_t)1 << 63) + 1, 1) == NULL));
    ERRNO_AFTER(SAY(memalign((size_t)1 << 63, 1) == NULL));
    ERRNO_AFTER(SAY(aligned_alloc(SIZE_MAX - 1, 1) == NULL));
    void *untouched = &untouched;
    SHOW(posix_memalign(&untouched, (size_t)1 << 63, 1));
    SHOW(posix_memalign(&untouched, ((size_t)1 << 63) + 8, 1));
    SHOW(posix_memalign(&untouched, SIZE_MAX, 1));
    SAY(untouched == &untouched);
    for (size_t size = 1; size < 200000; size = size * 5 + 3) {
        void *v = valloc(size), *p = pvalloc(size);
        MUST(v && p);
        size_t whole = (size + 4095) / 4096 * 4096;
        printf("valloc %zu: %d, pvalloc %d\n", size, aligned_to(v, 4096),
               aligned_to(p, 4096) && malloc_usable_size(p) >= whole);
        memset(p, 3, whole);
        free(v), free(p);
    }
}

static void options(void) {
    static const int names[] = {M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX,
                                M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX, 12345};
    static const int values[] = {INT_MIN, -1, 0, 64, 160, 161, 1 << 20, 1 << 30, INT_MAX};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            printf("mallopt %d %d: %d\n", names[i], values[j], mallopt(names[i], values[j]));
}

int main(void) {
    for (size_t i = 0; i < sizeof HUGE_SIZES / sizeof *HUGE_SIZES; i++)
        too_large(opaque(HUGE_SIZES[i]));
    overflow();
    zero();
    alignments();
    options();
    return 0;
}
