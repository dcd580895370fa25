/* Compiled with _FORTIFY_SOURCE=3: a buffer grown to its usable size through realloc, as careful programs do. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    for (size_t size = 1; size < 300000; size = size * 3 / 2 + 1) {
        char *buffer = malloc(size);
        if (!buffer)
            return 1;
        memset(buffer, 'a', size);
        size_t usable = malloc_usable_size(buffer);
        buffer = realloc(buffer, usable);
        if (!buffer)
            return 1;
        memset(buffer, 'b', usable);
        char *copy = strndup(buffer, size);
        printf("%zu\n", strlen(copy));
        free(copy);
        free(buffer);
    }
    return 0;
}
