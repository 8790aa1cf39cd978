// Roster: the nodes that this node knows, where each was learnt, and when it is forgotten
// (docs/protocol/connections.md [P6] [P7]). Sans-io. Every call costs what it touches [P10]; only a record
// that needs the place of another one looks further.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::connections {

// "via:<NodeId, base64url>": reserved for a relay, kept and passed on, never dialled.
bool is_relayed(const std::string& address);

struct RosterConfig {
    size_t nodes_max = 4096;
    Duration forget_unmet = std::chrono::hours(1);
    Duration forget_departed = std::chrono::hours(1);
    Duration forget_lost = std::chrono::hours(24 * 7);
    Duration forgotten_for = std::chrono::hours(24);
};

class Roster {
  public:
    enum class Learnt : uint8_t { nothing, changed, added };
    // How a node stands to us. met: it is connected, and its entry does not expire.
    enum class Standing : uint8_t { unmet, met, lost, departed };

    explicit Roster(const RosterConfig& config) : config_(config) {}

    // Input.
    // A record of a node, sent by `from`: the node itself, or one that gossips.
    Learnt learn(const wire::NodeRecord& record, const NodeId& from, Time now);
    void set_standing(const NodeId& node, Standing standing, Time now);  // of a known node
    // What is kept of the node when it is forgotten [P3].
    void set_highest_counter(const NodeId& node, uint64_t counter);

    // Output. An entry that has expired, or whose place was taken: it is in the roster no more.
    std::optional<NodeId> poll_forgotten(Time now);
    Time wake_at() const;

    const wire::NodeRecord* find(const NodeId& node) const;
    struct Place {
        Standing standing = Standing::unmet;
        Time expires = never;  // never: met
    };
    std::optional<Place> place_of(const NodeId& node) const;
    bool has_room_for(const NodeId& node) const;            // if it connected itself
    uint64_t highest_counter_of(const NodeId& node) const;  // 0: none is remembered
    std::vector<wire::NodeRecord> records() const;
    std::vector<wire::NodeRecord> present() const;  // without the departed
    bool knows_below(const NodeId& node) const;     // another one, without the departed
    size_t size() const { return entries_.size(); }
    void check_invariants() const;

  private:
    struct Entry {
        wire::NodeRecord record;
        NodeId sender;  // unmet: whose gossip it is from
        Standing standing = Standing::unmet;
        Time expires = never;  // never: met
        uint64_t highest_counter = 0;
    };
    struct Forgotten {
        Time until;
        uint64_t highest_counter = 0;
    };
    void set_expiry(const NodeId& node, Entry& entry, Time expires);
    void leave_unmet(Entry& entry);
    void erase(const NodeId& node, Time now);
    bool make_room(Time now);
    const std::pair<Time, NodeId>* replaceable() const;
    size_t unmet_max() const { return config_.nodes_max / 4; }

    RosterConfig config_;
    std::map<NodeId, Entry> entries_;
    std::map<NodeId, size_t> unmet_;              // entries that are unmet, by whose gossip they are from
    std::set<std::pair<Time, NodeId>> expiries_;  // of all entries that expire
    std::map<NodeId, Forgotten> forgotten_;       // at most nodes_max
    std::deque<std::pair<Time, NodeId>> forgotten_order_;  // the oldest first; may hold what is known again
    std::deque<NodeId> taken_out_;                         // not polled yet
};

}  // namespace nexar::connections
