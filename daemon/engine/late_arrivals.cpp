// CollectiveRun: the inquiry while ranks are late.
#include <algorithm>

#include "engine/group.hpp"
#include "engine/timeout_advice.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {
namespace {

std::string join(const std::string& a, const std::string& b) {
    return a + (a.empty() || b.empty() ? "" : "; ") + b;
}

}  // namespace

void CollectiveRun::arm() {
    wake_at(state_ >= State::settled ? never : inquiry_.wake_at());
}

void CollectiveRun::on_time() {
    if (state_ == State::settled) return on_lingering();
    perform(inquiry_.on_time(group_.context().now));
}

void CollectiveRun::perform(const ArrivalInquiry::Due& due) {
    if (due.announce) announce();
    if (due.ask) ask_for_arrivals();
    if (due.log_late) log_late();
    if (due.expire) return expire();
    arm();
}

// A node that has not answered yet is not asked again.
void CollectiveRun::ask_for_arrivals() {
    const GroupFacts& facts = group_.facts;
    if (facts.nodes.size() == 1) return;
    // The room for the first query was reserved with the operation.
    if (inquiry_.has_asked() && !room_.reserve_more(query_room)) return;
    const std::vector<std::byte> query = wire::encode(inquiry_.query(group_.arrival_nonce(seq)));
    const auto account = room_.spend(query.size());
    for (uint32_t node = 0; node < facts.nodes.size(); ++node) {
        if (node == facts.self.value) continue;
        if (inquiry_.ask(collectives::NodeIndex(node)))
            group_.context().ports.peers.append(facts.peers[node], query, account);
        else if (account)
            room_.refund(node, query.size());
    }
}

void CollectiveRun::on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply) {
    if (is_stopped() || !has_posts() || !inquiry_.on_reply(from, reply)) return;
    if (state_ != State::settled) perform(inquiry_.all_answered());
}

void CollectiveRun::log_late() {
    const GroupFacts& facts = group_.facts;
    group_.context().ports.log.warn(
        group_.tenant(), group_.context().now, "collective_late",
        {field("group", facts.id), field("name", facts.name), field("seq", seq),
         field("what", gathering_.descriptor()->text()),
         field("waits_for", join(names_of(facts, missing()), stalled_text(facts, stalled())))});
}

void CollectiveRun::expire() {
    const GroupFacts& facts = group_.facts;
    expired_at_ = group_.context().now;
    const std::vector<uint32_t> late = missing(), slow = stalled();
    std::string silent;
    for (const collectives::NodeIndex node : inquiry_.silent())
        silent += (silent.empty() ? "no answer from node " : ", ") + facts.nodes[node.value].short_hex();
    std::string why = late.empty() ? "" : "not arrived: " + names_of(facts, late);
    why = join(join(why, stalled_text(facts, slow)), silent);
    if (why.empty()) why = "all ranks have arrived, the data is stuck between their nodes";
    Error error{Errc::aborted,
                gathering_.descriptor()->text() + " did not finish within " +
                    std::to_string(to_ms(gathering_.timeout())) + " ms, the deadline of rank " +
                    std::to_string(gathering_.timeout_rank()) + " (" +
                    timeout_advice(gathering_.descriptor()->kind) + "): " + why,
                -1,
                -1,
                {}};
    if (!late.empty() || !slow.empty()) {
        const uint32_t rank = late.empty() ? slow.front() : late.front();
        error.rank = rank;
        error.node = facts.members[rank].node.hex();
    }
    group_.abort(seq, error);
}

bool CollectiveRun::has_arrived(uint32_t rank) const {
    if (group_.facts.layout.node_of(rank) != group_.facts.self) {
        if (const auto gone = group_.departed().find(rank); gone != group_.departed().end())
            return gone->second.collectives_handed_over > seq;
        if (const auto answer = inquiry_.has_arrived(rank)) return *answer;
    }
    return gathering_.has_posted(rank);
}

// A rank of another node counts as missing only once its node has answered.
bool CollectiveRun::is_missing(uint32_t rank) const {
    const bool known =
        group_.facts.layout.node_of(rank) == group_.facts.self || inquiry_.has_arrived(rank).has_value();
    return known && !has_arrived(rank);
}

std::vector<uint32_t> CollectiveRun::missing() const {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < group_.facts.size(); ++rank)
        if (is_missing(rank)) out.push_back(rank);
    return out;
}

std::vector<uint32_t> CollectiveRun::stalled_here() const {
    std::vector<uint32_t> out;
    for (const LocalRank& local : group_.locals())
        if (waits_for_bytes_of(local.rank)) out.push_back(local.rank);
    return out;
}

// Ranks whose bytes a segment waits for: of this node, and of nodes that have answered.
std::vector<uint32_t> CollectiveRun::stalled() const {
    std::vector<uint32_t> out = stalled_here();
    std::ranges::copy(inquiry_.stalled(), std::back_inserter(out));
    std::ranges::sort(out);
    return out;
}

}  // namespace nexar::engine
