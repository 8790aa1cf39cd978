// ReceiveIndex: receives by what they ask for, in the order in which they were posted, so that to find one
// for a message takes the logarithm of how many there are, whatever the tags and sources of the others [K33].
// It is kept only while there are many: to look through a few costs less than to keep rows. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "core/recycled.hpp"
#include "engine/offer_index.hpp"

namespace nexar::engine {

// What a receive is there for. A row of each that it has.
enum class ReceiveRole : uint8_t {
    takes = 1,   // it waits for a message to receive, or to set apart
    probes = 2,  // it waits for a message to report
    has = 4,     // it has a message, whose bytes are on their way
};

template <class Receive>
class ReceiveIndex {
  public:
    static constexpr size_t kept_from = 256, kept_above = 64;  // receives; between the two it stays as it is

    bool is_kept() const { return is_kept_; }
    void begin() { is_kept_ = true; }
    void end() {
        rows_.clear();
        is_kept_ = false;
    }
    void add(ReceiveRole role, const OfferIndex::Wanted& wanted, uint64_t order, Receive& receive) {
        rows_.emplace(Key{role, wanted, order}, &receive);
    }
    void remove(ReceiveRole role, const OfferIndex::Wanted& wanted, uint64_t order) {
        rows_.erase({role, wanted, order});
    }
    // Of the receives that want the message, the first posted one that is good(receive); null: there is none.
    template <class Good>
    Receive* oldest(const wire::MessageOffer& message, Good good) const {
        Receive* found = nullptr;
        uint64_t first = UINT64_MAX;
        for (const OfferIndex::Wanted& wanted : OfferIndex::wanted_by(message)) {
            auto at = rows_.lower_bound({ReceiveRole::takes, wanted, 0});
            while (is_row(at, ReceiveRole::takes, wanted, first) && !good(*at->second)) ++at;
            if (is_row(at, ReceiveRole::takes, wanted, first)) found = at->second, first = at->first.order;
        }
        return found;
    }
    // Those that want the message, and were posted before `order`; in no order.
    template <class Visit>
    void each(ReceiveRole role, const wire::MessageOffer& message, uint64_t order, Visit visit) const {
        for (const OfferIndex::Wanted& wanted : OfferIndex::wanted_by(message))
            for (auto at = rows_.lower_bound({role, wanted, 0}); is_row(at, role, wanted, order); ++at)
                visit(*at->second);
    }
    size_t size() const { return rows_.size(); }

  private:
    struct Key {
        ReceiveRole role;
        OfferIndex::Wanted wanted;
        uint64_t order = 0;
        auto operator<=>(const Key&) const = default;
    };
    using Rows = std::map<Key, Receive*, std::less<>, Recycled<std::pair<const Key, Receive*>>>;
    bool is_row(typename Rows::const_iterator at, ReceiveRole role, const OfferIndex::Wanted& wanted,
                uint64_t before) const {
        return at != rows_.end() && at->first.role == role && at->first.wanted == wanted &&
               at->first.order < before;
    }
    bool is_kept_ = false;
    Rows rows_;
};

}  // namespace nexar::engine
