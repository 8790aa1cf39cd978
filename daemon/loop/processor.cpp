#include "loop/processor.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "loop/loop.hpp"

namespace nexar::loop {

namespace {

struct Attributes {  // of sched_setattr(2); glibc has it from 2.41 on
    uint32_t size = sizeof(Attributes), policy = 0;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0, deadline = 0, period = 0;
};
static_assert(sizeof(Attributes) == 48);  // its first version

bool read_own(Attributes& out) {
    return ::syscall(SYS_sched_getattr, 0, &out, sizeof out, 0) == 0;
}

}  // namespace

// Kernels without the choice ignore the time of an ordinary thread: so it is read again.
bool set_slice(Duration slice) {
    Attributes own;
    if (!read_own(own) || (own.policy != SCHED_OTHER && own.policy != SCHED_BATCH)) return false;
    const auto wanted = static_cast<uint64_t>(slice.count());
    own.size = sizeof own;
    own.flags = 0;
    own.runtime = wanted;
    if (::syscall(SYS_sched_setattr, 0, &own, 0) != 0 || !read_own(own)) return false;
    return wanted == 0 ? own.runtime != 0 : own.runtime == wanted;
}

bool yield(Yields& yields, Time& now) {
    if (!yields.pays(now)) return false;
    const Time began = now;
    ::sched_yield();
    now = Loop::now();
    return yields.ended(began, now);
}

}  // namespace nexar::loop
