/* Eight threads and a shared pool of blocks with known content: random calls of the whole family, blocks freed by
   others than their makers. Any overlap, lost byte or unzeroed byte shows. Argument: steps a thread. */
#include "observe.h"
#include <malloc.h>
#include <pthread.h>

enum { SLOTS = 512, THREADS = 8 };
static struct slot {
    pthread_mutex_t lock;
    unsigned char *block;
    size_t size;
    unsigned char mark;
} slots[SLOTS];
static long faults, steps;

static void fault(const char *what) {
    fprintf(stdout, "fault: %s\n", what);
    __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
}
static size_t random_size(uint64_t *random) {
    switch (next_random(random) % 16) {
    case 0: return next_random(random) % 3000000;
    case 1: case 2: case 3: return next_random(random) % 60000;
    case 4: case 5: case 6: case 7: return next_random(random) % 3000;
    default: return next_random(random) % 300;
    }
}
static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument * 0x9e3779b97f4a7c15u;
    for (long step = 0; step < steps; step++) {
        struct slot *slot = &slots[next_random(&random) % SLOTS];
        size_t size = random_size(&random), align = 0, kept;
        pthread_mutex_lock(&slot->lock);
        if (slot->block && !all_bytes(slot->block, slot->size, slot->mark))
            fault("content");
        unsigned char *block = NULL;
        switch (next_random(&random) % 8) {
        case 0: case 1: case 2:
            free(slot->block);
            block = malloc(size);
            break;
        case 3:
            free(slot->block);
            block = calloc(1, size);
            if (block && !all_bytes(block, size, 0))
                fault("calloc");
            break;
        case 4: case 5:
            size = size ? size : 1;
            kept = size < slot->size ? size : slot->size;
            block = realloc(slot->block, size);
            if (block && slot->block && !all_bytes(block, kept, slot->mark))
                fault("realloc");
            break;
        case 6:
            free(slot->block);
            align = (size_t)16 << next_random(&random) % 12;
            block = memalign(align, size);
            break;
        default:
            free(slot->block);
            align = (size_t)8 << next_random(&random) % 13;
            if (posix_memalign((void **)&block, align, size) != 0)
                fault("posix_memalign");
        }
        if (!block)
            fault("no memory");
        if (align && !aligned_to(block, align))
            fault("alignment");
        if (malloc_usable_size(block) < size)
            fault("usable size");
        slot->block = block;
        slot->size = size;
        slot->mark = (unsigned char)next_random(&random);
        memset(block, slot->mark, size);
        pthread_mutex_unlock(&slot->lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    steps = argc > 1 ? atol(argv[1]) : 20000;
    for (int i = 0; i < SLOTS; i++)
        pthread_mutex_init(&slots[i].lock, NULL);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].block && !all_bytes(slots[i].block, slots[i].size, slots[i].mark))
            fault("content at the end");
        free(slots[i].block);
    }
    SHOW(faults);
    return 0;
}
