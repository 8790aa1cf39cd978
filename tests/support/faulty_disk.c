/* Preloaded into a nexard: write, fsync and rename in its state directory wait and fail as a test wants it.
 * FAULTY_DISK_UNDER is the directory, FAULTY_DISK a file with the words of struct control, which the test has
 * mapped as well (tests/integration/harness/faulty_disk.py). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control {
    _Atomic uint32_t calls;      /* so far */
    _Atomic uint32_t fail_from;  /* the number of the first call that fails, from 1; 0: none */
    _Atomic uint32_t fail_count; /* so many do */
    _Atomic uint32_t error;      /* with this errno */
    _Atomic uint32_t failed;     /* so far */
    _Atomic uint32_t delay_ms;   /* of each fsync */
};

static struct control* control;
static const char* under;

__attribute__((constructor)) static void map_control(void) {
    const char* path = getenv("FAULTY_DISK");
    under = getenv("FAULTY_DISK_UNDER");
    if (!path || !under) return;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) abort();
    close(fd);
}

static int is_there(int fd) {
    struct stat s;
    char link[64], path[4096];
    if (!control || fstat(fd, &s) != 0 || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strncmp(path, under, strlen(under)) == 0;
}

static int fails(void) {
    const uint32_t number = atomic_fetch_add(&control->calls, 1) + 1, from = control->fail_from;
    if (from == 0 || number < from || number - from >= control->fail_count) return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = (int)control->error;
    return 1;
}

#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t write(int fd, const void* bytes, size_t size) {
    if (is_there(fd) && fails()) return -1;
    return syscall(SYS_write, fd, bytes, size);
}

EXPORTED int fsync(int fd) {
    if (is_there(fd)) {
        const uint32_t ms = control->delay_ms;
        const struct timespec delay = {ms / 1000, (long)(ms % 1000) * 1000000};
        if (ms) nanosleep(&delay, NULL); /* sleep: what a slow disk takes */
        if (fails()) return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

EXPORTED int renameat(int from, const char* old_name, int to, const char* new_name) {
    if (is_there(to) && fails()) return -1;
    return (int)syscall(SYS_renameat2, from, old_name, to, new_name, 0);
}
