// Early words: what other nodes said about a group before its commit came here, which took another way. The
// oldest give way: by bytes those of the same peer; by number those of the peer that has the most, so that
// none can take the memory or the place of the others, with few large words or with many small ones.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class EarlyWords {
  public:
    struct Word {
        PeerIndex from;
        GroupId group;
        wire::Message message;
        size_t bytes = 0;
    };
    static constexpr size_t overhead_bytes = 256;  // what a kept word costs beyond its encoding

    EarlyWords(size_t words_max, size_t peer_bytes_max)
        : words_max_(words_max), peer_bytes_max_(peer_bytes_max) {}

    // `bytes`: of its encoding.
    void keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes) {
        bytes += overhead_bytes;
        if (bytes > peer_bytes_max_) return;
        while (bytes_of(from) + bytes > peer_bytes_max_) drop_oldest_of(from);
        if (words_.size() >= words_max_) drop_oldest_of(loudest());
        Kept& kept = kept_[from];
        kept.bytes += bytes;
        ++kept.words;
        words_.push_back({from, group, message, bytes});
    }

    // In the order in which they came.
    std::vector<Word> take(const GroupId& group) {
        std::vector<Word> mine;
        for (auto at = words_.begin(); at != words_.end();) {
            if (at->group != group) {
                ++at;
                continue;
            }
            mine.push_back(*at);
            at = drop(at);
        }
        return mine;
    }

    size_t size() const { return words_.size(); }
    size_t bytes_of(PeerIndex peer) const {
        const auto at = kept_.find(peer);
        return at == kept_.end() ? 0 : at->second.bytes;
    }

  private:
    struct Kept {
        size_t words = 0, bytes = 0;
    };
    std::deque<Word>::iterator drop(std::deque<Word>::iterator at) {
        const auto of_peer = kept_.find(at->from);
        of_peer->second.bytes -= at->bytes;
        if (--of_peer->second.words == 0) kept_.erase(of_peer);
        return words_.erase(at);
    }
    PeerIndex loudest() const {
        return std::ranges::max_element(kept_, {}, [](const auto& k) { return k.second.words; })->first;
    }
    void drop_oldest_of(PeerIndex peer) {
        auto at = words_.begin();
        while (at->from != peer) ++at;
        drop(at);
    }

    size_t words_max_, peer_bytes_max_;
    std::deque<Word> words_;
    std::map<PeerIndex, Kept> kept_;
};

}  // namespace nexar::engine
