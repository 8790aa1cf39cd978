// Group: its end. Failures go to the agreement (membership/group_lifecycle), which freezes the group and cuts
// it here.
#include <algorithm>

#include "core/check.hpp"
#include "engine/group.hpp"
#include "membership/failure_texts.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

// The cut's error names the first lost rank. Other ranks may have been lost since.
Error Group::explained(Error error) const {
    error = facts.explained(std::move(error));
    if (error.code != Errc::peer_lost) return error;
    for (uint32_t rank = 0; rank < facts.size(); ++rank)
        if (is_lost(rank)) error.lost_ranks.push_back(rank);
    std::ranges::sort(error.lost_ranks);
    const auto twice = std::ranges::unique(error.lost_ranks);
    error.lost_ranks.erase(twice.begin(), twice.end());
    return error;
}

bool Group::is_failed(uint32_t rank) const {
    if (const auto it = departed_.find(rank); it != departed_.end()) return it->second.crashed;
    return lifecycle_.excludes(facts.layout.node_of(rank).value);
}

bool Group::is_lost(uint32_t rank) const {
    if (is_failed(rank)) return true;
    const NodeIndex node = facts.layout.node_of(rank);
    return failed_ && !departed_.contains(rank) && node != facts.self &&
           !host_.reachable(facts.peers[node.value]);
}

// A crashed rank ends the group in any case. A rank that left ends it only if a collective is posted that the
// rank has not handed over: this collective can never complete.
void Group::check_departed() {
    if (failed_ || departed_.empty() || lifecycle_.state() != membership::GroupLifecycle::State::active)
        return;
    const uint64_t mark = departed_handed_over();
    const bool needed = std::ranges::any_of(
        runs_, [&](const auto& entry) { return entry.first >= mark && entry.second->has_posts(); });
    for (const auto& [rank, gone] : departed_)
        if (gone.crashed || (needed && gone.collectives_handed_over == mark))
            return rank_failed(rank, gone.reason);
}

void Group::rank_failed(uint32_t rank, const std::string& reason) {
    const NodeId& node = facts.members[rank].node;
    lifecycle_.on_failure({membership::rank_lost(node, rank, reason), {}}, context_.now);
    drain_agreement();
}

void Group::node_failed(const NodeId& node, const Error& error) {
    const auto at = std::ranges::find(facts.nodes, node);
    if (at == facts.nodes.end()) return;
    lifecycle_.on_failure({error, static_cast<uint32_t>(at - facts.nodes.begin())}, context_.now);
    drain_agreement();
}

void Group::reach_changed(const NodeId& node) {
    lifecycle_.on_reach_changed(context_.now);
    drain_agreement();
    const auto index = index_of(node);
    if (index && !host_.reachable(facts.peers[index->value])) end_messages_with(*index);
}

void Group::link_lost(const NodeId& node) {
    if (const auto index = index_of(node)) end_messages_with(*index);
}

// [G8] After the cut no other event ends a message with this node.
void Group::end_messages_with(NodeIndex node) {
    if (failed_) messages_.end_with_node(node, *failed_);
}

std::optional<NodeIndex> Group::index_of(const NodeId& node) const {
    const auto at = std::ranges::find(facts.nodes, node);
    if (at == facts.nodes.end() || node == facts.nodes[facts.self.value]) return {};
    return NodeIndex(static_cast<uint32_t>(at - facts.nodes.begin()));
}

Result<void> Group::on_agreement(NodeIndex from, const wire::Message& message) {
    Result<void> result = lifecycle_.on_message(from.value, message, context_.now);
    drain_agreement();
    return result;
}

void Group::on_time() {
    lifecycle_.on_time(context_.now);
    drain_agreement();
}

void Group::drain_agreement() {
    while (const auto out = lifecycle_.poll_send()) to_node(NodeIndex(out->to), out->message);
    wake_at(lifecycle_.wake_at());
    if (lifecycle_.excluded().size() == excluded_announced_) return;
    excluded_announced_ = lifecycle_.excluded().size();
    for (const uint32_t node : lifecycle_.excluded()) host_.node_excluded(facts.id, facts.nodes[node]);
}

bool Group::suspects(uint32_t node) const {
    return !host_.reachable(facts.peers[node]);
}

// The collectives that the ranks here have handed over: the posted ones, up to one whose staged input is
// incomplete. Ranks that have left do not count here.
uint64_t Group::handed_over_here() const {
    uint64_t lowest = UINT64_MAX;
    for (const LocalRank& local : local_) {
        if (local.left) continue;
        lowest = std::min(lowest, local.posted);
        for (const auto& [seq, run] : runs_)
            if (!run->has_filled(local.rank)) lowest = std::min(lowest, seq);
    }
    return lowest;
}

uint64_t Group::handed_over() const {
    return std::min(frozen_at_ ? *frozen_at_ : handed_over_here(), departed_handed_over());
}

uint64_t Group::ended_below() const {
    uint64_t lowest = lowest_open_seq();
    for (const auto& [seq, run] : runs_)
        if (!run->is_decided()) lowest = std::min(lowest, seq);
    return lowest;
}

uint64_t Group::progress() const {
    uint64_t out = runs_.size();
    for (const auto& [seq, run] : runs_) out += run->segments_ended();
    return out;
}

void Group::freeze() {
    frozen_at_ = handed_over_here();
}

void Group::run_below(uint64_t seq) {
    run_below_ = seq;
    run_changed();
}

// [G2] Aborts the collectives that have not ended. Below the cut there are none, except on a node that the
// cut excludes.
void Group::cut(const wire::Cut& cut) {
    if (failed_) return;
    failed_ = facts.explained(cut.failed.error);
    host_.group_cut(facts.id, cut.seq, *failed_);
    messages_.cut(*failed_);
    for (uint32_t node = 0; node < facts.nodes.size(); ++node)
        if (NodeIndex(node) != facts.self && !lifecycle_.excludes(node) && suspects(node))
            end_messages_with(NodeIndex(node));
    stop_begun_runs();
    host_.group_ending(facts.id);
}

void Group::abandon(const Error& error) {
    if (failed_) return;
    failed_ = facts.explained(error);
    messages_.fail_all(*failed_);
    size_t all = SIZE_MAX;
    end_some(all);
}

// [Y3] The other nodes, which may have it, end it with this error.
void Group::give_up(const Error& error) {
    if (!failed_) {
        lifecycle_.on_failure({error, {}}, context_.now);
        drain_agreement();
    }
    for (LocalRank& local : local_) leave(local, Leaving::closed, error.text);
}

// At once: one of them might still succeed here. The others cannot begin any more.
void Group::stop_begun_runs() {
    for (auto& [seq, run] : runs_)
        if (run->state() == CollectiveRun::State::running) stop_run(*run);
}

void Group::stop_run(CollectiveRun& run) {
    run.stop(*failed_);
    run.on_local_left();  // no posts follow
}

bool Group::end_some(size_t& left) {
    if (!messages_.end_some(left)) return false;
    if (!failed_) return true;
    auto at = runs_.lower_bound(stopped_below_);
    for (; at != runs_.end() && left > 0; ++at) {
        stop_run(*at->second);
        stopped_below_ = at->first + 1;
        left -= std::min(left, local_.size());
    }
    run_changed();
    return at == runs_.end();
}

void Group::check_invariants() const {
    using State = membership::GroupLifecycle::State;
    lifecycle_.check_invariants();
    messages_.check_invariants();
    NEXAR_CHECK(frozen_at_.has_value() == (lifecycle_.state() != State::active));
    NEXAR_CHECK(failed_.has_value() || lifecycle_.state() != State::ended);
    for (const auto& [seq, run] : runs_) {
        NEXAR_CHECK(run->seq == seq);
        const auto removals = std::ranges::count(ended_, seq);
        NEXAR_CHECK(removals == (run->state() == CollectiveRun::State::ended ? 1 : 0));
        run->check_invariants();
        if (seq < stopped_below_) NEXAR_CHECK(run->state() >= CollectiveRun::State::settled);
    }
    for (const auto& [rank, gone] : departed_) NEXAR_CHECK(rank < facts.size() && gone.rank == rank);
    for (const LocalRank& local : local_) NEXAR_CHECK(local.left == departed_.contains(local.rank));
}

}  // namespace nexar::engine
