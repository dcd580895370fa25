/* A profiler's handler allocates at every tick while four threads allocate; no block is given out twice. Not for
   glibc, which may deadlock here. Argument: seconds. */
#include "observe.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile int stop;
static volatile int handled, twice;

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    unsigned char *p = malloc(64);
    if (p) {
        unsigned char mark = (unsigned char)(uintptr_t)&saved;
        memset(p, mark, 64);
        for (volatile int i = 0; i < 50; i++)
            ;
        if (!all_bytes(p, 64, mark))
            __atomic_add_fetch(&twice, 1, __ATOMIC_RELAXED);
        free(p);
    }
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
    errno = saved;
}
static void *worker(void *argument) {
    uint64_t random = (uintptr_t)argument;
    unsigned char *blocks[256] = {0};
    size_t sizes[256];
    unsigned char mine = (unsigned char)random;
    while (!stop) {
        size_t i = next_random(&random) % 256;
        if (blocks[i]) {
            if (!all_bytes(blocks[i], sizes[i], mine))
                __atomic_add_fetch(&twice, 1, __ATOMIC_RELAXED);
            free(blocks[i]);
        }
        sizes[i] = next_random(&random) % 4 ? 64 : next_random(&random) % 3000;
        blocks[i] = malloc(sizes[i]);
        if (blocks[i])
            memset(blocks[i], mine, sizes[i]);
    }
    for (int i = 0; i < 256; i++)
        free(blocks[i]);
    return NULL;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 2;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGPROF, &action, NULL) == 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    MUST(setitimer(ITIMER_PROF, &timer, NULL) == 0);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)(i * 40 + 17)) == 0);
    /* On a busy machine the threads get little of the time that the timer counts. */
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end || (handled <= 20 && time(NULL) < end + 60)) {
        struct timespec pause = {0, 50000000};
        nanosleep(&pause, NULL);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_PROF, &timer, NULL);
    SAY(handled > 20);
    SHOW(twice);
    return 0;
}
