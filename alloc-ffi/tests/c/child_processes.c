/* vfork, posix_spawn, popen, system, daemon-like double forks, and grandchildren, between allocations. */
#include "observe.h"
#include <pthread.h>
#include <spawn.h>

extern char **environ;

static void in_grandchild(int out) {
    if (fork() != 0)
        _exit(0);
    setsid();
    if (fork() != 0)
        _exit(0);
    void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        memset(blocks[i] = malloc(i + 1), 1, i + 1);
    for (int i = 0; i < 1000; i++)
        free(blocks[i]);
    pthread_t thread;
    extern void *allocate(void *);
    pthread_create(&thread, NULL, allocate, NULL);
    void *result;
    pthread_join(thread, &result);
    char *line = strdup(result ? "the daemon lives\n" : "the daemon's thread failed\n");
    ssize_t written = write(out, line, strlen(line));
    _exit(written > 0 ? 0 : 1);
}
void *allocate(void *argument) {
    (void)argument;
    char *p = calloc(1000, 100);
    int zero = all_bytes(p, 100000, 0);
    free(p);
    return zero ? (void *)1 : NULL;
}

int main(void) {
    char *before = strdup("kept across children");
    for (int i = 0; i < 50; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
        char *arguments[] = {"sh", "-c", "exit 7", NULL};
        MUST(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
        MUST(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
        free(malloc(i * 1000));
    }
    FILE *pipe_in = popen("echo from popen; echo second", "r");
    char line[100];
    while (fgets(line, sizeof line, pipe_in))
        fputs(line, stdout);
    SHOW(pclose(pipe_in));
    SHOW(system("exit 3") >> 8);
    int ends[2];
    MUST(pipe(ends) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        in_grandchild(ends[1]);
    close(ends[1]);
    waitpid(pid, NULL, 0);
    ssize_t got = read(ends[0], line, sizeof line - 1);
    line[got < 0 ? 0 : got] = 0;
    fputs(line, stdout);
    /* Parent and child each write their own copy of an old block. */
    char *shared = malloc(3 << 20);
    memset(shared, 'p', 3 << 20);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        memset(shared, 'c', 3 << 20);
        free(before);
        _exit(all_bytes(shared, 3 << 20, 'c') ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    SHOW(status);
    SAY(all_bytes(shared, 3 << 20, 'p'));
    puts(before);
    free(shared), free(before);
    return 0;
}
