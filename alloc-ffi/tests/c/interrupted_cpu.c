/* Many threads on one CPU, interrupted in the middle of malloc and free every few dozen microseconds, hand blocks to each other; no
   block is given out twice or lost. Each thread calls these two or functions that are the same by another name, if the heap has them:
   C++'s operators, names of the C library's own. Argument: seconds. */
#define _GNU_SOURCE
#include "observe.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

enum { THREADS = 24, SIZES = 4, SHARED = 8 };

struct block {
    struct block *self;
    unsigned long owner;
};

static volatile int stop;
static long twice, turns;
static struct block *shared[SHARED];

typedef void *allocate(size_t);
typedef void release(void *);
enum { PAIRS = 3 };
static struct { allocate *allocate; release *release; } pairs[PAIRS] = {{malloc, free}, {malloc, free}, {malloc, free}};

static void find(int pair, const char *allocate_name, const char *release_name) {
    void *allocate_found = dlsym(RTLD_DEFAULT, allocate_name), *release_found = dlsym(RTLD_DEFAULT, release_name);
    if (allocate_found && release_found) {
        pairs[pair].allocate = (allocate *)allocate_found;
        pairs[pair].release = (release *)release_found;
    }
}

static void nothing(int signal) {
    (void)signal;
}

/* Sends this thread a signal every few dozen microseconds. */
static timer_t interrupt(unsigned long number) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    event._sigev_un._tid = gettid();
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec times = {{0, 50000 + (long)number * 1000}, {0, 50000}};
    MUST(timer_settime(timer, 0, &times, NULL) == 0);
    return timer;
}

/* A block that was given out twice has another mark than its owner's by the time that it is freed. */
static void check_and_free(struct block *block, unsigned long owner, release *release) {
    if (block->self != block || block->owner != owner)
        __atomic_add_fetch(&twice, 1, __ATOMIC_RELAXED);
    block->self = NULL;
    release(block);
}
static void *worker(void *argument) {
    unsigned long number = (uintptr_t)argument;
    uint64_t random = number * 77 + 1;
    timer_t timer = interrupt(number);
    allocate *allocate = pairs[number % PAIRS].allocate;
    release *release = pairs[number % PAIRS].release;
    long mine = 0;
    while (!stop) {
        struct block *blocks[6];
        int count = 1 + next_random(&random) % 6;
        for (int i = 0; i < count; i++) {
            blocks[i] = allocate(16 << next_random(&random) % SIZES);
            MUST(blocks[i]);
            *blocks[i] = (struct block){blocks[i], number};
        }
        for (int i = 0; i < count; i++)
            if (next_random(&random) % 8)
                check_and_free(blocks[i], number, release);
            else {
                blocks[i]->owner = ~0ul;
                blocks[i] = __atomic_exchange_n(&shared[next_random(&random) % SHARED], blocks[i], __ATOMIC_ACQ_REL);
                if (blocks[i])
                    check_and_free(blocks[i], ~0ul, release);
            }
        mine++;
    }
    timer_delete(timer);
    __atomic_add_fetch(&turns, mine, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 2;
    cpu_set_t set, one;
    MUST(sched_getaffinity(0, sizeof set, &set) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &set))
            CPU_SET(cpu, &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
    find(1, "_Znwm", "_ZdlPv");
    find(2, "__libc_malloc", "cfree");
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGURG, &action, NULL) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED; i++)
        if (shared[i])
            check_and_free(shared[i], ~0ul, free);
    SAY(turns > THREADS);
    SHOW(twice);
    return 0;
}
