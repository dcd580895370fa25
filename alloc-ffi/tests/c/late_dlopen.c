/* Opens the library long after the start, uses it in threads, closes it, and lets the threads end. Argument: its path. */
#include "observe.h"
#include <dlfcn.h>
#include <pthread.h>

static void *(*their_malloc)(size_t);
static void (*their_free)(void *);
static pthread_barrier_t used, closed;

static void *work(void *argument) {
    (void)argument;
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        memset(blocks[i] = their_malloc(i * 50 + 1), 7, i * 50 + 1);
    for (int i = 0; i < 100; i++)
        their_free(blocks[i]);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}
int main(int argc, char **argv) {
    MUST(argc > 1);
    /* Other threads are running, so static TLS comes from the surplus. */
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            puts(dlerror());
        MUST(library);
        their_malloc = (void *(*)(size_t))dlsym(library, "malloc");
        their_free = (void (*)(void *))dlsym(library, "free");
        MUST(their_malloc && their_free && their_malloc != malloc);
        void *(*their_reallocarray)(void *, size_t, size_t) =
            (void *(*)(void *, size_t, size_t))dlsym(library, "reallocarray");
        void (*their_free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(library, "free_sized");
        MUST(their_reallocarray && their_free_sized);
        their_free_sized(their_reallocarray(their_malloc(10), 100, 10), 1000);
        pthread_barrier_init(&used, NULL, 5);
        pthread_barrier_init(&closed, NULL, 5);
        pthread_t threads[4];
        for (int j = 0; j < 4; j++)
            MUST(pthread_create(&threads[j], NULL, work, NULL) == 0);
        pthread_barrier_wait(&used);
        dlclose(library);
        pthread_barrier_wait(&closed);
        for (int j = 0; j < 4; j++)
            pthread_join(threads[j], NULL);
    }
    puts("done");
    return 0;
}
