// Exceptions, pthread_exit and cancellation unwind threads made through the interposed pthread_create.
#include "../c/observe.h"
#include <exception>
#include <future>
#include <pthread.h>
#include <semaphore.h>
#include <string>
#include <thread>
#include <vector>

static int destroyed;
static sem_t ready;
struct Counts {
    std::string text = std::string(100, 't');
    ~Counts() { __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED); }
};
static void *leaves(void *) {
    Counts counts;
    pthread_exit(nullptr);
}
static void *waits(void *) {
    Counts counts;
    sem_post(&ready);
    for (;;)
        pause();
}
static void *terminates(void *) {
    std::set_terminate([] {
        try {
            std::rethrow_exception(std::current_exception());
        } catch (const std::exception &error) {
            printf("terminate: %s\n", error.what());
            fflush(stdout);
            _exit(5);
        }
    });
    throw std::runtime_error("nobody catches it");
}

int main() {
    sem_init(&ready, 0, 0);
    for (int i = 0; i < 20; i++) {
        pthread_t a, b;
        MUST(pthread_create(&a, nullptr, leaves, nullptr) == 0);
        MUST(pthread_create(&b, nullptr, waits, nullptr) == 0);
        sem_wait(&ready);
        pthread_cancel(b);
        pthread_join(a, nullptr);
        pthread_join(b, nullptr);
    }
    SHOW(destroyed);
    std::vector<std::future<std::string>> futures;
    for (int i = 0; i < 20; i++)
        futures.push_back(std::async(std::launch::async, [i]() -> std::string {
            if (i % 2)
                throw std::runtime_error("number " + std::to_string(i));
            return std::string(1000, 'a' + i);
        }));
    for (auto &future : futures) {
        try {
            printf("%zu\n", future.get().size());
        } catch (const std::exception &error) {
            puts(error.what());
        }
    }
    fflush(stdout);
    pthread_t c;
    MUST(pthread_create(&c, nullptr, terminates, nullptr) == 0);
    pthread_join(c, nullptr);
    return 0;
}
