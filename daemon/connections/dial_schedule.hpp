// Dial schedule: which target is dialled next, at which of its addresses, and when again
// (docs/protocol/connections.md [P5]). Used by the peer table and by each shard's bulk connections. Sans-io.
// Every call costs what it touches: targets wait in order of time [P10].
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/ids.hpp"
#include "core/random.hpp"
#include "core/time.hpp"

namespace nexar::connections {

// What is dialled: a node, or a seed: an address where some node is expected.
struct Target {
    NodeId node;       // zero: a seed
    std::string seed;  // empty: a node
    auto operator<=>(const Target&) const = default;
};

struct DialConfig {
    Duration dial_timeout{3'000'000'000};  // it is not answered
    Duration backoff_min{50'000'000};
    Duration backoff_max{2'000'000'000};
    Duration fast_redial{20'000'000};  // pause between the redials of a target that was just lost, at least
    unsigned fast_redials = 3;
    size_t dials_max = 16;  // at a time; a quarter of them only for fast redials
};

class DialSchedule {
  public:
    struct Due {
        Target target;
        size_t address = 0;  // index into the target's addresses
    };

    DialSchedule(const DialConfig& config, Random random) : config_(config), random_(random) {}

    // Input. Unknown targets are ignored by all but add().
    // A target that is idle until start(). One that is known only changes its number of addresses; one
    // without addresses is never due.
    void add(const Target& target, size_t addresses);
    void remove(const Target& target);
    // Dialled from its first address at `at`; the first `fast_redials` failures are followed by a pause of
    // `pace` if `fast`, of the back-off otherwise.
    void start(const Target& target, Time at, bool fast = false, Duration pace = {});
    // As start(), fast, and the back-off goes on where it was.
    void start_again(const Target& target, Time at, Duration pace);
    void settled(const Target& target);               // the next back-off begins at its minimum
    void hasten(const Target& target, Time at);       // one that waits: dialled at `at`, if that is sooner
    void postpone(const Target& target, Time until);  // its dial was answered, and what follows is not known
    // Connected: idle until start() or failed(); no fast redials are left, and the back-off goes on.
    void stop(const Target& target);
    void failed(const Target& target, Time now);  // its dial, or the connection that it led to

    // Output. The dial takes a place until postpone(), stop(), failed(), start() or remove().
    std::optional<Due> poll_due(Time now);
    // A dial that was not answered in time; the caller reports it by failed().
    std::optional<Target> unanswered(Time now) const;
    Time wake_at() const;

    bool is_dialling(const Target& target) const;
    bool is_waiting(const Target& target) const;  // for its time, or for a place
    size_t dials() const { return dialling_.size(); }
    void check_invariants() const;

  private:
    enum class State : uint8_t { idle, waiting, dialling };
    struct Entry {
        State state = State::idle;
        size_t addresses = 0;
        size_t address = 0;   // the next one
        unsigned rounds = 0;  // all addresses failed so often since start() or settled()
        unsigned fast = 0;    // fast redials left
        Duration pace{};      // of fast redials
        Time at = never;      // waiting: when to dial; dialling: when the dial has failed; idle: never
    };
    using Queue = std::set<std::pair<Time, Target>>;  // in order of Entry::at

    // Every change of an entry's state goes through here:
    //   idle -> waiting           start(), postpone(), failed()
    //   waiting -> dialling       poll_due()
    //   dialling -> waiting       start(), postpone(), failed()
    //   waiting, dialling -> idle stop()
    void move(const Target& target, Entry& entry, State to, Time at);
    Queue* queue_of(const Entry& entry);
    Entry* find(const Target& target);
    Duration jittered(Duration base);
    size_t slow_dials_max() const { return config_.dials_max - config_.dials_max / 4; }

    DialConfig config_;
    Random random_;
    std::map<Target, Entry> entries_;
    Queue fast_, slow_;  // waiting, with and without fast redials left; none that has no address
    Queue dialling_;
};

}  // namespace nexar::connections
