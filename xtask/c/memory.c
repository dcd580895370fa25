// What threads and freed memory keep: prints figures in KiB.
//
//     memory idle|idle-none THREADS     resident 2 s after each thread has used and freed 1 MiB; -none: without blocks
//     memory release THREADS MIB        resident at the peak, 2 s after all is freed, and after 50 calls more;
//                                       then the longest of these calls in microseconds
#include "bench.h"
#include <pthread.h>
#include <unistd.h>

static size_t threads, each;
static pthread_barrier_t used, over;

// Pages are read one after the other from a buffer of our own: nothing here takes memory from the heap.
static long resident(void)
{
    char text[128] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = -1;
    if (file && fgets(text, sizeof text, file))
        sscanf(text, "%*s %ld", &pages);
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// Takes `each` bytes in blocks of usual sizes, all written. The blocks are chained through their first words.
static void *fill(uint64_t seed)
{
    void **chain = NULL;
    for (size_t taken = 0; taken < each;) {
        size_t size = usual_size(&seed);
        void **block = malloc(size);
        if (!block)
            exit(3);
        memset(block, 1, size);
        *block = chain;
        chain = block;
        taken += size;
    }
    return chain;
}

static void drop(void **chain)
{
    while (chain) {
        void **next = *chain;
        free(chain);
        chain = next;
    }
}

static void *thread(void *arg)
{
    void *chain = each ? fill((uintptr_t)&arg) : NULL;
    pthread_barrier_wait(&used);
    drop(chain);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&over);
    return NULL;
}

// Threads that have each used memory one at a time, so that the blocks of one are free for the next.
static void *in_turn(void *arg)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    drop(each ? fill((uintptr_t)&arg) : NULL);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&over);
    return NULL;
}

static void start(void *(*body)(void *))
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&used, NULL, threads + 1);
    pthread_barrier_init(&over, NULL, threads + 1);
    for (size_t i = 0; i < threads; i++) {
        pthread_t id;
        if (pthread_create(&id, &small, body, NULL) != 0) {
            fprintf(stderr, "no thread %zu\n", i);
            exit(4);
        }
    }
    pthread_barrier_wait(&used);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    threads = strtoul(argv[2], NULL, 10);
    if (strncmp(argv[1], "idle", 4) == 0) {
        each = strcmp(argv[1], "idle-none") == 0 ? 0 : 1 << 20;
        start(in_turn);
        sleep(2);
        printf("%ld\n", resident());
    } else if (argc == 4) {
        each = strtoul(argv[3], NULL, 10) * (1 << 20) / threads;
        start(thread);
        long peak = resident();
        pthread_barrier_wait(&used);
        sleep(2);
        long idle = resident();
        double longest = 0;
        for (int i = 0; i < 50; i++) {
            double begin = now();
            // Above what thread caches hold.
            void *block = take(1 << 20);
            opaque(block);
            free(block);
            double took = now() - begin;
            longest = took > longest ? took : longest;
        }
        printf("%ld %ld %ld %.1f\n", peak, idle, resident(), longest * 1e6);
    } else {
        return 2;
    }
    fflush(stdout);
    _exit(0);
}
