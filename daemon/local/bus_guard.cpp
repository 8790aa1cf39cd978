// See bus_guard.hpp.
#include "local/bus_guard.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <mutex>
#include <vector>

namespace nexar::local {

namespace {

struct Range {
    std::atomic<uintptr_t> begin{0}, end{0}, mapped_end{0};
    std::atomic<size_t> page_size{0};
    std::atomic<bool> faulted{false};
    std::atomic<Faults*> faults{nullptr};
    std::atomic<uint64_t> owner{0};
};
Range ranges[BusGuard::ranges_max];
std::atomic<int> ranges_used{0};
std::atomic<loop::Wakeup*> to_wake{nullptr};
std::mutex registry;
std::vector<int> free_ranges;  // below ranges_used, and not in use
struct sigaction previous;

constexpr uintptr_t replaced_bytes = uintptr_t{2} << 20;

// A part would split the mapping, and the process has as many as it may have. The whole of it splits nothing:
// it takes long, but it ends no daemon.
bool replace_all(const Range& range, int flags) {
    const uintptr_t from = range.begin.load(), to = range.mapped_end.load();
    return ::mmap(reinterpret_cast<void*>(from), to - from, PROT_READ | PROT_WRITE, flags, -1, 0) !=
           MAP_FAILED;
}

// Runs in a signal handler, as repair() does. `address` is in the range.
bool replace(Range& range, uintptr_t address) {
    const uintptr_t unit = std::max<uintptr_t>(range.page_size.load(), replaced_bytes);
    const uintptr_t from = std::max(address / unit * unit, range.begin.load());
    const uintptr_t to = std::min(address / unit * unit + unit, range.end.load());
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void* at = reinterpret_cast<void*>(from);
    if (::mmap(at, to - from, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED &&
        !replace_all(range, flags))
        return false;
    range.faulted.store(true);
    if (Faults* faults = range.faults.load()) faults->note(static_cast<int>(&range - ranges));
    if (loop::Wakeup* sleeper = to_wake.load()) sleeper->notify();
    return true;
}

bool repair(uintptr_t address) {
    const int used = ranges_used.load(std::memory_order_acquire);
    for (int i = 0; i < used; ++i)
        if (address >= ranges[i].begin.load() && address < ranges[i].end.load())
            return replace(ranges[i], address);
    return false;
}

void on_bus_error(int, siginfo_t* info, void*) {
    const int number = errno;
    // Outside all ranges: restore the previous handler and let the instruction fault again.
    if (!repair(reinterpret_cast<uintptr_t>(info->si_addr))) ::sigaction(SIGBUS, &previous, nullptr);
    errno = number;
}

void install() {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &previous);
}

}  // namespace

int BusGuard::watch(MutableBytes memory, size_t beyond, size_t page_size, Faults* faults, uint64_t owner) {
    std::lock_guard lock(registry);
    static const bool installed = (install(), true);
    static_cast<void>(installed);
    const int used = ranges_used.load();
    if (free_ranges.empty() && used == ranges_max) return -1;
    const int at = free_ranges.empty() ? used : free_ranges.back();
    if (at != used) free_ranges.pop_back();
    ranges[at].faulted.store(false);
    ranges[at].page_size.store(page_size);
    ranges[at].faults.store(faults);
    ranges[at].owner.store(owner);
    ranges[at].begin.store(reinterpret_cast<uintptr_t>(memory.data()));
    ranges[at].mapped_end.store(reinterpret_cast<uintptr_t>(memory.data()) + memory.size() + beyond);
    ranges[at].end.store(reinterpret_cast<uintptr_t>(memory.data()) + memory.size());
    if (at == used) ranges_used.store(used + 1, std::memory_order_release);
    return at;
}

void BusGuard::unwatch(int range) {
    std::lock_guard lock(registry);
    ranges[range].end.store(0);
    ranges[range].begin.store(0);
    free_ranges.push_back(range);
}

bool BusGuard::faulted(int range) {
    return ranges[range].faulted.load();
}

void BusGuard::wake_at_faults(loop::Wakeup* sleeper) {
    to_wake.store(sleeper);
}

void Faults::note(int range) {
    ranges_[static_cast<size_t>(range) / 64].fetch_or(uint64_t{1} << range % 64);
    any_.store(true);
}

std::vector<uint64_t> Faults::take() {
    std::vector<uint64_t> out;
    if (!any() || !any_.exchange(false)) return out;
    for (size_t i = 0; i < ranges_.size(); ++i)
        for (uint64_t bits = ranges_[i].exchange(0); bits != 0; bits &= bits - 1)
            out.push_back(ranges[i * 64 + static_cast<size_t>(std::countr_zero(bits))].owner.load());
    return out;
}

}  // namespace nexar::local
