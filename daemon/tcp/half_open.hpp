// HalfOpen: which accepted connections may exist that have not attached yet [B5]. A newcomer is never
// refused: an older one goes, first of its own site, then of the site that holds most. So neither a few
// addresses nor many silent sockets of one keep others out, who need a few round trips only. Dry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/time.hpp"
#include "quic/address.hpp"

namespace nexar::tcp {

class HalfOpen {
  public:
    static constexpr size_t total_max = 128;
    static constexpr size_t per_site_max = 16;
    static constexpr Duration patience{5'000'000'000};  // from accepted to attached
    static constexpr Duration spared{500'000'000};      // of it, by make_room()

    // Which one is to be closed for it.
    std::optional<uint64_t> add(Time now, uint64_t id, const quic::Address& from) {
        auto victim = rows_.end();
        if (held_by(from) >= per_site_max)
            victim = oldest_of(from);
        else if (rows_.size() >= total_max)
            victim = oldest_of_largest();
        std::optional<uint64_t> evicted;
        if (victim != rows_.end()) evicted = erase(victim);
        rows_.push_back({id, from, now + patience, held_by(from), true});
        change_held(from, 1);
        return evicted;
    }
    // Where the process has no descriptor for a newcomer, whose site is not known before it is accepted:
    // which one is to be closed; nothing: the newcomer waits. This must keep no honest one out. So each is
    // `spared` first, which is time for an attach over a path of 100 ms; a silent one as well, since a first
    // packet that was lost is sent again after 200 ms or more. One that takes longer, such as a node that
    // waits for its key, goes only while no site holds more. Where all of the largest site are too young
    // nobody goes: else newcomers in quick succession would remove those that take longer.
    std::optional<uint64_t> make_room(Time now) {
        size_t most = 0;
        for (const Row& row : rows_) most = std::max(most, row.held);
        const auto may_go = [&](const Row& r) { return r.held == most && r.end <= now + patience - spared; };
        auto victim = std::ranges::find_if(rows_, [&](const Row& r) { return r.silent && may_go(r); });
        if (victim == rows_.end()) victim = std::ranges::find_if(rows_, may_go);
        if (victim == rows_.end()) return std::nullopt;
        return erase(victim);
    }
    void has_sent(uint64_t id) {
        for (Row& row : rows_)
            if (row.id == id) row.silent = false;
    }
    void remove(uint64_t id) {
        if (const auto row = std::ranges::find(rows_, id, &Row::id); row != rows_.end()) erase(row);
    }
    // One that has had its time, and is removed; nothing: none has.
    std::optional<uint64_t> overdue(Time now) {
        if (rows_.empty() || rows_.front().end > now) return std::nullopt;
        return erase(rows_.begin());
    }
    Time wake_at() const { return rows_.empty() ? never : rows_.front().end; }
    size_t size() const { return rows_.size(); }

  private:
    struct Row {
        uint64_t id;
        quic::Address from;
        Time end;
        size_t held;  // by its site; kept here, so that a newcomer costs one pass over the rows
        bool silent;  // it has sent no byte
    };
    size_t held_by(const quic::Address& site) const {
        const auto row = std::ranges::find_if(rows_, [&](const Row& r) { return r.from.same_site(site); });
        return row == rows_.end() ? 0 : row->held;
    }
    void change_held(const quic::Address& site, int by) {
        for (Row& row : rows_)
            if (row.from.same_site(site)) row.held += static_cast<size_t>(by);
    }
    uint64_t erase(std::vector<Row>::iterator row) {
        const Row gone = *row;
        rows_.erase(row);
        change_held(gone.from, -1);
        return gone.id;
    }
    // One that has sent nothing, if there is one.
    std::vector<Row>::iterator oldest_of(const quic::Address& site) {
        const auto silent =
            std::ranges::find_if(rows_, [&](const Row& r) { return r.silent && r.from.same_site(site); });
        if (silent != rows_.end()) return silent;
        return std::ranges::find_if(rows_, [&](const Row& r) { return r.from.same_site(site); });
    }
    // Of several sites that hold as many: the one that has the oldest, a silent one if there is one.
    std::vector<Row>::iterator oldest_of_largest() {
        auto best = rows_.begin();
        for (auto it = rows_.begin(); it != rows_.end(); ++it) {
            if (it->held < best->held || (it->held == best->held && (!it->silent || best->silent))) continue;
            best = it;
        }
        return oldest_of(best->from);
    }
    std::vector<Row> rows_;  // the oldest first
};

}  // namespace nexar::tcp
