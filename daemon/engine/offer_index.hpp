// OfferIndex: the unexpected messages by what a receive may ask for, oldest first, so that finding one takes
// the logarithm of how many wait, whatever their tags are [K33]. It is kept only while there are many: to
// look through a few costs less than to keep four rows for each. Pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>

#include "core/recycled.hpp"
#include "engine/ports.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class OfferIndex {
  public:
    static constexpr size_t kept_from = 256;  // messages

    struct Wanted {
        uint32_t dst = 0, src = any_rank;
        bool any_tag = false;
        uint64_t tag = 0;  // 0 with any_tag
        auto operator<=>(const Wanted&) const = default;
    };

    bool is_kept() const { return is_kept_; }
    void begin() { is_kept_ = true; }
    void end() {
        rows_.clear();
        is_kept_ = false;
    }
    void add(const wire::MessageOffer& message, uint64_t arrival) {
        for (const Wanted& wanted : wanted_by(message)) rows_.emplace(std::pair(wanted, arrival), 0);
    }
    void remove(const wire::MessageOffer& message, uint64_t arrival) {
        for (const Wanted& wanted : wanted_by(message)) rows_.erase({wanted, arrival});
    }
    // The arrival of the oldest one that is good(arrival) as well; 0: there is none.
    template <class Good>
    uint64_t oldest(const Wanted& wanted, Good good) const {
        for (auto at = rows_.lower_bound({wanted, 0}); at != rows_.end() && at->first.first == wanted; ++at)
            if (good(at->first.second)) return at->first.second;
        return 0;
    }
    size_t size() const { return rows_.size() / 4; }

    // All that a receive for the message may ask for.
    static std::array<Wanted, 4> wanted_by(const wire::MessageOffer& m) {
        return {{{m.dst, m.src, false, m.tag},
                 {m.dst, m.src, true, 0},
                 {m.dst, any_rank, false, m.tag},
                 {m.dst, any_rank, true, 0}}};
    }

  private:
    using Key = std::pair<Wanted, uint64_t>;
    bool is_kept_ = false;
    std::map<Key, char, std::less<>, Recycled<std::pair<const Key, char>>> rows_;
};

}  // namespace nexar::engine
