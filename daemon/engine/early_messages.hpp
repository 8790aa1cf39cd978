// EarlyMessages: messages about a group that arrived before its commit, which comes from another node. Each
// waits for the group; a peer whose messages exceed their limit loses its control log [L7].
#pragma once

#include <deque>
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
    bool keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes) {
        bytes += overhead_bytes;
        if (bytes_of(from) + bytes > peer_bytes_max_) return false;
        bytes_[from] += bytes;
        kept_.push_back({from, group, message, bytes});
        return true;
    }

    // In the order in which they came.
    std::vector<Kept> take(const GroupId& group) {
        std::vector<Kept> out;
        drop_if([&](const Kept& kept) {
            if (kept.group != group) return false;
            out.push_back(kept);
            return true;
        });
        return out;
    }

    template <class Predicate>
    void drop_if(Predicate predicate) {
        std::erase_if(kept_, [&](const Kept& kept) {
            if (!predicate(kept)) return false;
            const auto used = bytes_.find(kept.from);
            used->second -= kept.bytes;
            if (used->second == 0) bytes_.erase(used);
            return true;
        });
    }

    size_t size() const { return kept_.size(); }
    size_t bytes_of(PeerIndex peer) const {
        const auto at = bytes_.find(peer);
        return at == bytes_.end() ? 0 : at->second;
    }

  private:
    size_t peer_bytes_max_;
    std::deque<Kept> kept_;              // in order of arrival
    std::map<PeerIndex, size_t> bytes_;  // costs of kept_, by sender
};

}  // namespace nexar::engine
