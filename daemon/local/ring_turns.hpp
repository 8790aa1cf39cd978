// RingTurns: which submission rings the control loop looks at in a turn, and how many entries it takes from
// each: users in turns, and each one's sessions in turns (docs/protocol/tenants.md [N12]). Dry.
//
// A ring that had entries lately is warm. The loop looks at warm rings first, and at a few of the others in
// each turn, so sessions that do nothing cost next to nothing. Before it sleeps it looks at all rings [S7].
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>

#include "core/time.hpp"

namespace nexar::local {

template <class Ring>
class RingTurns {
    struct Seat {
        Ring* ring;
        uint64_t tenant;
        bool warm = false;
        uint32_t quiet = 0;  // looks since the last entry
    };
    using Seats = std::list<Seat>;

  public:
    using Place = typename Seats::iterator;

    struct Limits {  // of one user in a turn
        size_t entries = 0, looks = 0;
        Duration time{};  // after which it gets no further entry
    };
    // Of one user beside others that have warm rings: so little that these hardly wait for it.
    static constexpr Limits shared{8, 16, Duration(50'000)};
    static constexpr Limits alone{64, 256, Duration(500'000)};
    static constexpr size_t cold_looks = 16;  // in a turn
    static constexpr uint32_t quiet_max = 1000;

    Place add(Ring& ring, uint64_t tenant) {
        return cold_.insert(cold_.end(), Seat{.ring = &ring, .tenant = tenant});
    }
    void remove(Place place) {
        if (!place->warm) return static_cast<void>(cold_.erase(place));
        const auto row = rows_.find(place->tenant);
        row->second.erase(place);
        if (row->second.empty()) rows_.erase(row);
    }
    // It has an entry, or may have one soon.
    void warm(Place place) {
        place->quiet = 0;
        if (place->warm) return;
        place->warm = true;
        Seats& row = rows_[place->tenant];
        row.splice(row.end(), cold_, place);
    }

    // One turn. `has(ring)`: it has an entry; `take(ring)` handles one; false: it has none. It may
    // call warm(), nothing else. `clock()`: the time, as it passes. Returns how many were
    // handled.
    template <class Has, class Take, class Clock>
    size_t serve(Has has, Take take, const Clock& clock) {
        look_at_cold(has);
        const Limits limits = rows_.size() == 1 ? alone : shared;
        size_t taken = 0;
        for (auto row = rows_.begin(); row != rows_.end();) {
            taken += serve_row(row->second, limits, take, clock);
            row = row->second.empty() ? rows_.erase(row) : std::next(row);
        }
        return taken;
    }

  private:
    template <class Has>
    void look_at_cold(Has has) {
        for (size_t looks = std::min(cold_looks, cold_.size()); looks > 0; --looks) {
            const Place first = cold_.begin();
            if (has(*first->ring))
                warm(first);
            else
                cold_.splice(cold_.end(), cold_, first);
        }
    }
    template <class Take, class Clock>
    size_t serve_row(Seats& seats, Limits limits, Take take, const Clock& clock) {
        size_t left = limits.entries, entries = 0;
        const Time until = clock() + limits.time;
        const auto take_some = [&](Ring& ring) {
            size_t taken = 0;
            // One by one: an entry may take as long as several others.
            while (left > 0 && take(ring)) {
                ++taken;
                if (clock() >= until)
                    left = 0;
                else
                    --left;
            }
            entries += taken;
            return taken;
        };
        for (size_t looks = std::min(limits.looks, seats.size()); looks > 0 && left > 0; --looks) {
            const Place first = seats.begin();
            const size_t taken = take_some(*first->ring);
            first->quiet = taken > 0 ? 0 : first->quiet + 1;
            first->warm = first->quiet < quiet_max;
            Seats& next = first->warm ? seats : cold_;
            next.splice(next.end(), seats, first);
        }
        return entries;
    }

    std::map<uint64_t, Seats> rows_;  // by tenant: warm rings, in the order of their turns; no row is empty
    Seats cold_;
};

}  // namespace nexar::local
