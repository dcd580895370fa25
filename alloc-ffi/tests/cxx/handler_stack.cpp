// From within a new handler: which objects have a frame on the stack. The allocator must have none, for an
// exception thrown from here must not pass through it.
#include "../c/observe.h"
#include <dlfcn.h>
#include <new>
#include <string>
#include <unwind.h>

static int frames, allocators, reached_main;
int main();

static _Unwind_Reason_Code frame(_Unwind_Context *context, void *) {
    Dl_info info = {};
    void *address = reinterpret_cast<void *>(_Unwind_GetIP(context));
    frames++;
    if (dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, "stratalloc"))
        allocators++;
    if (_Unwind_GetRegionStart(context) == reinterpret_cast<uintptr_t>(&main))
        reached_main = 1;
    return _URC_NO_REASON;
}
static void handler() {
    frames = allocators = reached_main = 0;
    _Unwind_Backtrace(frame, nullptr);
    printf("enough frames: %d, of the allocator: %d, main among them: %d\n", frames >= 3, allocators, reached_main);
    throw std::bad_alloc();
}
int main() {
    size_t size = opaque(SIZE_MAX / 2 - 100);
    std::set_new_handler(handler);
    try {
        operator delete(operator new(size));
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    try {
        operator delete[](operator new[](size));
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    try {
        operator delete(operator new(size, std::align_val_t(64)), std::align_val_t(64));
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    try {
        operator delete[](operator new[](size, std::align_val_t(64)), std::align_val_t(64));
    } catch (const std::bad_alloc &) {
        puts("caught");
    }
    SAY(operator new(size, std::nothrow) == nullptr);
    SAY(operator new[](size, std::nothrow) == nullptr);
    SAY(operator new(size, std::align_val_t(64), std::nothrow) == nullptr);
    SAY(operator new[](size, std::align_val_t(64), std::nothrow) == nullptr);
    return 0;
}
