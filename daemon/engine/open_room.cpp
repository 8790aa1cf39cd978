#include "engine/open_room.hpp"

#include <algorithm>
#include <variant>

#include "wire/codec.hpp"

namespace nexar::engine {

bool OpenRoom::reserve(link::PeerIndex leader) {
    if (!context_.ports.peers.reserve_open(leader, account_, open_room)) return false;
    leader_ = leader;
    reserved_ = open_room;
    return true;
}

void OpenRoom::append(link::PeerIndex to, const wire::Message& message) {
    if (std::holds_alternative<wire::GroupOpen>(message)) move_to(to);
    const auto bytes = wire::encode(message);
    context_.ports.peers.append(to, bytes, account_);
    if (leader_ == to) reserved_ -= std::min(reserved_, link::ControlLog::cost_of(bytes.size()));
}

// Listed with this leader, perhaps again: room for the rest, if there is any.
void OpenRoom::move_to(link::PeerIndex leader) {
    if (leader_ == leader && reserved_ == open_room) return;
    release();
    leader_ = leader;
    if (context_.ports.peers.reserve(leader, account_, open_room)) reserved_ = open_room;
}

void OpenRoom::release() {
    if (leader_ && reserved_ > 0) context_.ports.peers.release(*leader_, account_, reserved_);
    reserved_ = 0;
}

}  // namespace nexar::engine
