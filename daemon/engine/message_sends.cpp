// Sends: how one leaves its slot. It waits for a credit of the receiver and for room in the control log, then
// its offer and its transfer are posted (docs/protocol/control_log.md [L8] [L9]).
#include <algorithm>
#include <utility>

#include "engine/group.hpp"
#include "engine/message_state.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

void Messages::send(const LocalRank& from, const OpRequest& request) {
    const GroupFacts& facts = group_.facts;
    const Context& context = group_.context();
    Send& send = *sends_.emplace_back(std::make_unique<Send>(*this, timers_));
    const uint64_t bytes = request.descriptor.count * reduce::size_of(request.descriptor.dtype);
    send.words = {facts.id,
                  facts.epoch.value,
                  from.rank,
                  request.peer,
                  request.tag,
                  bytes,
                  uint8_t(request.descriptor.dtype),
                  0};
    send.account = from.account;
    send.session = request.session;
    send.ticket = request.ticket;
    send.in = request.in;
    send.to = facts.layout.node_of(request.peer);
    send.posted = context.now;
    send.words.only_now = request.timeout == OpRequest::only_now;  // the receiver's node answers
    const bool usual = request.timeout < Duration{0} || send.words.only_now;
    send.timeout = usual ? facts.timeouts.collective : request.timeout;
    send.wake_at(deadline(send.timeout));

    if (const auto gone = group_.gone_error(request.peer, false)) return finish(send, *gone);
    if (send.to == facts.self) return arrive({send.words, facts.self, &send});
    enqueue(send);
}

void Messages::enqueue(Send& send) {
    const GroupFacts& facts = group_.facts;
    const LineKey key(send.words.src, send.to.value);
    const uint64_t window = credit_window(group_.context().config.unexpected_per_group_max, facts.size());
    Line& line = lines_.try_emplace(key, Line{{}, 0, window}).first->second;
    send.waiting = true;
    line.waiting.push_back(&send);
    advance(key, line);
    // Without a credit as many earlier messages of this rank wait there as that node keeps.
    if (send.waiting && send.words.only_now)
        end(send, {Errc::timed_out,
                   "rank " + std::to_string(send.words.dst) +
                       "'s node has no room for another message that no receive waits for, and the send does "
                       "not wait",
                   send.words.dst,
                   -1,
                   {}});
}

void Messages::advance(const LineKey& key, Line& line) {
    Context& context = group_.context();
    while (!line.waiting.empty() && line.offered < line.limit) {
        Send& send = *line.waiting.front();
        const std::span<const link::PeerIndex> peer(&group_.facts.peers[key.second], 1);
        if (!send.room.reserve(context, peer, ControlRoom::no_index, send.account, send_room)) {
            context.groups_without_room.insert(group_.facts.id);
            return;
        }
        line.waiting.pop_front();
        ++line.offered;
        offer(send);
    }
}

void Messages::send_waiting() {
    for (auto& [key, line] : lines_) advance(key, line);
}

void Messages::offer(Send& send) {
    const GroupFacts& facts = group_.facts;
    Context& context = group_.context();
    // Unique among all nodes of the group: both directions of a pair share the space of op numbers.
    const uint64_t number = first_number(facts.self) | ++counter_;
    send.words.number = number;
    send.waiting = false;
    const std::vector<std::byte> words = wire::encode(send.words);
    context.ports.peers.append(facts.peers[send.to.value], words, send.room.spend(words.size()));
    const uint64_t bytes = send.words.bytes;
    send.moving = send.transfer = true;
    link::Batch batch;
    batch.first_handle = context.allot_handles(1);
    context.expect(batch.first_handle, send);
    batch.sends.push_back({{key(number), 0},
                           facts.peers[send.to.value],
                           class_of(bytes),
                           agreement(send.words),
                           memory_of(send.in, bytes, send.nothing),
                           facts.table.chunk_bytes,
                           true});
    context.ports.meshes[context.mesh_for(class_of(bytes), number, facts.bulk_shards)]->post(
        std::move(batch));
}

// Once for each message: one that its receive gave back is expected already.
void Messages::return_credit(Offer& offer) {
    if (!std::exchange(offer.has_credit, false)) return;
    credits_.left(offer.words.src);
    grant_credits(offer.from, offer.words.src);
}

void Messages::grant_credits(NodeIndex node, uint32_t src) {
    const auto limit = credits_.take_limit(src);
    if (!limit || group_.context().config.sabotage.lose_a_credit) return;
    group_.to_node(node, wire::MessageCredit{group_.facts.id, group_.facts.epoch.value, src, *limit});
}

void Messages::on_credit(NodeIndex from, const wire::MessageCredit& credit) {
    const auto line = lines_.find({credit.src, from.value});
    if (line == lines_.end()) return;
    line->second.limit = std::max(line->second.limit, credit.limit);
    advance(line->first, line->second);
}

void Messages::stop_waiting(Send& send) {
    std::erase(lines_.at({send.words.src, send.to.value}).waiting, &send);
    send.waiting = false;
}

// What was not offered by now was not sent. any_rank: whatever rank that is.
void Messages::end_never_offered(uint32_t src, uint32_t dst, const Error& error) {
    std::vector<Send*> over;
    for (auto& send : sends_)
        if (send->waiting && (src == any_rank || send->words.src == src) &&
            (dst == any_rank || send->words.dst == dst))
            over.push_back(send.get());
    for (Send* send : over) end(*send, error, false);
}

}  // namespace nexar::engine
