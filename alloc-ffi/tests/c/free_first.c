/* free(NULL) is the first call of all. */
#include "observe.h"
static void earliest(void) {
    free(NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = earliest;
int main(void) {
    puts("alive");
    return 0;
}
