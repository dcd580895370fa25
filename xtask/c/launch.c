// Runs a command from a process that is itself small, and writes what the command took to a file.
//
//     launch FILE COMMAND [ARGS...]
//
// A process keeps the peak resident set of its parent from the time of fork until exec, so a big parent hides
// the peak of a small program. This one is linked statically: LD_PRELOAD acts on COMMAND alone.
// FILE gets "PEAK_KIB MINOR_FAULTS WALL USER SYSTEM" of COMMAND and all descendants that were waited for, times in
// microseconds.
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long micros(struct timeval time)
{
    return time.tv_sec * 1000000L + time.tv_usec;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 125;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child < 0)
        return 125;
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    signal(SIGTERM, SIG_IGN);
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child)
        return 125;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long wall = (end.tv_sec - start.tv_sec) * 1000000L + (end.tv_nsec - start.tv_nsec) / 1000;
    FILE *file = fopen(argv[1], "w");
    if (!file)
        return 125;
    fprintf(file, "%ld %ld %ld %ld %ld\n", usage.ru_maxrss, usage.ru_minflt, wall, micros(usage.ru_utime),
            micros(usage.ru_stime));
    if (fclose(file) != 0)
        return 125;
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}
