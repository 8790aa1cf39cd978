// The state of one send and of one receive, for the files of Messages only.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "engine/control_room.hpp"
#include "engine/messages.hpp"

namespace nexar::engine {

struct Messages::Send final : Pending, Alarm, RecycledObject {
    Send(Messages& m, Timers& timers, uint64_t user) : Alarm(timers, user), owner(m) {}
    Messages& owner;
    Count count;                               // the request [N2]
    Sends::iterator at;                        // itself in sends_
    std::optional<Offers::iterator> offer_at;  // its message in offers_; empty: not there
    uint64_t apart = 0;                        // the number of its message in apart_; 0: not there
    wire::MessageOffer message;
    SessionId session;
    uint64_t ticket = 0;
    MemoryRef in;
    PiecesRef pieces;  // instead of `in`; null: there are none
    collectives::NodeIndex to;
    Time posted;
    Duration timeout{};       // the rank's own, or the group's; not above 0: none
    bool waiting = false;     // for a credit or for room in the control log: nothing was sent
    bool is_offered = false;  // to another node: it is counted in SendQueue::unended
    uint64_t order = 0;       // of all sends to other nodes, as they were posted
    ControlRoom room;         // for its offer and its withdrawal
    link::Account account;    // that pays for `room`
    Priority priority = Priority::bulk;
    bool in_flight = false;     // the transfer is posted, or a receive of this node copies
    bool in_mesh = false;       // the transfer is posted, and has not ended
    Recv* copied_by = nullptr;  // the receive of this node that copies; null: none
    std::optional<ScratchPool::Piece> placeholder;  // the byte that is sent for a message without bytes
    std::optional<Error> end_error;  // it ends with this once the transfer has ended; empty: not ending
    void on_completed(Result<void> result) override { owner.on_completed(*this, result); }
    void on_time() override;
};

struct Messages::Recv final : Pending, Alarm, RecycledObject {
    Recv(Messages& m, Timers& timers, uint64_t user) : Alarm(timers, user), owner(m) {}
    Messages& owner;
    Count count;                 // the request [N2]
    Recvs::iterator at;          // itself in recvs_
    OpKind kind = OpKind::recv;  // or probe, mprobe, mrecv
    uint32_t rank = 0, source = any_rank;
    uint64_t tag = 0;
    bool any_tag = false, only_now = false;
    Dtype dtype = Dtype::u8;
    uint64_t capacity = 0;
    SessionId session;
    uint64_t ticket = 0;
    MemoryRef out;
    PiecesRef pieces;    // as in Send
    uint64_t apart = 0;  // mprobe: the number of the message that it has set apart; 0: none yet
    Time posted;
    Duration timeout{};                             // as in Send
    bool in_flight = false;                         // the transfer is posted, or a copy runs
    std::optional<Offer> matched;                   // the message; empty: none matched
    std::optional<ScratchPool::Piece> placeholder;  // receives the byte of a message without bytes
    std::optional<Error> end_error;                 // as in Send
    Disposition disposition = Disposition::refuse;  // of `matched`, if the receive ends early
    bool was_withdrawn = false;  // the sender withdrew `matched`: this waits for another message
    Error copy_error;            // of a copy between ranks of this node, when one has given this daemon up
    bool is_held = false;        // counted in held_recvs_
    bool overtaken = false;      // a later receive has got a message that this one wanted
    uint64_t order = 0;          // of all receives here, as they were posted
    uint8_t indexed = 0;         // its roles in the index; 0: no row
    OfferIndex::Wanted wanted() const { return {rank, source, any_tag, any_tag ? 0 : tag}; }
    bool wants(const wire::MessageOffer& o) const {
        return rank == o.dst && (source == any_rank || source == o.src) && (any_tag || tag == o.tag);
    }
    void on_completed(Result<void> result) override { owner.on_completed(*this, result); }
    void on_time() override;
    std::string text() const;
};

// The first `bytes` bytes of a message's memory, part by part.
inline link::Extents extents_of(const MemoryRef& memory, const PiecesRef& pieces, uint64_t bytes) {
    if (!pieces) return {{memory.place(), bytes}};
    link::Extents out;
    for (const MemoryRef& piece : *pieces) {
        if (bytes == 0) break;
        out.push_back({piece.place(), std::min(piece.bytes, bytes)});
        bytes -= out.back().bytes;
    }
    return out;
}

// A transfer without bytes would end at once on both sides, so the sender would not know whether it was
// received: one byte is sent.
// `placeholder`: set when the message has no bytes.
inline link::Extents memory_of(const MemoryRef& memory, const PiecesRef& pieces, uint64_t bytes,
                               std::optional<ScratchPool::Piece>& placeholder, ScratchPool& pool) {
    if (bytes > 0) return extents_of(memory, pieces, bytes);
    placeholder.emplace(pool.take(1));
    *placeholder->place().resolve() = {};
    return {{placeholder->place(), 1}};
}

// What an mrecv ends with whose message its sender has withdrawn.
Error taken_back(const std::string& what, uint32_t sender);

// The numbers of one node's messages.
inline uint64_t first_number(collectives::NodeIndex node) {
    return link::OpKey::message_bit | uint64_t{node.value} << 40;
}
inline bool is_number_of(collectives::NodeIndex node, uint64_t number) {
    return number >> 40 == first_number(node) >> 40;
}

}  // namespace nexar::engine
