// The state of one send and of one receive, for the files of Messages only.
#pragma once

#include <optional>
#include <string>

#include "engine/control_room.hpp"
#include "engine/messages.hpp"

namespace nexar::engine {

struct Messages::Send final : Pending, Alarm {
    Send(Messages& m, Timers& timers) : Alarm(timers), owner(m) {}
    Messages& owner;
    Count count;                               // the request [N2]
    Sends::iterator at;                        // itself in sends_
    std::optional<Offers::iterator> offer_at;  // its message in offers_; empty: not there
    wire::MessageOffer message;
    SessionId session;
    uint64_t ticket = 0;
    MemoryRef in;
    collectives::NodeIndex to;
    Time posted;
    Duration timeout{};         // the rank's own, or the group's; not above 0: none
    bool waiting = false;       // for a credit or for room in the control log: nothing was sent
    ControlRoom room;           // for its offer and its withdrawal
    link::Account account;      // that pays for `room`
    bool in_flight = false;     // the transfer is posted, or a receive of this node copies
    bool in_mesh = false;       // the transfer is posted, and has not ended
    Recv* copied_by = nullptr;  // the receive of this node that copies; null: none
    std::optional<ScratchPool::Piece> placeholder;  // the byte that is sent for a message without bytes
    std::optional<Error> end_error;  // it ends with this once the transfer has ended; empty: not ending
    void on_completed(Result<void> result) override { owner.on_completed(*this, result); }
    void on_time() override;
};

struct Messages::Recv final : Pending, Alarm {
    Recv(Messages& m, Timers& timers) : Alarm(timers), owner(m) {}
    Messages& owner;
    Count count;         // the request [N2]
    Recvs::iterator at;  // itself in recvs_
    uint32_t rank = 0, source = any_rank;
    uint64_t tag = 0;
    bool any_tag = false, only_now = false;
    Dtype dtype = Dtype::u8;
    uint64_t capacity = 0;
    SessionId session;
    uint64_t ticket = 0;
    MemoryRef out;
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
    bool wants(const wire::MessageOffer& o) const {
        return rank == o.dst && (source == any_rank || source == o.src) && (any_tag || tag == o.tag);
    }
    void on_completed(Result<void> result) override { owner.on_completed(*this, result); }
    void on_time() override;
    std::string text() const;
};

// A transfer without bytes would end at once on both sides, so the sender would not know whether it was
// received: one byte is sent.
// `placeholder`: set when the message has no bytes.
inline link::Extents memory_of(const MemoryRef& memory, uint64_t bytes,
                               std::optional<ScratchPool::Piece>& placeholder, ScratchPool& pool) {
    if (bytes > 0) return {{memory.place(), bytes}};
    placeholder.emplace(pool.take(1));
    *placeholder->place().resolve() = {};
    return {{placeholder->place(), 1}};
}

// The numbers of one node's messages.
inline uint64_t first_number(collectives::NodeIndex node) {
    return link::OpKey::message_bit | uint64_t{node.value} << 40;
}
inline bool is_number_of(collectives::NodeIndex node, uint64_t number) {
    return number >> 40 == first_number(node) >> 40;
}

}  // namespace nexar::engine
