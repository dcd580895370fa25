/* errno is untouched by every success and every free. With the argument "refuse", the kernel refuses madvise and
   munmap, so that giving memory back fails inside free. */
#include "observe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void refuse_to_take_back(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1)
        refuse_to_take_back();
    int kept = 1;
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size <= (size_t)64 << 20; size += size / 3 + 1) {
            void *blocks[6];
            errno = 123;
            blocks[0] = malloc(size);
            blocks[1] = calloc(1, size);
            blocks[2] = memalign(256, size);
            MUST(posix_memalign(&blocks[3], 4096, size) == 0);
            blocks[4] = realloc(malloc(size / 2 + 1), size);
            blocks[5] = aligned_alloc(64, size);
            kept &= errno == 123;
            for (int i = 0; i < 6; i++) {
                MUST(blocks[i]);
                memset(blocks[i], i, size < 100000 ? size : 100000);
                kept &= errno == 123;
                malloc_usable_size(blocks[i]);
            }
            for (int i = 0; i < 6; i++)
                free(blocks[i]);
            kept &= errno == 123;
            if (!kept)
                break;
        }
        /* Many at once, so that whole pages go back. */
        static void *many[20000];
        for (int i = 0; i < 20000; i++)
            many[i] = malloc(1000);
        errno = 123;
        for (int i = 0; i < 20000; i++)
            free(many[i]);
        kept &= errno == 123;
    }
    SAY(kept);
    /* Blocks are still sound, and zeroed memory is zero, whatever the kernel refused. */
    for (size_t size = 1000; size < (size_t)32 << 20; size *= 2) {
        unsigned char *a = malloc(size);
        memset(a, 0xee, size);
        free(a);
        unsigned char *b = calloc(1, size);
        printf("calloc %zu zero: %d\n", size, all_bytes(b, size, 0));
        free(b);
    }
    return 0;
}
