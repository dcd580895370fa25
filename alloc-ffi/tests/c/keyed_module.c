/* A module with a thread-exit destructor and allocations of its own. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static __thread char local[200];
static pthread_key_t key;
__attribute__((constructor)) static void begin(void) {
    pthread_key_create(&key, free);
}
__attribute__((destructor)) static void end(void) {
    pthread_key_delete(key);
}
int use(int n) {
    pthread_setspecific(key, strdup("per thread"));
    memset(local, n, sizeof local);
    void *p = calloc(n + 1, 100);
    int zero = ((char *)p)[n] == 0;
    free(p);
    return zero && local[100] == (char)n;
}
