// A C++ plugin for a host that knows nothing of C++.
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

static int handled;
static void handler() {
    if (++handled == 2)
        std::set_new_handler(nullptr);
}
extern "C" int plugin(size_t too_much) {
    std::vector<std::string> texts(1000, std::string(50, 'p'));
    int caught = 0;
    try {
        operator delete(operator new(too_much));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    try {
        operator delete[](operator new[](too_much, std::align_val_t(64)), std::align_val_t(64));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    if (!operator new(too_much, std::nothrow))
        caught++;
    std::set_new_handler(handler);
    try {
        operator delete(operator new(too_much));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    printf("caught %d, handled %d, %zu texts\n", caught, handled, texts.size());
    return caught;
}
