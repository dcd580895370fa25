/* The usable size covers the request, stays the same for the block's life, and is the program's to the last byte. */
#include "observe.h"
#include <malloc.h>

int main(void) {
    enum { COUNT = 400 };
    unsigned char *blocks[COUNT];
    size_t asked[COUNT], usable[COUNT];
    size_t size = 0;
    int covers = 1, same = 1, intact = 1;
    for (int i = 0; i < COUNT; i++) {
        size = i < 200 ? (size_t)i : size + size / 20 + 1;
        asked[i] = size;
        blocks[i] = malloc(size);
        MUST(blocks[i]);
        usable[i] = malloc_usable_size(blocks[i]);
        covers &= usable[i] >= size;
        memset(blocks[i], i & 0xff, usable[i]);
        if (size > 4 << 20)
            size = 200;
    }
    for (int i = 0; i < COUNT; i++) {
        same &= malloc_usable_size(blocks[i]) == usable[i];
        intact &= all_bytes(blocks[i], usable[i], i & 0xff);
        if (i % 3 == 0)
            free(blocks[i]), blocks[i] = NULL;
    }
    for (int i = 0; i < COUNT; i++) {
        if (!blocks[i])
            continue;
        same &= malloc_usable_size(blocks[i]) == usable[i];
        intact &= all_bytes(blocks[i], usable[i], i & 0xff);
        unsigned char *grown = realloc(blocks[i], usable[i] ? usable[i] : 1);
        intact &= all_bytes(grown, usable[i], i & 0xff);
        free(grown);
    }
    SAY(covers);
    SAY(same);
    SAY(intact);
    return 0;
}
