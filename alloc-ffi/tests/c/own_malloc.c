/* A program with its own malloc, free, calloc and realloc, and no more: what libc and the preloaded library do on its behalf
   must go through these four. */
#include "observe.h"
#include <pthread.h>
#include <sys/mman.h>

#define MARK 0x0a110c8ed0a110c8u
static char *area;
static size_t used;
static long live, wrong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct head {
    size_t mark, size;
};
static struct head *head_of(void *block) {
    struct head *head = (struct head *)block - 1;
    if ((char *)block < area || (char *)block >= area + used || head->mark != MARK) {
        wrong++;
        return NULL;
    }
    return head;
}
void *malloc(size_t size) {
    pthread_mutex_lock(&lock);
    if (!area)
        area = mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t whole = (size + sizeof(struct head) + 31) / 16 * 16;
    struct head *head = (struct head *)(area + used);
    if (size > (size_t)1 << 28 || used + whole > (size_t)1 << 30) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
    }
    used += whole;
    live++;
    pthread_mutex_unlock(&lock);
    head->mark = MARK, head->size = size;
    return head + 1;
}
void free(void *block) {
    struct head *head = block ? head_of(block) : NULL;
    if (head) {
        head->mark = 0;
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    }
}
void *calloc(size_t count, size_t size) {
    void *block = malloc(count * size);
    return block ? memset(block, 0, count * size) : NULL;
}
void *realloc(void *block, size_t size) {
    void *grown = malloc(size);
    struct head *head = block ? head_of(block) : NULL;
    if (grown && head) {
        memcpy(grown, block, head->size < size ? head->size : size);
        free(block);
    }
    return grown;
}

static void *in_thread(void *text) {
    return strdup(text);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    long before = live;
    char *text = strdup("in our own heap");
    SAY(head_of(text) != NULL);
    text = reallocarray(text, 100, 10);
    SAY(head_of(text) != NULL);
    puts(text);
    SAY(reallocarray(text, SIZE_MAX / 2, 4) == NULL);
    pthread_t thread;
    void *copy;
    MUST(pthread_create(&thread, NULL, in_thread, text) == 0);
    pthread_join(thread, &copy);
    SAY(head_of(copy) != NULL);
    free(copy);
    char *line = NULL;
    size_t room = 0;
    FILE *pipe = popen("echo from a child", "r");
    SHOW(getline(&line, &room, pipe));
    SAY(head_of(line) != NULL);
    fputs(line, stdout);
    SHOW(pclose(pipe));
    free(line), free(text);
    free(realpath("/proc/self", NULL));
    SAY(live - before < 5);
    SHOW(wrong);
    return 0;
}
