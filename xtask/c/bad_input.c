// Mistakes that programs make, one a run; afterwards the heap must still be sound.
//
//     bad_input CASE
//
// Prints "sound" and exits with 0 when the mistake had no effect on anything else.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 20000 };

static char *blocks[BLOCKS];
static char still[64];

// Hides a value from the optimiser, which knows that these calls are mistakes.
static void *hidden(void *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

static size_t big(size_t size)
{
    __asm__ volatile("" : "+r"(size));
    return size;
}

static void require(int holds, const char *what)
{
    if (!holds) {
        printf("NOT sound: %s\n", what);
        exit(1);
    }
}

static size_t size_of(int i)
{
    return 1 + (size_t)i * 37 % 3000;
}

// Takes many blocks, fills each with its own number, and finds all unchanged: no block was given out twice.
static void check_sound(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(size_of(i));
        require(blocks[i] != NULL, "malloc");
        memset(blocks[i], i % 251, size_of(i));
    }
    for (int i = 0; i < BLOCKS; i++) {
        for (size_t k = 0; k < size_of(i); k++)
            require(blocks[i][k] == (char)(i % 251), "a block changed");
        free(blocks[i]);
    }
}

static void must_fail(void *p, const char *what)
{
    require(p == NULL && errno == ENOMEM, what);
    errno = 0;
}

static void overflow(void)
{
    char *kept = malloc(100);
    memset(kept, 'k', 100);
    const size_t sizes[] = {(size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4096, (size_t)1 << 62};
    errno = 0;
    for (int i = 0; i < 5; i++) {
        must_fail(malloc(big(sizes[i])), "malloc");
        must_fail(calloc(1, big(sizes[i])), "calloc");
        must_fail(calloc(big(sizes[i]), 8), "calloc of many");
        must_fail(realloc(kept, big(sizes[i])), "realloc");
        must_fail(reallocarray(kept, big(sizes[i]), 3), "reallocarray");
        must_fail(aligned_alloc(64, big(sizes[i])), "aligned_alloc");
        must_fail(memalign(4096, big(sizes[i])), "memalign");
        must_fail(valloc(big(sizes[i])), "valloc");
        must_fail(pvalloc(big(sizes[i])), "pvalloc");
        void *p = still;
        require(posix_memalign(&p, 64, big(sizes[i])) == ENOMEM && p == still, "posix_memalign");
    }
    must_fail(calloc(big(SIZE_MAX / 2 + 1), 2), "calloc that wraps");
    for (int k = 0; k < 100; k++)
        require(kept[k] == 'k', "realloc lost the old block");
    free(kept);
}

static void alignments(void)
{
    const size_t wrong[] = {0, 1, 2, 3, 4, 12, 24, 100, SIZE_MAX};
    for (int i = 0; i < 9; i++) {
        void *p = still;
        require(posix_memalign(&p, big(wrong[i]), 100) == EINVAL, "posix_memalign accepts a wrong alignment");
        require(p == still, "posix_memalign wrote its result on failure");
    }
    for (size_t align = 8; align <= (size_t)1 << 30; align *= 2) {
        void *p = NULL;
        require(posix_memalign(&p, align, 10) == 0 && (uintptr_t)p % align == 0, "posix_memalign");
        memset(p, 1, 10);
        free(p);
    }
}

// Takes 1 MiB blocks until there are no more, at most 8 GiB; then all must come back.
static void exhaust(void)
{
    static char *megabytes[8192];
    int counts[2];
    for (int round = 0; round < 2; round++) {
        int n = 0;
        errno = 0;
        while (n < 8192 && (megabytes[n] = malloc(1 << 20)) != NULL) {
            memset(megabytes[n], n % 251, 1 << 20);
            n++;
        }
        require(n < 8192, "there is no limit");
        require(errno == ENOMEM, "errno is not ENOMEM");
        must_fail(malloc(big((size_t)1 << 34)), "a large block");
        counts[round] = n;
        for (int i = 0; i < n; i++) {
            require(megabytes[i][12345] == (char)(i % 251), "a block changed");
            free(megabytes[i]);
        }
    }
    printf("%d MiB, then %d MiB\n", counts[0], counts[1]);
    require(counts[0] > 16 && counts[1] * 10 >= counts[0] * 8, "memory was lost");
    /* Freed small blocks are in caches, the more the more often that pays; a large one must be able to have their memory. */
    for (int round = 0; round < 6; round++) {
        char *last = NULL;
        for (size_t held = 0; held < (size_t)counts[0] * 3 << 18; held += 9000) {
            char *block = malloc(9000);
            require(block != NULL, "a small block, of what was there before");
            memset(block, round, 9000);
            memcpy(block, &last, sizeof last);
            last = block;
        }
        while (last != NULL) {
            char *block = last;
            memcpy(&last, block, sizeof last);
            free(block);
        }
        char *large = malloc(big((size_t)counts[0] * 3 << 18));
        require(large != NULL, "the caches keep what a large block needs");
        free(large);
    }
}

static long status_kib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            kib = atol(line + strlen(name) + 1);
    if (file)
        fclose(file);
    return kib;
}

// More than the pool of huge pages holds: the rest comes from small pages, and all content stays.
static void full_pool(void)
{
    enum { COUNT = 1024, SIZE = 64 << 10 };
    static char *many[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            many[i] = malloc(SIZE);
            require(many[i] != NULL, "malloc");
            memset(many[i], i % 251, SIZE);
        }
        require(status_kib("HugetlbPages") > 0, "no huge page is in use");
        for (int i = 0; i < COUNT; i++) {
            require(many[i][0] == (char)(i % 251) && many[i][SIZE - 1] == (char)(i % 251), "a block changed");
            free(many[i]);
        }
    }
}

// A child forked while no huge page is left gets no block, small or large, in those that it inherits: writing there would
// kill it. It may read what it inherits, and free it.
static void fork_full_pool(void)
{
    enum { COUNT = 4000, HUGE = 2 << 20 };
    static char *own[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(size_of(i));
        memset(blocks[i], i % 251, size_of(i));
    }
    // Free objects in caches and in spans.
    for (int i = 0; i < COUNT; i += 2)
        free(blocks[i]);
    require(status_kib("HugetlbPages") > 0, "no huge page is in use");
    while (mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0)
           != MAP_FAILED)
        ;
    fflush(stdout);
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        for (int i = 0; i < COUNT; i++) {
            if (i % 2 != 0) {
                require(blocks[i][0] == (char)(i % 251), "an inherited block changed");
                free(blocks[i]);
            }
            own[i] = malloc(size_of(i));
            memset(own[i], i % 251, size_of(i));
        }
        for (int i = 0; i < COUNT; i++) {
            require(own[i][size_of(i) - 1] == (char)(i % 251), "a block of the child changed");
            free(own[i]);
        }
        _exit(0);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child died");
}

int main(int argc, char **argv)
{
    const char *name = argc == 2 ? argv[1] : "";
    char *p = malloc(64), *q = malloc(64);
    if (strcmp(name, "none") == 0) {
    } else if (strcmp(name, "double-free") == 0) {
        free(p);
        free(hidden(p));
    } else if (strcmp(name, "double-free-later") == 0) {
        free(p);
        free(q);
        free(hidden(p));
    } else if (strcmp(name, "double-free-flushed") == 0) {
        static char *others[8000];
        for (int i = 0; i < 8000; i++)
            others[i] = malloc(64);
        free(p);
        free(q);
        free(hidden(p));
        for (int i = 0; i < 8000; i++)
            free(others[i]);
        malloc_trim(0);
    } else if (strcmp(name, "double-free-large") == 0) {
        char *large = malloc(3 << 20);
        free(large);
        free(hidden(large));
    } else if (strcmp(name, "interior") == 0) {
        free(hidden(p + 16));
    } else if (strcmp(name, "interior-large") == 0) {
        char *large = malloc(3 << 20);
        free(hidden(large + 8192));
        memset(large, 1, 3 << 20);
        free(large);
    } else if (strcmp(name, "stack") == 0) {
        char local[64];
        free(hidden(local));
    } else if (strcmp(name, "static") == 0) {
        free(hidden(still));
    } else if (strcmp(name, "mapped") == 0) {
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(page, 7, 4096);
        free(hidden(page + 64));
        require(page[64] == 7, "a foreign page changed");
    } else if (strcmp(name, "wild") == 0) {
        free(hidden((void *)(uintptr_t)0x10));
        free(hidden((void *)(uintptr_t)0xdeadbeefdeadbee0));
    } else if (strcmp(name, "realloc-foreign") == 0) {
        void *moved = realloc(hidden(still), 1000);
        require(moved == NULL, "realloc of a foreign pointer");
    } else if (strcmp(name, "usable-foreign") == 0) {
        require(malloc_usable_size(hidden(still)) == 0, "malloc_usable_size of a foreign pointer");
    } else if (strcmp(name, "write-after-free") == 0) {
        for (int i = 0; i < 1000; i++) {
            char *dead = malloc(48);
            free(dead);
            memset(hidden(dead), 0xff, 48);
        }
    } else if (strcmp(name, "overflow") == 0) {
        overflow();
    } else if (strcmp(name, "alignments") == 0) {
        alignments();
    } else if (strcmp(name, "exhaust") == 0) {
        exhaust();
    } else if (strcmp(name, "full-pool") == 0) {
        full_pool();
    } else if (strcmp(name, "fork-full-pool") == 0) {
        fork_full_pool();
    } else if (strcmp(name, "must-fail") == 0) {
        errno = 0;
        must_fail(malloc(big(3 << 20)), "malloc");
        printf("sound\n");
        return 0;
    } else {
        return 2;
    }
    check_sound();
    printf("sound\n");
    return 0;
}
