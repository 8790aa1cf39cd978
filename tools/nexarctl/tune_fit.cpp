// See tune_fit.hpp.
#include "nexarctl/tune_fit.hpp"

#include <algorithm>
#include <cmath>

#include "collectives/tuning.hpp"
#include "core/features.hpp"

namespace nexarctl {

using nexar::Class;
using nexar::collectives::CostModel;
using nexar::collectives::LinkCost;
using nexar::collectives::picoseconds;

namespace {

// Of a raced size, times the quicker algorithm: more than that is a lost packet, and one size of many.
constexpr double lost_at_most = 2;
constexpr double rounding = 1e-9;  // sums of equal ratios are equal
// Of the quicker one's time: two races of the same hosts differ by as much.
constexpr double undecided = 0.03;

// value / count, as a parameter.
uint32_t each(uint64_t value, uint64_t count, uint32_t most) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(value / std::max<uint64_t>(1, count), 1, most));
}

uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

// What operations take besides their starts is the beginning, between hosts, which every candidate has.
uint32_t small_start(const Times& times) {
    const Timed &few = times.small_scatter, &many = times.small_steps, &all = times.small_short;
    const uint64_t whole = less(all.ns, times.host_ns) / std::max<uint64_t>(1, all.terms.starts);
    const uint64_t more = less(many.terms.starts, few.terms.starts);
    const uint64_t found = more > 0 ? less(many.ns, few.ns) / more : whole;
    return each(std::clamp(found, whole / 8, whole), 1, nexar::collectives::start_ns_max);
}

// What the hosts share shows when more of them send at the same time.
uint32_t shared(const Times& times, uint32_t nodes) {
    const uint64_t more_ns = std::min<uint64_t>(less(times.shift_ns, times.pair_ns), UINT64_MAX / 1000);
    return each(more_ns * 1000, (nodes - 2) * times.shift_bytes, nexar::collectives::ps_per_byte_max);
}

// What a long operation takes beyond everything that is known.
uint32_t per_byte(const Timed& timed, uint64_t begin_ns, CostModel model, Class cls) {
    LinkCost& link = cls == Class::bulk ? model.bulk : model.small;
    link.ps_per_byte = 0;
    const uint64_t total_ns = std::min<uint64_t>(less(timed.ns, begin_ns), UINT64_MAX / 1000);
    return each(less(total_ns * 1000, picoseconds(timed.terms, model, cls)), timed.terms.wire_bytes,
                nexar::collectives::ps_per_byte_max);
}

}  // namespace

CostModel fit(const Times& times, uint32_t nodes) {
    CostModel out;
    out.memory_ps_per_byte = std::clamp<uint32_t>(times.memory_ps, 1, nexar::collectives::ps_per_byte_max);
    out.shared_ps_per_byte = nodes > 2 ? shared(times, nodes) : 1;
    out.small.start_ns = small_start(times);
    const uint64_t starts = times.small_short.terms.starts;
    const uint64_t begin_ns = less(times.small_short.ns, starts * out.small.start_ns);
    out.bulk.start_ns = each(less(times.bulk_short.ns, begin_ns), times.bulk_short.terms.starts,
                             nexar::collectives::start_ns_max);
    out.small.ps_per_byte = per_byte(times.small_long, begin_ns, out, Class::small);
    out.bulk.ps_per_byte = per_byte(times.bulk_long, begin_ns, out, Class::bulk);
    return out;
}

uint32_t doubling_limit(std::span<const Raced> sizes, uint32_t nodes) {
    if (sizes.empty()) return 0;
    const auto lost = [](uint64_t taken, const Raced& each) {
        const auto quicker = static_cast<double>(std::min(each.doubling_ns, each.ring_ns));
        return std::min(static_cast<double>(taken) / quicker, lost_at_most);
    };
    double least = 0;
    for (const Raced& each : sizes) least += lost(each.ring_ns, each);  // the ring for all
    double total = least;
    uint64_t limit = sizes.front().bytes / 2;
    for (const Raced& each : sizes) {
        const double more = lost(each.doubling_ns, each) - lost(each.ring_ns, each);
        if (std::abs(more) > undecided + rounding) total += more;
        if (total < least - rounding) least = total, limit = each.bytes;
    }
    const uint64_t kept = nodes == 2 ? limit / nexar::doubling_of_two_hosts : limit;
    return static_cast<uint32_t>(std::clamp<uint64_t>(kept, 1, nexar::collectives::doubling_bytes_most));
}

}  // namespace nexarctl
