// The cost of an operation against the size of the live heap, the number of threads and the size of the blocks.
//
//     scale heap MIB SECONDS       MIB are live; blocks in 16 MiB of them are replaced at random
//     scale threads N SECONDS      each of N threads replaces blocks of its own at random
//     scale size BYTES SECONDS     blocks of this size, at most 1000 and 64 MiB of them live, are replaced at random
//
// Prints nanoseconds of a free and a malloc, in time of one processor.
#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

// A thread tells what it has done after each short turn.
enum { OWN = 100, TURN = 1000, SHORT_TURN = 50 };

static double seconds;

static void heap(size_t mib)
{
    const size_t touched = 16 << 20;
    size_t total = mib << 20, taken = 0, count = 0, first = 0, most = total / 64;
    // Outside the heap, so that only blocks are measured.
    void **blocks = malloc(most * sizeof *blocks);
    uint64_t seed = 1;
    while (taken < total && count < most) {
        size_t size = usual_size(&seed);
        // A block's first and last bytes bring in its pages.
        char *block = take(size);
        block[size - 1] = 1;
        blocks[count++] = block;
        taken += size;
        if (taken + touched < total)
            first = count;
    }
    long done = 0;
    double start = 0;
    // The first half second is not counted.
    for (int counted = 0; counted < 2; counted++) {
        start = now();
        for (done = 0; now() - start < (counted ? seconds : seconds / 2); done += TURN)
            for (int i = 0; i < TURN; i++) {
                size_t at = first + draw(&seed, count - first);
                free(blocks[at]);
                blocks[at] = take(usual_size(&seed));
            }
    }
    printf("%.3f\n", (now() - start) * 1e9 / done);
}

static void size(size_t bytes)
{
    size_t most = (64 << 20) / bytes;
    most = most > 1000 ? 1000 : most < 2 ? 2 : most;
    void **blocks = calloc(most, sizeof *blocks);
    uint64_t seed = 1;
    for (size_t i = 0; i < most; i++)
        blocks[i] = take(bytes);
    long done = 0;
    double start = now();
    for (; now() - start < seconds; done += 10)
        for (int i = 0; i < 10; i++) {
            size_t at = draw(&seed, most);
            free(blocks[at]);
            blocks[at] = take(bytes);
        }
    printf("%.3f\n", (now() - start) * 1e9 / done);
}

// Threads that have their blocks, and what holds them back until all have.
static atomic_size_t ready;
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;

// What a thread has done so far, on a cache line of its own.
struct progress {
    _Alignas(64) atomic_long done;
};

static void *work(void *arg)
{
    struct progress *progress = arg;
    // Below the thread that reads the clock, which would else wait until ten thousand others had their turns.
    setpriority(PRIO_PROCESS, 0, 19);
    uint64_t seed = (uintptr_t)&arg;
    void *own[OWN] = {0};
    for (int i = 0; i < OWN; i++)
        own[i] = take(usual_size(&seed));
    atomic_fetch_add(&ready, 1);
    pthread_rwlock_rdlock(&gate);
    for (long done = SHORT_TURN;; done += SHORT_TURN) {
        for (int i = 0; i < SHORT_TURN; i++) {
            uint32_t at = draw(&seed, OWN);
            free(own[at]);
            own[at] = take(usual_size(&seed));
        }
        atomic_store_explicit(&progress->done, done, memory_order_relaxed);
    }
    return NULL;
}

static long done_by(struct progress *all, size_t count)
{
    long done = 0;
    for (size_t i = 0; i < count; i++)
        done += atomic_load_explicit(&all[i].done, memory_order_relaxed);
    return done;
}

static void threads(size_t count)
{
    struct progress *all = aligned_alloc(64, count * sizeof *all);
    memset(all, 0, count * sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_rwlock_wrlock(&gate);
    for (size_t i = 0; i < count; i++) {
        pthread_t id;
        if (pthread_create(&id, &small, work, &all[i]) != 0)
            exit(4);
    }
    while (atomic_load(&ready) < count)
        usleep(1000);
    // All are woken by this thread, before the call returns.
    pthread_rwlock_unlock(&gate);
    // The first half second is not counted.
    usleep(seconds / 2 * 1e6);
    long before = done_by(all, count);
    double start = now();
    usleep(seconds * 1e6);
    long done = done_by(all, count) - before;
    size_t cpus = sysconf(_SC_NPROCESSORS_ONLN);
    printf("%.3f\n", (now() - start) * (count < cpus ? count : cpus) * 1e9 / done);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t number = strtoul(argv[2], NULL, 10);
    seconds = atof(argv[3]);
    if (strcmp(argv[1], "heap") == 0)
        heap(number);
    else if (strcmp(argv[1], "size") == 0)
        size(number);
    else if (strcmp(argv[1], "threads") == 0)
        threads(number);
    else
        return 2;
    fflush(stdout);
    // The live heap is left to the kernel.
    _exit(0);
}
