// OpenRoom: the bytes that an open has reserved in the control log with the node that leads it, for the
// messages that it may cause there (docs/protocol/control_log.md [L8]). Its tenant pays for all of them.
// Its destructor releases what was not spent.
#pragma once

#include <optional>

#include "engine/context.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::engine {

// The longest encodings of these messages; a test compares them with the codec.
constexpr size_t open_bytes_max = 448;
constexpr size_t open_withdraw_bytes_max = 160;
constexpr size_t status_request_bytes_max = 144;
static_assert(open_withdraw_bytes_max <= open_bytes_max);  // rendezvous::Config::open_log_bytes_max

// The open itself, its withdrawal, and the question at its deadline.
constexpr size_t open_room = link::ControlLog::cost_of(open_bytes_max) +
                             link::ControlLog::cost_of(open_withdraw_bytes_max) +
                             link::ControlLog::cost_of(status_request_bytes_max);

class OpenRoom final : public rendezvous::Payer {
  public:
    // Requires: `context` outlives it.
    OpenRoom(Context& context, link::Account account) : context_(context), account_(account) {}
    OpenRoom(const OpenRoom&) = delete;
    OpenRoom& operator=(const OpenRoom&) = delete;
    ~OpenRoom() override { release(); }

    bool reserve(link::PeerIndex leader);  // false: that log has no room
    // Always charged to the account: an open that is listed again, here or with another leader, may do so
    // without room, because that is not its user's doing.
    void append(link::PeerIndex to, const wire::Message& message);

  private:
    void release();
    void move_to(link::PeerIndex leader);

    Context& context_;
    link::Account account_;
    std::optional<link::PeerIndex> leader_;  // with whose log it is reserved
    size_t reserved_ = 0;                    // bytes that are not spent
};

}  // namespace nexar::engine
