// HalfOpen: which accepted connections may exist that have not attached yet [B5]. As for QUIC's handshakes, a
// few addresses cannot exclude all others. Dry.
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

    struct Admitted {
        bool accepted = false;
        std::optional<uint64_t> evicted;  // is to be closed
    };
    Admitted add(Time now, uint64_t id, const quic::Address& from) {
        const size_t own = count(from);
        if (own >= per_site_max) return {};
        Admitted out{true, std::nullopt};
        if (rows_.size() >= total_max) {
            const auto victim = oldest_of_largest(own);
            if (victim == rows_.end()) return {};
            out.evicted = victim->id;
            rows_.erase(victim);
        }
        rows_.push_back({id, from, now + patience});
        return out;
    }
    void remove(uint64_t id) {
        std::erase_if(rows_, [id](const Row& r) { return r.id == id; });
    }
    // One that has had its time, and is removed; nothing: none has.
    std::optional<uint64_t> overdue(Time now) {
        if (rows_.empty() || rows_.front().end > now) return std::nullopt;
        const uint64_t id = rows_.front().id;
        rows_.erase(rows_.begin());
        return id;
    }
    Time wake_at() const { return rows_.empty() ? never : rows_.front().end; }
    size_t size() const { return rows_.size(); }

  private:
    struct Row {
        uint64_t id;
        quic::Address from;
        Time end;
    };
    size_t count(const quic::Address& site) const {
        return static_cast<size_t>(
            std::ranges::count_if(rows_, [&](const Row& r) { return r.from.same_site(site); }));
    }
    // Of the site that holds most; none: no site holds more than the newcomer's would.
    std::vector<Row>::iterator oldest_of_largest(size_t own) {
        auto best = rows_.end();
        size_t most = own + 1;
        for (auto it = rows_.begin(); it != rows_.end(); ++it) {
            const size_t held = count(it->from);
            if (held <= most) continue;
            most = held;
            best = it;
        }
        return best;
    }
    std::vector<Row> rows_;  // the oldest first
};

}  // namespace nexar::tcp
