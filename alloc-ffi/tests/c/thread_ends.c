/* All the ways for a thread to end and to be started: the interposed pthread_create must not show. */
#include "observe.h"
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

static int cleaned;
static sem_t ready;
static void cleanup(void *argument) {
    free(argument);
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED);
}
static void *returns(void *argument) {
    return (char *)argument + 1;
}
static void *exits(void *argument) {
    pthread_cleanup_push(cleanup, strdup("exit"));
    free(malloc(500));
    pthread_exit((char *)argument + 2);
    pthread_cleanup_pop(0);
    return NULL;
}
static void *waits(void *argument) {
    pthread_cleanup_push(cleanup, strdup("cancel"));
    sem_post(&ready);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return argument;
}
static int c11(void *argument) {
    char *p = malloc(1000);
    memset(p, 1, 1000);
    free(p);
    return (int)(intptr_t)argument;
}
static void *detached(void *argument) {
    free(argument);
    sem_post(&ready);
    return NULL;
}

int main(void) {
    sem_init(&ready, 0, 0);
    for (int i = 0; i < 50; i++) {
        pthread_t a, b, c;
        void *result;
        MUST(pthread_create(&a, NULL, returns, (void *)100) == 0);
        MUST(pthread_create(&b, NULL, exits, (void *)100) == 0);
        MUST(pthread_create(&c, NULL, waits, NULL) == 0);
        sem_wait(&ready);
        MUST(pthread_cancel(c) == 0);
        pthread_join(a, &result);
        MUST(result == (void *)101);
        pthread_join(b, &result);
        MUST(result == (void *)102);
        pthread_join(c, &result);
        MUST(result == PTHREAD_CANCELED);
        thrd_t d;
        int code = 0;
        MUST(thrd_create(&d, c11, (void *)42) == thrd_success);
        thrd_join(d, &code);
        MUST(code == 42);
    }
    SHOW(cleaned);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    SHOW(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, &attributes, detached, malloc(100)) == 0);
        sem_wait(&ready);
    }
    /* A creation that fails keeps nothing and says why. */
    cpu_set_t none;
    CPU_ZERO(&none);
    pthread_attr_init(&attributes);
    SHOW(pthread_attr_setaffinity_np(&attributes, sizeof none, &none));
    pthread_t thread;
    ERRNO_AFTER(SHOW(pthread_create(&thread, &attributes, returns, NULL)));
    return 0;
}
