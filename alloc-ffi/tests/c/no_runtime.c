/* operator new, called from C in a process without any C++ runtime, with no memory to be had: one line, then abort; the
   nothrow form answers null. */
#include "observe.h"
#include <dlfcn.h>
int main(void) {
    void *(*nothrow)(size_t, void *) = (void *(*)(size_t, void *))dlsym(RTLD_DEFAULT, "_ZnwmRKSt9nothrow_t");
    void *(*throwing)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm");
    MUST(nothrow && throwing);
    SAY(nothrow(100, NULL) != NULL);
    SAY(throwing(100) != NULL);
    SAY(nothrow(opaque(SIZE_MAX / 2 - 100), NULL) == NULL);
    throwing(opaque(SIZE_MAX / 2 - 100));
    puts("not reached");
    return 0;
}
