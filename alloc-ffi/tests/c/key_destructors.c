/* Memory is allocated and freed in every round of the thread's key destructors, by a hundred thousand short
   threads; what they use does not add up. */
#include "observe.h"
#include <limits.h>
#include <pthread.h>

static pthread_key_t key;
static int rounds_seen[8];

struct state {
    int round;
    char *block;
};
static void destroy(void *argument) {
    struct state *state = argument;
    state->round++;
    __atomic_add_fetch(&rounds_seen[state->round], 1, __ATOMIC_RELAXED);
    free(state->block);
    state->block = malloc(200);
    memset(state->block, state->round, 200);
    if (state->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, state);
    } else {
        free(state->block);
        free(state);
    }
}
static void *work(void *argument) {
    (void)argument;
    struct state *state = malloc(sizeof *state);
    state->round = 0;
    state->block = strdup("block");
    pthread_setspecific(key, state);
    void *mixed[20];
    for (int i = 0; i < 20; i++)
        mixed[i] = malloc(1 + i * 100);
    for (int i = 0; i < 20; i++)
        free(mixed[i]);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 100000;
    MUST(pthread_key_create(&key, destroy) == 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + 16384);
    long early = 0;
    for (int i = 0; i < threads; i += 4) {
        pthread_t thread[4];
        for (int j = 0; j < 4; j++)
            MUST(pthread_create(&thread[j], &attributes, work, NULL) == 0);
        for (int j = 0; j < 4; j++)
            pthread_join(thread[j], NULL);
        if (i == threads / 10 / 4 * 4)
            early = resident_kib();
    }
    long grown = resident_kib() - early;
    for (int i = 0; i < 8; i++)
        SHOW(rounds_seen[i]);
    if (grown >= 2048)
        printf("grown by %ld KiB\n", grown);
    SAY(grown < 2048);
    return 0;
}
