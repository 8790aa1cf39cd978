#include "engine/arrival_inquiry.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void ArrivalInquiry::begin(Time first_posted, Time deadline) {
    first_posted_ = first_posted;
    deadline_ = deadline;
}

// Later in a larger group: it costs a message to each other node, and so never more than a share of the time.
Time ArrivalInquiry::announce_at() const {
    return first_posted_ + timing_.announce_after + (facts_.nodes.size() - 2) * timing_.announce_each;
}

Time ArrivalInquiry::wake_at() const {
    Time next = expiring_ ? answers_by_ : deadline_;
    if (first_posted_ == never) return next;
    if (!announced_ && !is_alone()) next = std::min(next, announce_at());
    if (late_ == Late::no) next = std::min(next, first_posted_ + timing_.late_after);
    if (late_ == Late::asked)
        next = std::min(next, first_posted_ + timing_.late_after + timing_.arrival_grace);
    if (late_ == Late::logged && !expiring_) next = std::min(next, ask_again_);
    return next;
}

ArrivalInquiry::Due ArrivalInquiry::on_time(Time now) {
    Due due;
    if (first_posted_ != never) {
        const Time late = first_posted_ + timing_.late_after;
        due.announce = !announced_ && !is_alone() && now >= announce_at();
        if (late_ == Late::no && now >= late) {
            late_ = Late::asked;
            due.ask = true;
        }
        if (late_ == Late::asked && now >= late + timing_.arrival_grace) log_late(due);
        if (late_ == Late::logged && !expiring_ && now >= ask_again_) {
            due.ask = true;
            ask_again_ = now + std::min(now - first_posted_, timing_.ask_again_max);
        }
    }
    if (expiring_ && now >= answers_by_) {
        due.expire = true;
    } else if (!expiring_ && now >= deadline_) {
        expiring_ = true;
        for (Answer& answer : answers_) answer.reply.reset();  // they may have arrived since
        answers_by_ = is_alone() ? now : now + timing_.arrival_grace;
        due.ask = !is_alone();
    }
    return due;
}

void ArrivalInquiry::log_late(Due& due) {
    late_ = Late::logged;
    due.log_late = true;
    if (!is_alone()) ask_again_ = first_posted_ + 2 * timing_.late_after;
}

wire::ArrivalQuery ArrivalInquiry::query(uint64_t nonce) {
    NEXAR_CHECK(nonce != 0);
    if (nonce_ == 0) nonce_ = nonce;
    return {facts_.id, facts_.epoch.value, seq_, nonce_};
}

bool ArrivalInquiry::ask(NodeIndex node) {
    if (answers_.empty()) answers_.resize(facts_.nodes.size());
    return !std::exchange(answers_[node.value].asked, true);
}

bool ArrivalInquiry::on_reply(NodeIndex from, const wire::ArrivalReply& reply) {
    if (nonce_ == 0 || reply.nonce != nonce_) return false;
    if (answers_.empty()) answers_.resize(facts_.nodes.size());
    answers_[from.value] = {false, reply};
    return true;
}

ArrivalInquiry::Due ArrivalInquiry::all_answered() {
    Due due;
    if (!silent().empty()) return due;
    if (expiring_)
        due.expire = true;
    else if (late_ == Late::asked)
        log_late(due);
    return due;
}

std::optional<bool> ArrivalInquiry::has_arrived(uint32_t rank) const {
    if (answers_.empty()) return {};
    const auto& reply = answers_[facts_.layout.node_of(rank).value].reply;
    if (!reply) return {};
    const auto at = std::ranges::find(reply->ranks, rank, &wire::Arrival::rank);
    return at != reply->ranks.end() && at->next_seq > seq_;
}

std::vector<uint32_t> ArrivalInquiry::stalled() const {
    std::vector<uint32_t> out;
    for (const Answer& answer : answers_)
        if (answer.reply)
            for (const wire::Arrival& arrival : answer.reply->ranks)
                if (arrival.stalled && arrival.rank < facts_.size()) out.push_back(arrival.rank);
    return out;
}

std::vector<NodeIndex> ArrivalInquiry::silent() const {
    std::vector<NodeIndex> out;
    for (uint32_t node = 0; node < facts_.nodes.size(); ++node)
        if (NodeIndex(node) != facts_.self && (answers_.empty() || !answers_[node].reply))
            out.emplace_back(node);
    return out;
}

std::string names_of(const GroupFacts& facts, const std::vector<uint32_t>& ranks) {
    constexpr size_t named_max = 8;
    std::string out;
    for (size_t i = 0; i < std::min(ranks.size(), named_max); ++i)
        out += (i == 0 ? "" : ", ") + facts.describe(ranks[i]);
    if (ranks.size() > named_max) out += " and " + std::to_string(ranks.size() - named_max) + " more";
    return out;
}

std::string stalled_text(const GroupFacts& facts, const std::vector<uint32_t>& ranks) {
    if (ranks.empty()) return {};
    return names_of(facts, ranks) + (ranks.size() == 1
                                         ? " has not moved its bytes: it must call wait, test or poll"
                                         : " have not moved their bytes: they must call wait, test or poll");
}

}  // namespace nexar::engine
