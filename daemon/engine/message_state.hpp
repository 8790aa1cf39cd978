// The state of one send and of one receive: for messages.cpp, message_matching.cpp and message_sends.cpp
// only.
#pragma once

#include <optional>
#include <string>

#include "engine/control_room.hpp"
#include "engine/messages.hpp"

namespace nexar::engine {

struct Messages::Send final : Pending, Alarm {
    Send(Messages& m, Timers& timers) : Alarm(timers), owner(m) {}
    Messages& owner;
    wire::MessageOffer words;
    SessionId session;
    uint64_t ticket = 0;
    Buffer in;
    collectives::NodeIndex to;
    Time posted;
    Duration timeout{};    // as asked for or agreed; not above 0: none
    bool waiting = false;  // for a credit or for room in the control log: nothing was sent
    ControlRoom room;      // for its withdrawal
    link::Account account;
    bool moving = false;    // the transfer is posted, or a receive here copies
    bool transfer = false;  // under way in the mesh
    Recv* copied_by = nullptr;
    std::byte nothing{};  // what is moved of a message without bytes
    std::optional<Error> ending;
    void over(Result<void> result) override { owner.on_over(*this, result); }
    void on_time() override;
};

struct Messages::Recv final : Pending, Alarm {
    Recv(Messages& m, Timers& timers) : Alarm(timers), owner(m) {}
    Messages& owner;
    uint32_t rank = 0, source = any_rank;
    uint64_t tag = 0;
    bool any_tag = false, only_now = false;
    Dtype dtype = Dtype::u8;
    uint64_t capacity = 0;
    SessionId session;
    uint64_t ticket = 0;
    Buffer out;
    Time posted;
    Duration timeout{};  // as in Send
    bool moving = false;
    std::optional<Offer> taken;
    std::byte nothing{};  // where a message without bytes goes
    std::optional<Error> ending;
    Rest rest = Rest::refused;  // where it does end so
    bool retry = false;         // the sender took its message back: wait for another one
    Error spoiled;              // how a copy from a rank of this node ends: one of the two took it back
    bool holds = false;         // counted in held_
    bool passed = false;        // a later receive has got what this one would have taken
    bool wants(const wire::MessageOffer& o) const {
        return rank == o.dst && (source == any_rank || source == o.src) && (any_tag || tag == o.tag);
    }
    void over(Result<void> result) override { owner.on_over(*this, result); }
    void on_time() override;
    std::string text() const;
};

// A transfer of nothing would end at once, and its sender not know whether it was received: a byte goes.
inline link::Extents memory_of(const Buffer& buffer, uint64_t bytes, std::byte& nothing) {
    if (bytes == 0) return {{&nothing, 1}};
    return {{buffer.data, bytes}};
}

// The numbers of one node's messages.
inline uint64_t first_number(collectives::NodeIndex node) {
    return link::OpKey::message_bit | uint64_t{node.value} << 40;
}
inline bool is_number_of(collectives::NodeIndex node, uint64_t number) {
    return number >> 40 == first_number(node) >> 40;
}

}  // namespace nexar::engine
