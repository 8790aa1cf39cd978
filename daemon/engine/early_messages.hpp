// EarlyMessages: messages about a group that arrived before its commit, which comes from another node. Each
// waits for the group; a peer whose messages exceed their limit loses its control log [L7].
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class EarlyMessages {
  public:
    struct Kept {
        PeerIndex from;
        GroupId group;
        wire::Message message;
        size_t bytes = 0;
    };
    static constexpr size_t overhead_bytes = 256;  // what a kept message costs beyond its encoding

    explicit EarlyMessages(size_t peer_bytes_max) : peer_bytes_max_(peer_bytes_max) {}

    // `bytes`: of its encoding. False: this peer has no room left.
    bool keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes);
    // In the order in which they came.
    std::vector<Kept> take(const GroupId& group);
    std::vector<Kept> take_if(const std::function<bool(const GroupId&)>& predicate);
    void drop_if(const std::function<bool(const Kept&)>& predicate);

    size_t size() const { return kept_.size(); }
    size_t bytes_of(PeerIndex peer) const;

  private:
    size_t peer_bytes_max_;
    std::deque<Kept> kept_;              // in order of arrival
    std::map<PeerIndex, size_t> bytes_;  // costs of kept_, by sender
};

}  // namespace nexar::engine
