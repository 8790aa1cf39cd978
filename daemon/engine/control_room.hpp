// ControlRoom: the bytes that one operation has reserved in the control logs for the messages that it may
// cause (docs/protocol/control_log.md [L8]). Its destructor releases them.
#pragma once

#include <span>
#include <utility>

#include "engine/context.hpp"

namespace nexar::engine {

// The longest encodings of these messages; a test compares them with the codec.
constexpr size_t announce_bytes_max = 192;
constexpr size_t query_bytes_max = 128;
constexpr size_t abort_bytes_max = 1536;
constexpr size_t offer_bytes_max = 160;
constexpr size_t withdraw_bytes_max = 96;

constexpr size_t query_room = link::ControlLog::cost_of(query_bytes_max);
constexpr size_t collective_room =
    link::ControlLog::cost_of(announce_bytes_max) + query_room + link::ControlLog::cost_of(abort_bytes_max);
constexpr size_t send_room =
    link::ControlLog::cost_of(offer_bytes_max) + link::ControlLog::cost_of(withdraw_bytes_max);

class ControlRoom {
  public:
    static constexpr size_t no_index = SIZE_MAX;

    ControlRoom() = default;
    ControlRoom(ControlRoom&& other) noexcept { swap(other); }
    ControlRoom& operator=(ControlRoom&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ControlRoom() { release(reserved_); }

    // Reserves `bytes` in the logs with all peers but the one at `skip`, or in none if one has no room.
    // Requires: `peers` outlives this.
    bool reserve(Context& context, std::span<const link::PeerIndex> peers, size_t skip, link::Account account,
                 size_t bytes) {
        if (context_ == nullptr) {
            context_ = &context;
            peers_ = peers;
            skip_ = skip;
            account_ = account;
        }
        for (size_t i = 0; i < peers_.size(); ++i) {
            if (i == skip_ || context.ports.peers.reserve(peers_[i], account_, bytes)) continue;
            for (size_t j = 0; j < i; ++j)
                if (j != skip_) context.ports.peers.release(peers_[j], account_, bytes);
            return false;
        }
        reserved_ += bytes;
        return true;
    }
    bool reserve_more(size_t bytes) {
        return context_ != nullptr && reserve(*context_, peers_, skip_, account_, bytes);
    }
    // Releases a spent message that is not sent to the peer at this index.
    void refund(size_t index, size_t message_bytes) {
        if (context_ != nullptr)
            context_->ports.peers.release(peers_[index], account_, link::ControlLog::cost_of(message_bytes));
    }
    // The account that pays for the next message to all peers; empty: the reservation is used up.
    std::optional<link::Account> spend(size_t message_bytes) {
        const size_t cost = link::ControlLog::cost_of(message_bytes);
        if (reserved_ < cost) return {};
        reserved_ -= cost;
        return account_;
    }

  private:
    void release(size_t bytes) {
        if (bytes == 0) return;
        for (size_t i = 0; i < peers_.size(); ++i)
            if (i != skip_) context_->ports.peers.release(peers_[i], account_, bytes);
    }
    void swap(ControlRoom& other) {
        std::swap(context_, other.context_);
        std::swap(peers_, other.peers_);
        std::swap(skip_, other.skip_);
        std::swap(account_, other.account_);
        std::swap(reserved_, other.reserved_);
    }

    Context* context_ = nullptr;              // null: nothing reserved yet
    std::span<const link::PeerIndex> peers_;  // of the logs
    size_t skip_ = no_index;                  // index in peers_ that stands for this node
    link::Account account_;                   // that pays
    size_t reserved_ = 0;                     // bytes in each of the logs that are not spent
};

}  // namespace nexar::engine
