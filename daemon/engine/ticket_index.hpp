// TicketIndex: sends, or receives, by their request, so that to cancel one takes the logarithm of how many
// there are [K33]. It is kept only while there are many: to look through a few costs less than to keep rows.
// `all` is the list that owns them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/ids.hpp"
#include "core/recycled.hpp"

namespace nexar::engine {

template <class Each>
class TicketIndex {
  public:
    static constexpr size_t kept_from = 256, kept_above = 64;  // of `all`; between the two it stays as it is

    template <class All>
    void added(const All& all, Each& each) {
        if (is_kept_) {
            rows_.emplace(key_of(each), &each);
        } else if (all.size() >= kept_from) {
            is_kept_ = true;
            for (const auto& one : all) rows_.emplace(key_of(*one), one.get());
        }
    }
    // `each` is in `all` still.
    template <class All>
    void removed(const All& all, const Each& each) {
        if (!is_kept_) return;
        rows_.erase(key_of(each));
        if (all.size() > kept_above + 1) return;
        rows_.clear();
        is_kept_ = false;
    }
    // null: there is none. Adds to `looks` how many it has looked at.
    template <class All>
    Each* find(const All& all, SessionId session, uint64_t ticket, uint64_t& looks) const {
        if (is_kept_) {
            const auto at = rows_.find({session, ticket});
            return ++looks, at == rows_.end() ? nullptr : at->second;
        }
        for (const auto& one : all)
            if (++looks, key_of(*one) == Key(session, ticket)) return one.get();
        return nullptr;
    }
    bool is_kept() const { return is_kept_; }
    size_t size() const { return rows_.size(); }

  private:
    using Key = std::pair<SessionId, uint64_t>;
    static Key key_of(const Each& each) { return {each.session, each.ticket}; }
    bool is_kept_ = false;
    std::map<Key, Each*, std::less<>, Recycled<std::pair<const Key, Each*>>> rows_;
};

}  // namespace nexar::engine
