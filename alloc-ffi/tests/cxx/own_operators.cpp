// A program that replaces the two plain operators alone, with blocks that are no allocator's starts. The standard lets it:
// every other form goes through these two.
#include "../c/observe.h"
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

static long made, unmade, wrong;
static const uint64_t MARK = 0x5eed5eed5eed5eedu;

void *operator new(size_t size) {
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    auto *block = size > SIZE_MAX / 2 ? nullptr : static_cast<uint64_t *>(malloc(size + 16));
    if (!block)
        throw std::bad_alloc();
    *block = MARK;
    return block + 2;
}
void operator delete(void *pointer) noexcept {
    if (!pointer)
        return;
    __atomic_add_fetch(&unmade, 1, __ATOMIC_RELAXED);
    auto *block = static_cast<uint64_t *>(pointer) - 2;
    if (*block != MARK)
        __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    *block = 0;
    free(block);
}

struct Thing {
    virtual ~Thing() {}
    char bytes[100];
};
struct alignas(128) Wide {
    char bytes[200];
};

static void balance(const char *what) {
    printf("%s: made %ld, unmade %ld, wrong %ld\n", what, made, unmade, wrong);
    fflush(stdout);
}

int main() {
    made = unmade = 0;
    delete new Thing;
    balance("plain");
    delete[] new Thing[5];
    balance("array");
    delete new (std::nothrow) Thing;
    balance("nothrow");
    delete[] new (std::nothrow) Thing[5];
    balance("nothrow array");
    operator delete(operator new(50), size_t(50));
    balance("sized");
    operator delete[](operator new[](50), size_t(50));
    balance("sized array");
    operator delete(operator new(50, std::nothrow), std::nothrow);
    operator delete[](operator new[](50, std::nothrow), std::nothrow);
    balance("nothrow delete");
    for (int i = 0; i < 100; i++) {
        delete new Wide;
        delete[] new Wide[3];
        delete new (std::nothrow) Wide;
        delete[] new (std::nothrow) Wide[3];
    }
    balance("aligned");
    {
        std::vector<std::string> texts;
        for (int i = 0; i < 100; i++)
            texts.push_back(std::string(i, 'x') + std::to_string(i));
        auto shared = std::make_shared<Thing>();
        auto array = std::make_unique<int[]>(1000);
    }
    balance("library");
    SAY(operator new(opaque(SIZE_MAX - 100), std::nothrow) == nullptr);
    SAY(operator new[](opaque(SIZE_MAX - 100), std::nothrow) == nullptr);
    std::thread([] { delete[] new (std::nothrow) char[100000]; }).join();
    SAY(made == unmade + 2 && wrong == 0);
    return 0;
}
