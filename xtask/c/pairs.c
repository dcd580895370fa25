// Malloc/free pairs for counting instructions.
//
//     pairs lifo|batch ROUNDS       with malloc and free
//     pairs lifo-none|batch-none ROUNDS    the same loops without the calls
//
// lifo: ROUNDS times malloc(64), free. batch: ROUNDS times 1000 mallocs of mixed 16..1024 bytes, then 1000 frees in
// the same order.
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000 };

static void *blocks[BATCH];
static size_t sizes[BATCH];

// Hides a value from the optimiser, at no cost.
#define opaque(x) __asm__ volatile("" : "+r"(x))

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long rounds = atol(argv[2]);
    unsigned seed = 1;
    for (int i = 0; i < BATCH; i++) {
        seed = seed * 1103515245 + 12345;
        sizes[i] = 16 + (seed >> 8) % 1009;
    }
    if (strcmp(argv[1], "lifo") == 0) {
        for (long r = 0; r < rounds; r++) {
            void *p = malloc(64);
            opaque(p);
            free(p);
        }
    } else if (strcmp(argv[1], "lifo-none") == 0) {
        for (long r = 0; r < rounds; r++) {
            void *p = blocks;
            opaque(p);
        }
    } else if (strcmp(argv[1], "batch") == 0) {
        for (long r = 0; r < rounds; r++) {
            for (int i = 0; i < BATCH; i++) {
                size_t size = sizes[i];
                opaque(size);
                blocks[i] = malloc(size);
            }
            for (int i = 0; i < BATCH; i++) {
                void *p = blocks[i];
                opaque(p);
                free(p);
            }
        }
    } else if (strcmp(argv[1], "batch-none") == 0) {
        for (long r = 0; r < rounds; r++) {
            for (int i = 0; i < BATCH; i++) {
                size_t size = sizes[i];
                opaque(size);
                blocks[i] = (void *)size;
            }
            for (int i = 0; i < BATCH; i++) {
                void *p = blocks[i];
                opaque(p);
            }
        }
    } else {
        return 2;
    }
    return 0;
}
