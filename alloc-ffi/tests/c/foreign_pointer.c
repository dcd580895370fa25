/* Pointers that no allocator made. glibc would abort; we must say so once and go on. */
#include "observe.h"
#include <malloc.h>
#include <sys/mman.h>

static char in_data[4096];
int main(void) {
    char on_stack[256];
    char *mapped = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *guarded = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *pointers[] = {in_data + 64, on_stack + 64, mapped + 4096, guarded + 4096, (char *)16, (char *)-16,
                        (char *)0x7fff00000000, (char *)((uintptr_t)1 << 48), (char *)((uintptr_t)1 << 63)};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        char *pointer = hide(pointers[i]);
        ERRNO_AFTER(free(pointer));
        SHOW(malloc_usable_size(pointer));
        ERRNO_AFTER(SAY(realloc(pointer, 100) == NULL));
    }
    char *p = malloc(100);
    free(p);
    puts("alive");
    return 0;
}
