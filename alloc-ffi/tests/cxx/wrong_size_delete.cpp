// A program whose sized deletes state wrong sizes has always run well: base classes without a virtual destructor.
#include "../c/observe.h"
#include <new>
#include <vector>

struct Base {
    int value = 1;
};
struct Derived : Base {
    char more[500];
};

int main() {
    for (int i = 0; i < 10000; i++) {
        Base *wrong = new Derived;
        operator delete(wrong, sizeof(Base));
        operator delete(operator new(16), size_t(100000));
        operator delete(operator new(100000), size_t(16));
        operator delete[](operator new[](3000), size_t(1));
        operator delete(operator new(1000, std::align_val_t(64)), size_t(8), std::align_val_t(64));
        operator delete(operator new(1000, std::align_val_t(4096)), size_t(2000), std::align_val_t(16));
    }
    std::vector<char *> blocks;
    bool sound = true;
    for (int i = 0; i < 10000; i++) {
        blocks.push_back(static_cast<char *>(operator new(i % 700 + 1)));
        memset(blocks.back(), i, i % 700 + 1);
    }
    for (int i = 0; i < 10000; i++)
        sound = sound && all_bytes(blocks[i], i % 700 + 1, i);
    SAY(sound);
    return 0;
}
