/* Threads with the least stack that libc allows call the whole family, and end, many times. */
#include "observe.h"
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

static pthread_key_t key;
static void *work(void *argument) {
    void *blocks[40];
    for (int i = 0; i < 40; i++) {
        size_t size = (size_t)1 << (i % 21);
        blocks[i] = i % 3 == 0 ? malloc(size) : i % 3 == 1 ? calloc(1, size) : memalign(64, size);
        blocks[i] = realloc(blocks[i], size + size / 2);
    }
    pthread_setspecific(key, blocks[0]);
    for (int i = 1; i < 40; i++)
        free(blocks[i]);
    if ((uintptr_t)argument % 50 == 0)
        malloc_trim(0);
    return NULL;
}
int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    MUST(pthread_key_create(&key, free) == 0);
    for (uintptr_t i = 0; i < 1000; i++) {
        pthread_t threads[4];
        for (int j = 0; j < 4; j++)
            MUST(pthread_create(&threads[j], &attributes, work, (void *)i) == 0);
        for (int j = 0; j < 4; j++)
            pthread_join(threads[j], NULL);
    }
    puts("all ended");
    return 0;
}
