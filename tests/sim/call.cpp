// Call: what becomes of an operation's memory at its end.
#include <algorithm>
#include <span>

#include "cluster.hpp"

namespace nexar::sim {
namespace {

constexpr std::byte poison{0xa5};

// Of both sides, with the windows of those that are staged.
template <class Act>
void with_memory(const Call& call, Act act) {
    for (const auto& memory : {call.in, call.out})
        if (memory) act(std::span(*memory));
    if (!call.staged) return;
    for (const StagedMemory::Side* side : {&call.staged->in, &call.staged->out})
        if (side->windows != nullptr) act(std::span(side->windows, side->stride * call.staged->windows));
}

}  // namespace

void Call::end(const engine::Outcome& how, Time now) {
    ended = true;
    outcome = how;
    finished = now;
    if (out) {
        const auto begin = out->begin() + static_cast<ptrdiff_t>(result_at);
        out_at_end.assign(begin, begin + static_cast<ptrdiff_t>(result_bytes));
    }
    if (staged && ok()) staged->take_rest();
    // The root of a broadcast has its result in its input.
    if (staged && !out) out_at_end = staged->out.user.empty() ? staged->in.user : staged->out.user;
    with_memory(*this, [](std::span<std::byte> memory) { std::ranges::fill(memory, poison); });
}

bool Call::is_poisoned() const {
    bool all = true;
    with_memory(*this, [&](std::span<const std::byte> memory) {
        all &= std::ranges::all_of(memory, [](std::byte b) { return b == poison; });
    });
    return all;
}

}  // namespace nexar::sim
