/* More exit handlers than fit libc's first table, registered before main: libc callocs with its own lock held. */
#include "observe.h"

static int ran;
static void handler(void) {
    void *p = malloc(100 + ran);
    ran++;
    free(p);
}
static void last(void) {
    printf("handlers run: %d\n", ran);
}
__attribute__((constructor)) static void early(void) {
    MUST(atexit(last) == 0);
    for (int i = 0; i < 100; i++)
        MUST(atexit(handler) == 0);
}
int main(void) {
    char *p = strdup("main");
    puts(p);
    free(p);
    return 0;
}
