/* A C program that opens a C++ plugin with RTLD_LOCAL: no C++ runtime is in the global scope. Argument: its path. */
#include "observe.h"
#include <dlfcn.h>
int main(int argc, char **argv) {
    MUST(argc > 1);
    SAY(dlsym(RTLD_DEFAULT, "__cxa_throw") == NULL);
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            puts(dlerror());
        MUST(library);
        int (*plugin)(size_t) = (int (*)(size_t))dlsym(library, "plugin");
        MUST(plugin);
        SHOW(plugin(opaque(SIZE_MAX / 2 - 100)));
        dlclose(library);
    }
    return 0;
}
