/* 32 threads allocate while 8 threads fork; each child allocates, frees and sets its environment. With "trim" memory
   is given back all the time and popen runs in the loop. Arguments: forks, mode. */
#include "observe.h"
#include <malloc.h>
#include <pthread.h>

enum { WORKERS = 32, FORKERS = 8 };
static volatile int stop;
static int failed, forks_each;
static int trim;

static void *worker(void *argument) {
    uint64_t random = (uintptr_t)argument * 2654435761u + 1;
    void *blocks[64] = {0};
    while (!stop) {
        size_t i = next_random(&random) % 64;
        free(blocks[i]);
        size_t size = next_random(&random) % (next_random(&random) % 50 == 0 ? 500000 : 2000);
        blocks[i] = malloc(size);
        if (blocks[i] && size)
            *(char *)blocks[i] = 1;
    }
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    return NULL;
}
static void child(void) {
    alarm(60);
    void *blocks[200];
    for (int i = 0; i < 200; i++) {
        blocks[i] = malloc(1 + i * 37);
        memset(blocks[i], i, 1 + i * 37);
    }
    void *big = malloc(2 << 20);
    setenv("STORM", "a value that is not so short", 1);
    for (int i = 0; i < 200; i++) {
        if (*(unsigned char *)blocks[i] != (unsigned char)i)
            _exit(3);
        free(blocks[i]);
    }
    free(big);
    _exit(0);
}
static void *forker(void *argument) {
    (void)argument;
    for (int i = 0; i < forks_each; i++) {
        if (trim && i % 8 == 0) {
            malloc_trim(0);
            FILE *pipe = popen("exit 0", "r");
            if (!pipe || pclose(pipe) != 0)
                __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
        }
        pid_t pid = fork();
        if (pid == 0)
            child();
        int status = -1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv) {
    forks_each = (argc > 1 ? atoi(argv[1]) : 1000) / FORKERS;
    trim = argc > 2;
    pthread_t workers[WORKERS], forkers[FORKERS];
    for (uintptr_t i = 0; i < WORKERS; i++)
        MUST(pthread_create(&workers[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < FORKERS; i++)
        MUST(pthread_create(&forkers[i], NULL, forker, NULL) == 0);
    for (int i = 0; i < FORKERS; i++)
        pthread_join(forkers[i], NULL);
    stop = 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    SHOW(failed);
    return 0;
}
