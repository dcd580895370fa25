/* malloc_trim gives memory back that was freed: /proc says so, not only the return value. */
#include "observe.h"
#include <malloc.h>

int main(void) {
    static char *blocks[65536];
    for (int i = 0; i < 65536; i++)
        memset(blocks[i] = malloc(1024), 1, 1024);
    long full = resident_kib();
    for (int i = 0; i < 65536; i++)
        free(blocks[i]);
    SHOW(malloc_trim(0));
    long trimmed = resident_kib();
    if (full - trimmed < 50 * 1024)
        printf("resident %ld KiB, after the trim %ld KiB\n", full, trimmed);
    SAY(full - trimmed >= 50 * 1024);
    return 0;
}
