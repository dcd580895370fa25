// Static and thread-local destructors, exit handlers and quick exits allocate and free, in any order.
#include "../c/observe.h"
#include <map>
#include <string>
#include <thread>
#include <vector>

struct Noisy {
    const char *name;
    std::vector<std::string> held;
    explicit Noisy(const char *n) : name(n), held(100, std::string(n) + " with a text too long for the small buffer") {}
    ~Noisy() {
        std::map<int, std::string> late;
        for (int i = 0; i < 100; i++)
            late[i] = std::string(200, 'x');
        held.clear();
        printf("destroyed %s %zu\n", name, late.size());
    }
};
static Noisy first("first");
static std::string *leaked = new std::string(1000, 'l');
static thread_local Noisy per_thread("per thread");

static void at_exit() {
    std::string late(5000, 'e');
    delete leaked;
    printf("at exit %zu\n", late.size());
}
int main() {
    static Noisy local("local");
    atexit(at_exit);
    std::thread([] { printf("%zu\n", per_thread.held.size()); }).join();
    printf("%zu\n", per_thread.held.size());
    on_exit([](int, void *p) { free(p); }, malloc(10000));
    return 0;
}
