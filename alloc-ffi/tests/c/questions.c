/* mallinfo, mallinfo2, malloc_info, malloc_stats: for this allocator alone, as the numbers differ. */
#include "observe.h"
#include <malloc.h>

static int rises(size_t size) {
    size_t before = mallinfo2().uordblks;
    char *p = malloc(size);
    memset(p, 1, size);
    size_t held = mallinfo2().uordblks;
    free(p);
    size_t after = mallinfo2().uordblks;
    int good = held >= before + size && held <= before + size + size / 4 + 16384 && after < held - size / 2;
    if (!good)
        printf("%zu: %zu, %zu, %zu\n", size, before, held, after);
    return good;
}

int main(void) {
    free(malloc(1));
    SAY(rises(100));
    SAY(rises(5000));
    SAY(rises(100000));
    SAY(rises(3000000));
    SAY(rises((size_t)200 << 20));
    struct mallinfo2 wide = mallinfo2();
    SAY(wide.arena == wide.uordblks + wide.fordblks);
    struct mallinfo narrow = mallinfo();
    SAY(narrow.uordblks > 0 && (size_t)narrow.uordblks <= wide.uordblks + 65536);

    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    SHOW(malloc_info(0, stream));
    SHOW(malloc_info(1, stream) == EINVAL);
    fclose(stream);
    SAY(strncmp(text, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", 42) == 0);
    SAY(strstr(text, "<system type=\"current\" size=\"") != NULL);
    SAY(strcmp(text + len - 10, "</malloc>\n") == 0);
    free(text);
    malloc_stats();
    return 0;
}
