/* A module that binds to libc's malloc before ours, when it is opened with RTLD_DEEPBIND. */
#include <stdlib.h>
#include <string.h>
void *module_block(size_t size) {
    char *block = malloc(size);
    memset(block, 'm', size);
    return block;
}
void *module_zeroed(size_t size) {
    return calloc(1, size);
}
