#include "loop/processor.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "loop/loop.hpp"

namespace nexar::loop {

namespace {

constexpr uint64_t control_slice_ns = 100'000;
constexpr uint64_t reset_on_fork = 1;  // SCHED_FLAG_RESET_ON_FORK

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

// Zero: the kernel's own, which is read again.
bool change(Attributes& own, uint64_t runtime) {
    own.size = sizeof own;
    own.flags &= reset_on_fork;  // without a privilege it cannot be taken away
    own.runtime = runtime;
    return ::syscall(SYS_sched_setattr, 0, &own, 0) == 0 && read_own(own);
}

}  // namespace

// Kernels without the choice ignore the time of an ordinary thread: it is zero when it is read again.
bool set_slice(Slice slice) {
    Attributes own;
    if (!read_own(own) || own.policy != SCHED_OTHER || !change(own, 0) || own.runtime == 0) return false;
    if (slice == Slice::usual) return true;
    const uint64_t wanted = slice == Slice::control ? control_slice_ns : own.runtime + own.runtime / 4;
    return change(own, wanted) && own.runtime == wanted;
}

bool yield(Yields& yields, Time& now) {
    if (!yields.pays(now)) return false;
    const Time began = now;
    ::sched_yield();
    now = Loop::now();
    return yields.ended(began, now);
}

void Courtesy::give_way() {
    Time now = Loop::now();
    loop::yield(yields_, now);
}

bool WaitPolicy::try_slices() {
    return has_choice_ = set_slice(Slice::control) && set_slice(Slice::usual);
}

void WaitPolicy::use(bool short_slice) {
    if (!has_choice_ || is_short_ == short_slice) return;
    is_short_ = short_slice;
    set_slice(short_slice ? Slice::control : Slice::usual);
}

bool WaitPolicy::yield(Time& now, bool may_pay) {
    if (!may_pay) {
        use(true);
        return false;
    }
    if (!yields_.pays(now)) return false;
    const bool was_short = loop::yield(yields_, now);
    use(!was_short);
    return was_short;
}

}  // namespace nexar::loop
