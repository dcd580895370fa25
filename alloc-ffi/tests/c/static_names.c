/* Every name of malloc.h in a static program. */
#include "observe.h"
#include <malloc.h>

int stratalloc_owns(const void *address);

int main(void) {
    void *blocks[] = {
        malloc(100), calloc(10, 10), realloc(NULL, 100), reallocarray(NULL, 10, 10), memalign(64, 100),
        aligned_alloc(64, 100), valloc(100), pvalloc(100), strdup("text"), NULL,
    };
    MUST(posix_memalign(&blocks[9], 64, 100) == 0);
    int ours = 1;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        ours &= stratalloc_owns(blocks[i]) && malloc_usable_size(blocks[i]) >= 5;
        free(blocks[i]);
    }
    printf("in a block of ours: %s\n", ours ? "yes" : "no");
    malloc_trim(0);
    mallopt(M_ARENA_MAX, 1);
    FILE *nowhere = fopen("/dev/null", "w");
    malloc_info(0, nowhere);
    SAY(mallinfo().hblks == 0 && mallinfo2().hblks == 0);
    return 0;
}
