// Small loads on the heap: prints the nanoseconds of an operation.
//
//     micro LOAD NUMBER SECONDS
//
// NUMBER is a block size, or for loads with threads their number. An operation is a block's way from malloc to free,
// for `ramp` a realloc, for `threads` the life of a thread.
#include "bench.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { BATCH = 1000, LIVE = 100000, RING = 4096, OWN = 1000 };

static size_t number;
static double seconds;
static uint64_t seed = 1;
static void *blocks[LIVE];

// Loads of one thread: each does some operations and says how many.

static long pair(void)
{
    for (int i = 0; i < BATCH; i++) {
        void *p = take(number);
        opaque(p);
        free(p);
    }
    return BATCH;
}

static long lifo(void)
{
    for (int i = 0; i < BATCH; i++)
        blocks[i] = take(number);
    for (int i = BATCH; i-- > 0;)
        free(blocks[i]);
    return BATCH;
}

static long fifo(void)
{
    for (int i = 0; i < BATCH; i++)
        blocks[i] = take(number);
    for (int i = 0; i < BATCH; i++)
        free(blocks[i]);
    return BATCH;
}

// Mixed sizes of 16..NUMBER, the same ones each time, freed in order.
static long mixed(void)
{
    static size_t sizes[BATCH];
    if (!sizes[0])
        for (int i = 0; i < BATCH; i++)
            sizes[i] = 16 + draw(&seed, number - 15);
    for (int i = 0; i < BATCH; i++)
        blocks[i] = take(sizes[i]);
    for (int i = 0; i < BATCH; i++)
        free(blocks[i]);
    return BATCH;
}

// NUMBER blocks of usual sizes are live; one after another in random order is replaced.
static long live(void)
{
    for (size_t i = 0; !blocks[number - 1] && i < number; i++)
        blocks[i] = take(usual_size(&seed));
    for (int i = 0; i < BATCH; i++) {
        uint32_t at = draw(&seed, number);
        free(blocks[at]);
        blocks[at] = take(usual_size(&seed));
    }
    return BATCH;
}

// A block grows from 16 bytes to NUMBER by a half each time, and a second one beside it.
static long ramp(void)
{
    long done = 0;
    char *a = take(16), *b = take(16);
    for (size_t size = 24; size <= number; size += size / 2, done += 2) {
        a = realloc(a, size);
        b = realloc(b, size);
        if (!a || !b)
            exit(3);
        a[size - 1] = b[size - 1] = 1;
    }
    free(a);
    free(b);
    return done;
}

// Appends 64 bytes at a time up to NUMBER, as string builders do.
static long append(void)
{
    long done = 0;
    char *a = take(64);
    for (size_t size = 128; size <= number; size += 64, done++) {
        a = realloc(a, size);
        if (!a)
            exit(3);
        a[size - 1] = 1;
    }
    free(a);
    return done;
}

// Every page of the block is written.
static long large(void)
{
    for (int i = 0; i < 4; i++) {
        char *p = take(number);
        for (size_t at = 0; at < number; at += 4096)
            p[at] = 1;
        opaque(p);
        free(p);
    }
    return 4;
}

static long zeroed(void)
{
    for (int i = 0; i < 16; i++) {
        char *p = calloc(1, number);
        if (!p || p[number / 2])
            exit(3);
        p[number / 2] = 1;
        opaque(p);
        free(p);
    }
    return 16;
}

// Loads with threads: each runs by itself and prints.

static atomic_bool stop;

static void report(double start, long done)
{
    printf("%.3f\n", (now() - start) * 1e9 / done);
}

struct ring {
    void *slots[RING];
    _Alignas(128) atomic_long head;
    _Alignas(128) atomic_long tail;
};

static void *produce(void *arg)
{
    struct ring *ring = arg;
    uint64_t own = (uintptr_t)arg;
    long head = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) > RING - 64) {
            sched_yield();
            continue;
        }
        for (int i = 0; i < 64; i++)
            ring->slots[head++ % RING] = take(usual_size(&own));
        atomic_store_explicit(&ring->head, head, memory_order_release);
    }
    atomic_store_explicit(&ring->head, -head, memory_order_release);
    return NULL;
}

static void *consume(void *arg)
{
    struct ring *ring = arg;
    long tail = 0;
    for (;;) {
        long head = atomic_load_explicit(&ring->head, memory_order_acquire);
        int last = head < 0;
        if (last)
            head = -head;
        if (head == tail) {
            if (last)
                return (void *)tail;
            sched_yield();
        }
        for (; tail < head; tail++)
            free(ring->slots[tail % RING]);
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
}

// NUMBER pairs: one thread takes blocks, another frees them.
static void pipes(void)
{
    pthread_t threads[2 * number];
    struct ring *rings = aligned_alloc(128, number * sizeof *rings);
    memset(rings, 0, number * sizeof *rings);
    double start = now();
    for (size_t i = 0; i < number; i++) {
        pthread_create(&threads[2 * i], NULL, produce, &rings[i]);
        pthread_create(&threads[2 * i + 1], NULL, consume, &rings[i]);
    }
    struct timespec nap = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
    atomic_store(&stop, 1);
    long done = 0;
    for (size_t i = 0; i < 2 * number; i++) {
        void *count;
        pthread_join(threads[i], &count);
        done += (long)count;
    }
    report(start, done);
}

// A thread replaces blocks of a set at random, hands the set to a new thread, and ends.
static atomic_long served;

static void *serve(void *arg)
{
    void **own = arg;
    uint64_t mine = (uintptr_t)own ^ (uint64_t)atomic_load(&served);
    for (int i = 0; i < 20 * OWN; i++) {
        uint32_t at = draw(&mine, OWN);
        free(own[at]);
        own[at] = take(usual_size(&mine));
    }
    atomic_fetch_add(&served, 20 * OWN);
    pthread_t next;
    if (!atomic_load(&stop) && pthread_create(&next, NULL, serve, own) == 0) {
        pthread_detach(next);
        return NULL;
    }
    atomic_fetch_add((atomic_long *)&own[OWN], 1);
    return NULL;
}

// NUMBER threads at a time, as a server whose threads come and go while its data stay.
static void churn(void)
{
    void **sets[number];
    double start = now();
    for (size_t i = 0; i < number; i++) {
        pthread_t thread;
        sets[i] = calloc(OWN + 1, sizeof(void *));
        pthread_create(&thread, NULL, serve, sets[i]);
        pthread_detach(thread);
    }
    struct timespec nap = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
    atomic_store(&stop, 1);
    for (size_t i = 0; i < number; i++)
        while (!atomic_load((atomic_long *)&sets[i][OWN]))
            sched_yield();
    report(start, atomic_load(&served));
}

static void *live_shortly(void *arg)
{
    uint64_t mine = (uintptr_t)&mine;
    void *own[100];
    for (int i = 0; i < 100; i++)
        own[i] = take(usual_size(&mine));
    for (int i = 0; i < 100; i++)
        free(own[i]);
    return arg;
}

// Threads come and go, NUMBER at a time, each with 100 blocks.
static void threads(void)
{
    long done = 0;
    double start = now();
    while (now() - start < seconds) {
        pthread_t batch[number];
        for (size_t i = 0; i < number; i++)
            pthread_create(&batch[i], NULL, live_shortly, NULL);
        for (size_t i = 0; i < number; i++)
            pthread_join(batch[i], NULL);
        done += number;
    }
    report(start, done);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Repeats a load and prints the median of its repetitions, so that a pause of the machine does not count.
static void repeat(long (*load)(void))
{
    enum { MOST = 100000 };
    static double costs[MOST];
    int count = 0;
    for (int i = 0; i < 3; i++)
        load();
    for (double start = now(), end = start; count < MOST && end - start < seconds; count++) {
        double begin = end;
        long done = load();
        end = now();
        costs[count] = (end - begin) * 1e9 / done;
    }
    qsort(costs, count, sizeof *costs, by_size);
    printf("%.3f\n", costs[count / 2]);
}

static const struct {
    const char *name;
    long (*load)(void);
    void (*whole)(void);
} LOADS[] = {
    {"pair", pair, NULL},   {"lifo", lifo, NULL},     {"fifo", fifo, NULL},     {"mixed", mixed, NULL},
    {"live", live, NULL},   {"ramp", ramp, NULL},     {"append", append, NULL}, {"large", large, NULL},
    {"calloc", zeroed, NULL}, {"pipes", NULL, pipes}, {"churn", NULL, churn},   {"threads", NULL, threads},
};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    number = strtoul(argv[2], NULL, 10);
    seconds = atof(argv[3]);
    for (size_t i = 0; i < sizeof LOADS / sizeof *LOADS; i++) {
        if (strcmp(LOADS[i].name, argv[1]) != 0)
            continue;
        if (LOADS[i].load)
            repeat(LOADS[i].load);
        else
            LOADS[i].whole();
        return 0;
    }
    return 2;
}
