/* Prints which library answers, for the test that the preload is in effect. */
#include "observe.h"
#include <dlfcn.h>
int main(void) {
    const char *names[] = {"malloc", "free", "pthread_create", "_Znwm", "mallinfo2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Dl_info info = {0};
        void *function = dlsym(RTLD_DEFAULT, names[i]);
        MUST(function && dladdr(function, &info));
        const char *slash = strrchr(info.dli_fname, '/');
        printf("%s in %s\n", names[i], slash ? slash + 1 : info.dli_fname);
    }
    const char *(*version)(int *, int *, const char **) = dlsym(RTLD_DEFAULT, "tc_version");
    int major = -1, minor = -1;
    const char *patch = NULL;
    MUST(version);
    printf("tc_version %s", version(&major, &minor, &patch));
    printf(" %d %d \"%s\" %s\n", major, minor, patch, version(NULL, NULL, NULL));
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    const char *text = NULL;
    size_t len = sizeof text;
    MUST(mallctl && mallctl("version", &text, &len, NULL, 0) == 0);
    printf("mallctl %s\n", text);
    return 0;
}
