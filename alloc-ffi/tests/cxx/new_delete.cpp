// operator new and delete in all their forms: failure, handlers, nothrow, alignment, sizes.
#include "../c/observe.h"
#include <cstdio>
#include <new>
#include <stdexcept>
#include <vector>

static const size_t TOO_MUCH = SIZE_MAX / 2 - 100;

template <typename F> static void attempt(const char *what, F &&allocate) {
    try {
        void *p = allocate();
        printf("%s: %s\n", what, p ? "a block" : "null");
    } catch (const std::bad_array_new_length &) {
        printf("%s: bad_array_new_length\n", what);
    } catch (const std::bad_alloc &error) {
        printf("%s: bad_alloc, %s\n", what, error.what());
    } catch (const std::exception &error) {
        printf("%s: another exception, %s\n", what, error.what());
    }
    fflush(stdout);
}
static void every_form(size_t size, std::align_val_t align) {
    attempt("new", [=] { return operator new(size); });
    attempt("new[]", [=] { return operator new[](size); });
    attempt("new nothrow", [=] { return operator new(size, std::nothrow); });
    attempt("new[] nothrow", [=] { return operator new[](size, std::nothrow); });
    attempt("new aligned", [=] { return operator new(size, align); });
    attempt("new[] aligned", [=] { return operator new[](size, align); });
    attempt("new aligned nothrow", [=] { return operator new(size, align, std::nothrow); });
    attempt("new[] aligned nothrow", [=] { return operator new[](size, align, std::nothrow); });
}

static int calls;
static void gives_up_after_three() {
    if (++calls == 3)
        std::set_new_handler(nullptr);
}
struct out_of_reach : std::bad_alloc {
    const char *what() const noexcept override { return "the handler's own exception"; }
};
static void throws_its_own() {
    calls++;
    throw out_of_reach();
}
static void handlers() {
    for (auto handler : {gives_up_after_three, throws_its_own}) {
        auto with = [=](const char *what, auto &&allocate) {
            calls = 0;
            std::set_new_handler(handler);
            attempt(what, allocate);
            printf("handler called %d times\n", calls);
            std::set_new_handler(nullptr);
        };
        size_t size = opaque(TOO_MUCH);
        with("new", [=] { return operator new(size); });
        with("new[]", [=] { return operator new[](size); });
        with("new nothrow", [=] { return operator new(size, std::nothrow); });
        with("new[] nothrow", [=] { return operator new[](size, std::nothrow); });
        with("new aligned", [=] { return operator new(size, std::align_val_t(64)); });
        with("new[] aligned", [=] { return operator new[](size, std::align_val_t(64)); });
        with("new aligned nothrow", [=] { return operator new(size, std::align_val_t(64), std::nothrow); });
        with("new[] aligned nothrow", [=] { return operator new[](size, std::align_val_t(64), std::nothrow); });
    }
}

struct alignas(256) Wide {
    char bytes[300];
    static int live;
    Wide() { live++; }
    ~Wide() { live--; }
};
int Wide::live;
struct Throws {
    char bytes[500];
    Throws() { throw std::runtime_error("constructor"); }
};

static void objects() {
    Wide *one = new Wide, *many = new Wide[10];
    SAY(aligned_to(one, 256) && aligned_to(many, 256));
    SHOW(Wide::live);
    delete one;
    delete[] many;
    SHOW(Wide::live);
    attempt("throwing constructor", [] { return static_cast<void *>(new Throws); });
    attempt("negative length", [] { return static_cast<void *>(new int[opaque(SIZE_MAX / 8)]); });
    attempt("vector", [] {
        std::vector<char> v(opaque(SIZE_MAX / 2 - 1000));
        return static_cast<void *>(v.data());
    });
    operator delete(nullptr);
    operator delete[](nullptr);
    operator delete(nullptr, std::nothrow);
    operator delete(nullptr, std::align_val_t(64));
    operator delete(nullptr, size_t(100));
    void *zero = operator new(0), *another = operator new(0), *array = operator new[](0);
    SAY(zero && another && array && zero != another && another != array);
    operator delete(zero), operator delete(another, size_t(0)), operator delete[](array);
}

static void every_delete() {
    int made = 0, aligned = 0;
    for (size_t size = 1; size < 2000000; size = size * 3 + 1) {
        auto ask = [&](void *p, size_t align) {
            MUST(p);
            memset(p, 1, size);
            made++;
            aligned += aligned_to(p, align) || size < align;
            return p;
        };
        auto a = std::align_val_t(128);
        operator delete(ask(operator new(size), 16));
        operator delete(ask(operator new(size), 16), size);
        operator delete[](ask(operator new[](size), 16));
        operator delete[](ask(operator new[](size), 16), size);
        operator delete(ask(operator new(size, std::nothrow), 16), std::nothrow);
        operator delete[](ask(operator new[](size, std::nothrow), 16), std::nothrow);
        operator delete(ask(operator new(size, a), 128), a);
        operator delete(ask(operator new(size, a), 128), size, a);
        operator delete[](ask(operator new[](size, a), 128), a);
        operator delete[](ask(operator new[](size, a), 128), size, a);
        operator delete(ask(operator new(size, a, std::nothrow), 128), a, std::nothrow);
        operator delete[](ask(operator new[](size, a, std::nothrow), 128), a, std::nothrow);
    }
    SHOW(made);
    SAY(made == aligned);
}

int main() {
    every_form(opaque(TOO_MUCH), std::align_val_t(64));
    every_form(opaque(SIZE_MAX), std::align_val_t(4096));
    every_form(opaque(1000), std::align_val_t(64));
    every_form(opaque(1000), std::align_val_t(48));
    every_form(opaque(1000), std::align_val_t(0));
    handlers();
    objects();
    every_delete();
    ERRNO_AFTER(operator delete(operator new(100)));
    return 0;
}
