#include "engine/staging.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::engine {

const Staging::Member* Staging::find(uint32_t rank) const {
    const auto it = std::ranges::find(members_, rank, &Member::rank);
    return it == members_.end() ? nullptr : &*it;
}

Staging::Member* Staging::find(uint32_t rank) {
    return const_cast<Member*>(std::as_const(*this).find(rank));
}

bool Staging::on_progress(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
    for (Member& member : members_) {
        if (member.session != session || member.ticket != ticket) continue;
        member.filled = std::max(member.filled, std::min(filled, member.segments));
        member.taken = std::max(member.taken, std::min(taken, member.segments));
        open_gates();
        return true;
    }
    return false;
}

void Staging::leave(uint32_t rank) {
    Member* member = find(rank);
    if (member == nullptr) return;
    member->has_left = true;
    open_gates();
}

void Staging::begin(uint32_t lanes) {
    gates_.resize(lanes);
    for (uint32_t lane = 0; lane < lanes; ++lane) next_of_lane_.push_back(lane);
}

// [S12]: the segment's input is in its window, and the output window's last content was taken. For every
// count of a client, and after its end, no two segments are in one window: a segment begins at most one row
// of windows after the finished ones.
bool Staging::may_begin(const Member& member, uint32_t segment) const {
    const bool filled = !member.stage.in || member.filled > segment || sabotaged_;
    const uint64_t taken = member.has_left ? segments_ended_ : std::min(member.taken, segments_ended_);
    return filled && (!member.stage.out || segment < taken + member.stage.windows);
}

bool Staging::may_begin(uint32_t segment) const {
    return std::ranges::all_of(members_, [&](const Member& m) { return may_begin(m, segment); });
}

Op& Staging::gate(uint32_t lane, uint32_t segment) {
    gates_[lane] = std::make_unique<Gate>();
    Gate& gate = *gates_[lane];
    gate.segment = segment;
    if (failed_)
        gate.op.finish(std::unexpected(*failed_));
    else if (may_begin(segment))
        gate.op.finish();
    return gate.op;
}

void Staging::open_gates() {
    for (const auto& gate : gates_)
        if (gate && !gate->op.done() && may_begin(gate->segment)) gate->op.finish();
}

void Staging::fail(const Error& error) {
    failed_ = error;
    for (const auto& gate : gates_)
        if (gate && !gate->op.done()) gate->op.finish(std::unexpected(error));
}

bool Staging::end_segment(uint32_t segment) {
    const uint32_t before = segments_ended_;
    const auto lanes = static_cast<uint32_t>(next_of_lane_.size());
    NEXAR_CHECK(next_of_lane_[segment % lanes] == segment);
    next_of_lane_[segment % lanes] += lanes;
    while (next_of_lane_[segments_ended_ % lanes] > segments_ended_) ++segments_ended_;
    if (segments_ended_ == before) return false;
    open_gates();
    return true;
}

bool Staging::waits_for(uint32_t rank) const {
    const Member* member = find(rank);
    if (member == nullptr || failed_) return false;
    return std::ranges::any_of(gates_, [&](const auto& gate) {
        // The windows of a later segment are still in use, so this rank does not delay it.
        return gate && !gate->op.done() &&
               gate->segment < uint64_t{segments_ended_} + member->stage.windows &&
               !may_begin(*member, gate->segment);
    });
}

}  // namespace nexar::engine
