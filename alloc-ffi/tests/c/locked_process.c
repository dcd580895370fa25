/* mlockall, now and for the future: memory still comes and goes, and zeroed memory is zero. */
#include "observe.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void *in_thread(void *argument) {
    (void)argument;
    for (int i = 0; i < 1000; i++)
        free(malloc(i * 10));
    return NULL;
}
int main(void) {
    char *before = malloc(1 << 20);
    memset(before, 1, 1 << 20);
    int locked = mlockall(MCL_CURRENT | MCL_FUTURE);
    if (locked != 0)
        locked = mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    SHOW(locked);
    for (size_t size = 16; size <= (size_t)32 << 20; size *= 2) {
        char *a = malloc(size);
        MUST(a);
        memset(a, 0xee, size);
        free(a);
        char *z = calloc(1, size);
        MUST(z);
        printf("calloc %zu zero: %d\n", size, all_bytes(z, size, 0));
        free(z);
    }
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    pthread_join(thread, NULL);
    free(before);
    SHOW(munlockall());
    return 0;
}
