#include "support/faults.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace nexar::test {

Faults& faults() {
    static thread_local Faults of_this_thread;
    return of_this_thread;
}

namespace {

std::atomic<bool> hung{false};

// True: this call fails, with errno set.
bool fails(int error) {
    Faults& f = faults();
    if (!f.counting || ++f.calls != f.fail_at) return false;
    f.failed = true;
    errno = error;
    return true;
}

}  // namespace

HungDisk::HungDisk() {
    hung = true;
}
HungDisk::~HungDisk() {
    hung = false;
    hung.notify_all();
}

}  // namespace nexar::test

// In place of the C library's, for everything in this binary.
extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) {
    if (fd > 2 && nexar::test::fails(ENOSPC)) return -1;
    return syscall(SYS_write, fd, bytes, size);
}

int fsync(int fd) {
    nexar::test::hung.wait(true);
    if (nexar::test::faults().counting) ++nexar::test::faults().fsyncs;
    if (nexar::test::fails(EIO)) return -1;
    return static_cast<int>(syscall(SYS_fsync, fd));
}

int renameat(int from, const char* old_name, int to, const char* new_name) noexcept {
    if (nexar::test::fails(ENOSPC)) return -1;
    return static_cast<int>(syscall(SYS_renameat2, from, old_name, to, new_name, 0));
}
}
