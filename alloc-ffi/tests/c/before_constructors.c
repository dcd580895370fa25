/* The very first calls of the process come from .preinit_array, before any library's constructor. */
#include "observe.h"
#include <locale.h>

static char *kept;
static int zeroed;
static void earliest(int argc, char **argv, char **env) {
    (void)argc, (void)argv, (void)env;
    free(NULL);
    void *p = malloc(1000);
    free(p);
    kept = malloc(64);
    strcpy(kept, "from before");
    char *z = calloc(1000, 10);
    zeroed = all_bytes(z, 10000, 0);
    free(z);
    void *big = malloc(3 << 20);
    free(realloc(big, 5 << 20));
    locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    freelocale(locale);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = earliest;

int main(void) {
    puts(kept);
    SHOW(zeroed);
    kept = realloc(kept, 100000);
    puts(kept);
    free(kept);
    return 0;
}
