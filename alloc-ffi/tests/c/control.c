/* Every function of stratalloc.h and of the other allocators' interfaces that we offer, found and called. */
#include "observe.h"
#include <stratalloc.h>

/* gperftools' and jemalloc's, as their headers declare them. */
int MallocExtension_GetNumericProperty(const char *property, size_t *value);
int MallocExtension_SetNumericProperty(const char *property, size_t value);
void MallocExtension_GetStats(char *buffer, int length);
void MallocExtension_ReleaseFreeMemory(void);
int MallocExtension_VerifyAllMemory(void);
size_t MallocExtension_GetAllocatedSize(const void *p);
int mallctl(const char *name, void *old, size_t *old_len, void *new_value, size_t new_len);

static void renderings(void) {
    for (int format = STRATALLOC_TEXT; format <= STRATALLOC_PROMETHEUS; format++) {
        size_t len = stratalloc_stats(format, NULL, 0);
        SAY(len > 200);
        char *text = malloc(len + 4096);
        memset(text, '#', len + 4096);
        size_t again = stratalloc_stats(format, text, len + 4096);
        SAY(strlen(text) == again);
        char small[50];
        memset(small, '#', sizeof small);
        SAY(stratalloc_stats(format, small, 20) > 19);
        SAY(small[19] == 0 && strlen(small) == 19 && small[20] == '#');
        if (format == STRATALLOC_JSON)
            SAY(text[0] == '{' && strchr(text, '}'));
        if (format == STRATALLOC_PROMETHEUS)
            SAY(strstr(text, "\ngeneric_current_allocated_bytes "));
        free(text);
    }
    char untouched = '#';
    SHOW(stratalloc_stats(77, &untouched, 0));
    SAY(untouched == '#');
}

static void numbers(void) {
    uint64_t before = 0, after = 0, none = 5;
    SHOW(stratalloc_property("generic.current_allocated_bytes", &before));
    char *p = malloc(5000000);
    memset(p, 1, 5000000);
    SHOW(stratalloc_property("generic.current_allocated_bytes", &after));
    SAY(after >= before + 5000000);
    SHOW(stratalloc_property("generic.no_such_thing", &none) == ENOENT && none == 5);
    size_t value = 0, len = sizeof value;
    SHOW(MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &value));
    SAY(value >= 5000000);
    SHOW(MallocExtension_GetNumericProperty("nothing", &value));
    SHOW(mallctl("stats.allocated", &value, &len, NULL, 0));
    SAY(value >= 5000000);
    SAY(MallocExtension_GetAllocatedSize(p) >= 5000000);
    char buffer[8192];
    MallocExtension_GetStats(buffer, sizeof buffer);
    SAY(strlen(buffer) > 100);
    free(p);
}

static void addresses(void) {
    char on_stack, *p = malloc(10), *q = malloc(10000000);
    SAY(stratalloc_owns(p) && stratalloc_owns(q));
    SAY(!stratalloc_owns(NULL) && !stratalloc_owns(&on_stack) && !stratalloc_owns((void *)addresses));
    free(p), free(q);
}

static void settings(void) {
    char value[100];
    int error = 7;
    SHOW(stratalloc_get("check", value, sizeof value, &error));
    puts(value);
    SHOW(error);
    SHOW(stratalloc_get("backend", value, sizeof value, NULL));
    puts(value);
    SHOW(stratalloc_get("no_such_key", value, sizeof value, &error));
    SAY(error == ENOENT && value[0] == 0);
}

static void changes(void) {
    char value[100];
    SHOW(stratalloc_set("no_such_key", "1"));
    SHOW(stratalloc_set("hard_limit", "a lot"));
    SHOW(stratalloc_set("backend", "huge"));
    SHOW(stratalloc_set("background_thread", "false"));
    stratalloc_get("hard_limit", value, sizeof value, NULL);
    SAY(strcmp(value, "0") == 0);
    SHOW(stratalloc_set("hard_limit", "64MiB"));
    stratalloc_get("hard_limit", value, sizeof value, NULL);
    SAY(strcmp(value, "64MiB") == 0);
    void *too_much = malloc((size_t)100 << 20);
    SAY(too_much == NULL && errno == ENOMEM);
    errno = 123;
    SHOW(stratalloc_set("hard_limit", "0"));
    too_much = malloc((size_t)100 << 20);
    SAY(too_much != NULL);
    free(too_much);
    SHOW(stratalloc_set("release_delay", "0"));
    SHOW(stratalloc_set("release_delay", "never"));
    SHOW(stratalloc_set("foreign", "ignore"));
    free(hide(value + 16));
    SHOW(stratalloc_set("foreign", "report"));
    SHOW(MallocExtension_SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 1 << 20));
    stratalloc_get("max_total_thread_cache_bytes", value, sizeof value, NULL);
    SAY(strcmp(value, "1MiB") == 0);
    SHOW(MallocExtension_SetNumericProperty("nothing", 1));
}

int main(void) {
    SAY(strncmp(stratalloc_version(), "stratalloc ", 11) == 0);
    ERRNO_AFTER(renderings());
    ERRNO_AFTER(numbers());
    ERRNO_AFTER(addresses());
    ERRNO_AFTER(settings());
    ERRNO_AFTER(changes());
    ERRNO_AFTER(SHOW(stratalloc_check()));
    SHOW(MallocExtension_VerifyAllMemory());
    ERRNO_AFTER(stratalloc_release());
    MallocExtension_ReleaseFreeMemory();
    SHOW(stratalloc_check());
    return 0;
}
