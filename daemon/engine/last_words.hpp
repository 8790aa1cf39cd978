// LastWords: of the groups that finished last here, what their other nodes may still need to hear: aborts,
// and that our ranks are gone. The channel that carries them may break after the group is gone here, and
// another node's ranks would wait for ours until their deadline.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "link/mesh.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class LastWords {
  public:
    struct OfGroup {
        std::vector<link::PeerIndex> peers;  // each once; without this node
        std::vector<wire::Message> words;
    };

    explicit LastWords(size_t max) : max_(max) {}

    void keep(OfGroup last) {
        if (last.peers.empty()) return;
        kept_.push_back(std::move(last));
        if (kept_.size() > max_) kept_.pop_front();
    }

    // Says to this peer what it may have missed: say(word).
    template <class Say>
    void repeat(link::PeerIndex peer, Say say) const {
        for (const OfGroup& last : kept_)
            for (const link::PeerIndex other : last.peers)
                if (other == peer)
                    for (const wire::Message& word : last.words) say(word);
    }

    // How this rank of ours left; null: not known any more.
    const wire::RankGone* gone(const GroupId& group, uint32_t rank) const {
        for (const OfGroup& last : kept_)
            for (const wire::Message& word : last.words)
                if (const auto* gone = std::get_if<wire::RankGone>(&word))
                    if (gone->group == group && gone->rank == rank) return gone;
        return nullptr;
    }

  private:
    size_t max_;
    std::deque<OfGroup> kept_;
};

}  // namespace nexar::engine
