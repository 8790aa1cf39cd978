// ControlRoom: what one operation has reserved in the control logs for the messages that it may cause
// (docs/protocol/control_log.md [L8]). It is given back when this ends.
#pragma once

#include <span>
#include <utility>

#include "engine/context.hpp"

namespace nexar::engine {

// The longest encodings of what an operation may cause; a test compares them with the codec.
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
    ~ControlRoom() { release(left_); }

    // The same in the logs of all peers but the one at `skip`; in none if one has no room.
    // Requires: `peers` lives longer than this.
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
        left_ += bytes;
        return true;
    }
    bool reserve_more(size_t bytes) {
        return context_ != nullptr && reserve(*context_, peers_, skip_, account_, bytes);
    }
    // What was spent is not written to the peer at this index.
    void give_back(size_t index, size_t message_bytes) {
        if (context_ != nullptr)
            context_->ports.peers.release(peers_[index], account_, link::ControlLog::cost_of(message_bytes));
    }
    // Who pays for the next message, of so many bytes, that goes to every peer.
    std::optional<link::Account> spend(size_t message_bytes) {
        const size_t cost = link::ControlLog::cost_of(message_bytes);
        if (left_ < cost) return {};
        left_ -= cost;
        return account_;
    }
    link::Account account() const { return account_; }

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
        std::swap(left_, other.left_);
    }

    Context* context_ = nullptr;              // null: nothing was reserved yet
    std::span<const link::PeerIndex> peers_;  // in whose logs
    size_t skip_ = no_index;                  // index in peers_ that stands for this node
    link::Account account_;
    size_t left_ = 0;  // bytes in each of the logs
};

}  // namespace nexar::engine
