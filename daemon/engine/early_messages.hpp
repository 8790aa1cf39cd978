// EarlyMessages: messages about a group that arrived before its commit, which comes from another node. Each
// waits for the group; a peer whose messages exceed their limit loses its control log [L7]. They are kept by
// group and sender: what begins or ends costs what was kept for it, however much was kept for others [N21].
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "engine/children.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class EarlyMessages {
  public:
    struct Kept {
        PeerIndex from;
        GroupId group;
        wire::Message message;
        size_t bytes = 0;
        uint64_t number = 0;  // in order of arrival
    };
    static constexpr size_t overhead_bytes = 256;  // what a kept message costs beyond its encoding

    explicit EarlyMessages(size_t peer_bytes_max) : peer_bytes_max_(peer_bytes_max) {}

    // `bytes`: of its encoding. False: this peer has no room left.
    bool keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes);
    // In the order in which they came.
    std::vector<Kept> take(const GroupId& group);
    std::vector<Kept> take(const Family& family);
    // Those of one peer, by group.
    void drop_if(PeerIndex from, const std::function<bool(const GroupId&)>& predicate);

    size_t size() const { return size_; }
    size_t bytes_of(PeerIndex peer) const;
    uint64_t looked_at() const { return looked_at_; }  // messages, by all calls: for tests

  private:
    using Rows = std::map<std::pair<GroupId, PeerIndex>, std::vector<Kept>>;  // none is empty
    struct Sender {
        size_t bytes = 0;  // the costs of its messages
        std::set<GroupId> groups;
    };
    std::vector<Kept> take_between(const GroupId& first, const GroupId& last);
    void forget(const Rows::value_type& row);

    size_t peer_bytes_max_;
    Rows rows_;
    std::map<PeerIndex, Sender> senders_;  // that have rows
    size_t size_ = 0;
    uint64_t last_ = 0;  // the newest number
    uint64_t looked_at_ = 0;
};

}  // namespace nexar::engine
