/* Blocks from a module bound to libc's malloc come to our free, realloc and malloc_usable_size. */
#include "observe.h"
#include <dlfcn.h>
#include <malloc.h>

int main(int argc, char **argv) {
    MUST(argc > 1);
    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    MUST(module);
    void *(*module_block)(size_t) = (void *(*)(size_t))dlsym(module, "module_block");
    void *(*module_zeroed)(size_t) = (void *(*)(size_t))dlsym(module, "module_zeroed");
    MUST(module_block && module_zeroed);
    for (size_t size = 10; size < 60000; size = size * 3) {
        char *a = module_block(size);
        SAY(malloc_usable_size(a) >= size);
        a = realloc(a, size * 2);
        SAY(all_bytes(a, size, 'm'));
        memset(a, 'n', size * 2);
        free(a);
        char *b = module_block(size);
        b = realloc(b, size / 2);
        SAY(all_bytes(b, size / 2, 'm'));
        free(b);
        char *c = module_zeroed(size);
        SAY(all_bytes(c, size, 0));
        ERRNO_AFTER(free(c));
        SAY(realloc(module_block(size), 0) == NULL);
    }
    for (int i = 0; i < 1000; i++)
        free(module_block(i + 1));
    dlclose(module);
    puts("done");
    return 0;
}
