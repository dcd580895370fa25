/* Modules come and go while threads that used them end. Argument: the module's path. */
#include "observe.h"
#include <dlfcn.h>
#include <pthread.h>

static int (*use)(int);
static int good;
static void *work(void *argument) {
    __atomic_add_fetch(&good, use((int)(intptr_t)argument), __ATOMIC_RELAXED);
    return NULL;
}
int main(int argc, char **argv) {
    MUST(argc > 1);
    for (int i = 0; i < 200; i++) {
        void *module = dlopen(argv[1], RTLD_NOW);
        MUST(module);
        use = (int (*)(int))dlsym(module, "use");
        MUST(use);
        pthread_t threads[3];
        for (intptr_t j = 0; j < 3; j++)
            MUST(pthread_create(&threads[j], NULL, work, (void *)(j + i)) == 0);
        for (int j = 0; j < 3; j++)
            pthread_join(threads[j], NULL);
        dlclose(module);
        MUST(dlopen("/no/such/file.so", RTLD_NOW) == NULL);
        MUST(dlerror() != NULL);
    }
    SHOW(good);
    return 0;
}
