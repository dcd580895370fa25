/* Private heaps on ordinary, huge and locked pages. */
#include "observe.h"
#include <malloc.h>
#include <pthread.h>
#include <stratalloc.h>
#include <sys/mman.h>
#include <unistd.h>

static long locked_kib(void) {
    char line[200];
    long locked = -1;
    FILE *status = fopen("/proc/self/status", "r");
    MUST(status);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmLck: %ld", &locked);
    fclose(status);
    return locked;
}

/* Resident pages of a fresh block of 1 MiB on a heap whose memory is locked; -1 where the limit allows no such heap. */
static long resident_when_locked(const char *settings) {
    enum { SIZE = 1 << 20 };
    static unsigned char pages[SIZE / 4096];
    stratalloc_heap *heap = stratalloc_heap_create(settings, NULL);
    char *block = stratalloc_heap_alloc(heap, 4096, SIZE);
    long resident = -1;
    if (block) {
        MUST(mincore(block, SIZE, pages) == 0);
        resident = 0;
        for (long i = 0; i < SIZE / sysconf(_SC_PAGESIZE); i++)
            resident += pages[i] & 1;
    }
    stratalloc_heap_destroy(heap);
    return resident;
}

/* Fills and empties a heap; returns whether every block was sound. */
static int exercise(stratalloc_heap *heap) {
    enum { COUNT = 2000 };
    static __thread unsigned char *blocks[COUNT];
    int sound = 1;
    for (int i = 0; i < COUNT; i++) {
        size_t size = i % 500 == 0 ? 300000 : i % 700 + 1, align = (size_t)8 << i % 6;
        blocks[i] = i % 2 ? stratalloc_heap_alloc(heap, align, size) : stratalloc_heap_zalloc(heap, align, size);
        if (!blocks[i])
            return 0;
        sound &= aligned_to(blocks[i], align) && malloc_usable_size(blocks[i]) >= size;
        sound &= i % 2 || all_bytes(blocks[i], size, 0);
        memset(blocks[i], i, size);
    }
    for (int i = 0; i < COUNT; i++) {
        sound &= all_bytes(blocks[i], i % 500 == 0 ? 300000 : i % 700 + 1, i);
        if (i % 3)
            stratalloc_heap_free(heap, blocks[i]);
        else
            free(blocks[i]);
    }
    return sound;
}
static void *in_thread(void *heap) {
    return (void *)(intptr_t)exercise(heap);
}

static void one(const char *settings) {
    int error = 7;
    stratalloc_heap *heap = stratalloc_heap_create(settings, &error);
    printf("[%s]\n", settings);
    SAY(heap != NULL && error == 0);
    SAY(exercise(heap));
    SAY(stratalloc_heap_bytes(heap) == 0);
    pthread_t threads[4];
    int sound = 1;
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, in_thread, heap) == 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sound &= result != NULL;
    }
    SAY(sound);
    SAY(stratalloc_heap_bytes(heap) == 0);
    char *held = stratalloc_heap_alloc(heap, 8, 1000);
    memset(held, 1, 1000);
    SAY(stratalloc_heap_bytes(heap) >= 1000);
    stratalloc_heap_release(heap);
    SAY(all_bytes(held, 1000, 1));
    stratalloc_heap_free(heap, NULL);
    SAY(stratalloc_heap_alloc(heap, 3, 100) == NULL);
    SAY(stratalloc_heap_alloc(heap, 8, SIZE_MAX) == NULL);
    stratalloc_heap_destroy(heap);
    SAY(!stratalloc_owns(held));
}

int main(void) {
    one("");
    one("backend:locked,fallback:silent");
    one("backend:huge,fallback:silent");
    one("backend:huge+locked>locked>4k,fallback:silent,release_delay:0");

    /* A locked heap locks what it has and unlocks it at its end; the same memory limit as the shell's may be small. */
    long before = locked_kib();
    stratalloc_heap *heap = stratalloc_heap_create("backend:locked,lock:strict,fallback:never", NULL);
    char *secret = stratalloc_heap_alloc(heap, 16, 4096);
    SAY(secret == NULL || locked_kib() > before);
    stratalloc_heap_destroy(heap);
    SAY(locked_kib() == before);

    /* Memory to be locked is taken when it is touched, or when it is mapped. */
    long touched = resident_when_locked("backend:locked,lock:strict,fallback:never");
    SAY(touched == -1 || touched < 16);
    long mapped = resident_when_locked("backend:locked,lock:strict,fallback:never,lock_time:map");
    SAY(mapped == -1 || mapped == (1 << 20) / sysconf(_SC_PAGESIZE));

    /* Hard limit of one heap alone. */
    heap = stratalloc_heap_create("hard_limit:4MiB", NULL);
    SAY(stratalloc_heap_alloc(heap, 8, 8 << 20) == NULL);
    SAY(stratalloc_heap_alloc(heap, 8, 1 << 20) != NULL);
    char *outside = malloc(8 << 20);
    SAY(outside != NULL);
    free(outside);
    stratalloc_heap_destroy(heap);

    int error = 0;
    SAY(stratalloc_heap_create("backend:nonsense", &error) == NULL && error == EINVAL);
    stratalloc_heap_destroy(NULL);
    /* Many heaps one after the other leave nothing behind. */
    long resident = 0;
    for (int i = 0; i < 300; i++) {
        heap = stratalloc_heap_create("", NULL);
        MUST(exercise(heap));
        stratalloc_heap_destroy(heap);
        if (i == 30)
            resident = resident_kib();
    }
    long grown = resident_kib() - resident;
    if (grown > 4096)
        printf("grown by %ld KiB\n", grown);
    SAY(grown <= 4096);
    SAY(stratalloc_check() == 0);
    puts("done");
    return 0;
}
