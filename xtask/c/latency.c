// Times every small malloc and free while memory is being given back.
//
//     latency THREADS SECONDS
//
// Each thread replaces small blocks at random, and now and then fills and frees 64 MiB, whose release goes on beside the
// timed calls. Prints the 50th, 90th, 99th, 99.9th and 99.99th percentile and the maximum in nanoseconds, of malloc and
// then of free. Reading the clock is part of each: about 10 to 20 ns.
#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>

enum { LIVE = 20000, STEPS = 32, BUCKETS = 64 * STEPS };

struct histogram {
    uint64_t counts[BUCKETS], total, greatest;
};

static double seconds;
static struct histogram takes, frees;
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high) : : "rcx", "memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(t) : : "memory");
    return t;
#else
    return now() * 1e9;
#endif
}

// 32 steps in each power of two: a figure is right to 3%.
static unsigned bucket(uint64_t t)
{
    if (t < STEPS)
        return t;
    unsigned power = 63 - __builtin_clzll(t);
    return (power - 4) * STEPS + ((t >> (power - 5)) & (STEPS - 1));
}

static double least(unsigned bucket)
{
    if (bucket < 2 * STEPS)
        return bucket;
    unsigned power = bucket / STEPS + 4;
    return (double)((uint64_t)(STEPS + bucket % STEPS) << (power - 5));
}

static void note(struct histogram *h, uint64_t t)
{
    h->counts[bucket(t)]++;
    h->total++;
    if (t > h->greatest)
        h->greatest = t;
}

static void add(struct histogram *all, const struct histogram *own)
{
    for (int i = 0; i < BUCKETS; i++)
        all->counts[i] += own->counts[i];
    all->total += own->total;
    if (own->greatest > all->greatest)
        all->greatest = own->greatest;
}

static void burst(uint64_t *seed)
{
    void **chain = NULL;
    for (size_t taken = 0; taken < 64 << 20;) {
        size_t size = 16 + draw(seed, 16 << 10);
        void **block = malloc(size);
        if (!block)
            exit(3);
        memset(block, 1, size);
        *block = chain;
        chain = block;
        taken += size;
    }
    while (chain) {
        void **next = *chain;
        free(chain);
        chain = next;
    }
}

static void *work(void *arg)
{
    struct histogram *h = calloc(2, sizeof *h);
    void **live = calloc(LIVE, sizeof *live);
    uint64_t seed = (uintptr_t)h;
    for (int i = 0; i < LIVE; i++)
        live[i] = take(usual_size(&seed));
    double start = now(), next = start;
    for (double t = start; t - start < seconds; t = now()) {
        if (t >= next) {
            burst(&seed);
            next = now() + 0.1;
        }
        for (int i = 0; i < 1000; i++) {
            uint32_t at = draw(&seed, LIVE);
            size_t size = usual_size(&seed);
            uint64_t a = ticks();
            free(live[at]);
            uint64_t b = ticks();
            char *block = malloc(size);
            uint64_t c = ticks();
            if (!block)
                exit(3);
            *block = 1;
            live[at] = block;
            note(&h[1], b - a);
            note(&h[0], c - b);
        }
    }
    pthread_mutex_lock(&joining);
    add(&takes, &h[0]);
    add(&frees, &h[1]);
    pthread_mutex_unlock(&joining);
    return arg;
}

static void print(const struct histogram *h, double scale)
{
    static const double PARTS[] = {0.5, 0.9, 0.99, 0.999, 0.9999};
    for (int i = 0; i < 5; i++) {
        uint64_t sum = 0;
        unsigned at = 0;
        while (at < BUCKETS && (sum += h->counts[at]) < PARTS[i] * h->total)
            at++;
        printf("%.1f ", least(at) * scale);
    }
    printf("%.1f ", h->greatest * scale);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int count = atoi(argv[1]);
    seconds = atof(argv[2]);
    pthread_t threads[count];
    double start = now();
    uint64_t first = ticks();
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double scale = (now() - start) * 1e9 / (ticks() - first);
    print(&takes, scale);
    print(&frees, scale);
    printf("\n");
    return 0;
}
