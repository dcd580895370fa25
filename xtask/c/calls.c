// One call of the heap's interface in a loop, for counting its instructions.
//
//     calls CALL ROUNDS
//
// Each round takes a block of 64 bytes and frees it. Exit code 4: the heap has no such call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// Hides a value from the optimiser, at no cost.
#define opaque(x) __asm__ volatile("" : "+r"(x))

// operator new(size_t), operator delete(void *), operator delete(void *, size_t).
void *_Znwm(size_t);
void _ZdlPv(void *);
void _ZdlPvm(void *, size_t);

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *call = argv[1];
    long rounds = atol(argv[2]);
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    if (strcmp(call, "free_sized") == 0 && !free_sized)
        return 4;
    int sized = strcmp(call, "free_sized") == 0, zeroed = strcmp(call, "calloc") == 0;
    int again = strcmp(call, "realloc") == 0, operators = strncmp(call, "_Z", 2) == 0;
    int sized_delete = strcmp(call, "_ZdlPvm") == 0;
    for (long r = 0; r < rounds; r++) {
        void *p = operators ? _Znwm(64) : zeroed ? calloc(1, 64) : malloc(64);
        opaque(p);
        if (again)
            p = realloc(p, 60);
        opaque(p);
        if (sized_delete)
            _ZdlPvm(p, 64);
        else if (operators)
            _ZdlPv(p);
        else if (sized)
            free_sized(p, 64);
        else
            free(p);
    }
    return 0;
}
