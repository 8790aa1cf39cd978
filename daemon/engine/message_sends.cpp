// The start of a send. It waits for a credit of the receiver and for room in the control log, then
// its offer and its transfer are posted (docs/protocol/control_log.md [L8] [L9]).
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void Messages::send(const LocalRank& from, const OpRequest& request, Count count) {
    const GroupFacts& facts = group_.facts;
    const Context& context = group_.context();
    Send& send = *sends_.emplace_back(std::make_unique<Send>(*this, timers_, from.user()));
    send.count = std::move(count);
    send.at = std::prev(sends_.end());
    const uint64_t bytes = request.descriptor.count * reduce::size_of(request.descriptor.dtype);
    send.message = {facts.id,
                    facts.epoch.value,
                    from.rank,
                    request.peer,
                    request.tag,
                    bytes,
                    uint8_t(request.descriptor.dtype),
                    0};
    send.account = from.account;
    send.session = request.session;
    send.priority = request.priority.value_or(Priority::bulk);
    send.ticket = request.ticket;
    sends_by_ticket_.added(sends_, send);
    send.in = request.in;
    send.pieces = request.pieces;
    send.to = facts.layout.node_of(request.peer);
    send.posted = context.now;
    send.message.only_now = request.timeout == OpRequest::only_now;  // the receiver's node answers
    const bool usual = request.timeout < Duration{0} || send.message.only_now;
    send.timeout = usual ? facts.timeouts.collective : request.timeout;
    send.wake_at(deadline(send.timeout));

    if (const auto gone = group_.departure_error(request.peer, false)) return finish(send, *gone);
    if (send.to == facts.self) return arrive({send.message, facts.self, &send});
    enqueue(send);
}

void Messages::enqueue(Send& send) {
    const GroupFacts& facts = group_.facts;
    const SendQueueKey key(send.message.src, send.to.value);
    const uint64_t window = credit_window(group_.context().config.unexpected_per_group_max, facts.size());
    const uint64_t ranks = facts.layout.ranks_on(send.to).size();
    SendQueue& queue = send_queues_.try_emplace(key, SendQueue{window, 0, window, ranks}).first->second;
    send.order = ++sends_posted_;
    const bool is_next = queue.waiting.empty() && queue.may_offer(send.message.dst) && !group_.failed();
    if (is_next && offer_now(queue, send)) return;
    send.waiting = true;
    queue.update(send.message.dst, [&] { queue.waiting[send.message.dst].emplace(send.order, &send); });
    if (!is_next) advance(queue);
    // No credit: that node already keeps its maximum of unexpected messages of this rank.
    if (send.waiting && send.message.only_now)
        end(send, {Errc::timed_out,
                   "rank " + std::to_string(send.message.dst) +
                       "'s node has no room for another message that no receive waits for, and the send does "
                       "not wait",
                   send.message.dst,
                   -1,
                   {}});
}

bool Messages::SendQueue::is_idle(uint32_t dst) const {
    const auto own = unended.find(dst);
    return own == unended.end() || own->second == 0;
}

// A destination with messages that have not ended leaves a credit for each other rank of its node, but never
// more than half of all.
uint64_t Messages::SendQueue::credits(bool idle) const {
    const uint64_t all = limit - offered, kept = idle ? 0 : credit_reserve(window, ranks);
    return all > kept ? all - kept : 0;
}

std::optional<uint32_t> Messages::SendQueue::next() const {
    const bool busy = !first_of_busy.empty() && credits(false) > 0;
    const bool idle = !first_of_idle.empty() && credits(true) > 0;
    if (!busy && !idle) return {};
    const bool takes_busy = busy && (!idle || first_of_busy.begin()->first < first_of_idle.begin()->first);
    return (takes_busy ? first_of_busy : first_of_idle).begin()->second;
}

void Messages::SendQueue::seat(uint32_t dst) {
    const auto at = waiting.find(dst);
    if (at != waiting.end()) (is_idle(dst) ? first_of_idle : first_of_busy)[at->second.begin()->first] = dst;
}

void Messages::SendQueue::unseat(uint32_t dst) {
    const auto at = waiting.find(dst);
    if (at != waiting.end()) (is_idle(dst) ? first_of_idle : first_of_busy).erase(at->second.begin()->first);
}

void Messages::SendQueue::check_invariants() const {
    NEXAR_CHECK(first_of_busy.size() + first_of_idle.size() == waiting.size());
    for (const auto& [dst, sends] : waiting) {
        NEXAR_CHECK(!sends.empty());
        NEXAR_CHECK((is_idle(dst) ? first_of_idle : first_of_busy).at(sends.begin()->first) == dst);
    }
}

// False: the control log has no room.
bool Messages::offer_now(SendQueue& queue, Send& send) {
    Context& context = group_.context();
    const std::span<const link::PeerIndex> peer(&group_.facts.peers[send.to.value], 1);
    if (!send.room.reserve(context, peer, ControlRoom::no_index, send.account, send_room)) {
        context.groups_without_room.insert(group_.facts.id);
        return false;
    }
    ++queue.offered;
    queue.update(send.message.dst, [&] { ++queue.unended[send.message.dst]; });
    send.is_offered = true;
    offer(send);
    return true;
}

// The oldest first, of those that may be offered.
void Messages::advance(SendQueue& queue) {
    while (!group_.failed()) {
        const auto dst = queue.next();
        if (!dst) return;
        std::map<uint64_t, Send*>& first = queue.waiting.at(*dst);
        Send& send = *first.begin()->second;
        queue.update(*dst, [&] {  // before: it may end at once, and come back here
            first.erase(first.begin());
            if (first.empty()) queue.waiting.erase(*dst);
        });
        if (offer_now(queue, send)) continue;
        queue.update(*dst, [&] { queue.waiting[*dst].emplace(send.order, &send); });
        return;
    }
}

// It ends. The last one of its destination makes room for the next, without a credit.
void Messages::no_longer_offered(const Send& send) {
    if (!send.is_offered) return;
    SendQueue& queue = send_queues_.at({send.message.src, send.to.value});
    queue.update(send.message.dst, [&] { --queue.unended.at(send.message.dst); });
    if (queue.is_idle(send.message.dst) && !queue.waiting.empty()) advance(queue);
}

void Messages::send_waiting() {
    for (auto& [key, queue] : send_queues_) advance(queue);
}

void Messages::offer(Send& send) {
    const GroupFacts& facts = group_.facts;
    Context& context = group_.context();
    // Unique among all nodes of the group: both directions of a pair share the space of op numbers.
    const uint64_t number = first_number(facts.self) | ++counter_;
    send.message.number = number;
    send.waiting = false;
    const std::vector<std::byte> encoded = wire::encode(send.message);
    context.ports.peers.append(facts.peers[send.to.value], encoded, send.room.spend(encoded.size()));
    const uint64_t bytes = send.message.bytes;
    send.in_flight = send.in_mesh = true;
    link::Batch batch;
    batch.first_handle = context.allot_handles(1);
    context.expect(batch.first_handle, send);
    batch.sends.push_back({{key(number), 0},
                           facts.peers[send.to.value],
                           class_of(bytes),
                           agreement(send.message),
                           memory_of(send.in, send.pieces, bytes, send.placeholder, context.scratch),
                           facts.table.chunk_bytes,
                           send.account,
                           send.priority,
                           true});
    context.ports.meshes[context.mesh_for(class_of(bytes), bytes, number, facts.bulk_shards)]->post(
        std::move(batch));
}

// Once for each message: a returned one that waits for its next receive has no credit any more.
void Messages::return_credit(Offer& offer) {
    if (!std::exchange(offer.has_credit, false)) return;
    credits_.returned(offer.message.src);
    grant_credits(offer.from, offer.message.src);
}

void Messages::grant_credits(NodeIndex node, uint32_t src) {
    const auto limit = credits_.take_limit(src);
    if (!limit || group_.context().config.sabotage.lose_a_credit) return;
    group_.to_node(node, wire::MessageCredit{group_.facts.id, group_.facts.epoch.value, src, *limit});
}

void Messages::on_credit(NodeIndex from, const wire::MessageCredit& credit) {
    const auto queue = send_queues_.find({credit.src, from.value});
    if (queue == send_queues_.end()) return;
    queue->second.limit = std::max(queue->second.limit, credit.limit);
    advance(queue->second);
}

void Messages::stop_waiting(Send& send) {
    SendQueue& queue = send_queues_.at({send.message.src, send.to.value});
    const uint32_t dst = send.message.dst;
    queue.update(dst, [&] {
        std::map<uint64_t, Send*>& waiting = queue.waiting.at(dst);
        waiting.erase(send.order);
        if (waiting.empty()) queue.waiting.erase(dst);
    });
    send.waiting = false;
}

// Ends sends that were not offered yet, so nothing of them was sent. any_rank: of, or to, all ranks.
void Messages::end_unoffered(uint32_t src, uint32_t dst, const Error& error) {
    std::vector<Send*> over;
    for (auto& send : sends_)
        if (send->waiting && (src == any_rank || send->message.src == src) &&
            (dst == any_rank || send->message.dst == dst))
            over.push_back(send.get());
    for (Send* send : over) end(*send, error, false);
}

}  // namespace nexar::engine
