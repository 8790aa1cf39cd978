// Refusals: a leader's answers to single opens, for which the control log with the opens' node has no room
// yet (docs/protocol/rendezvous.md [R24]). One for each open and way [R31]; withdrawn with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// Bytes that a control log may take now: of a leader's answers, and of opens that are listed again.
struct LogRoom {
    size_t prepares = SIZE_MAX;
    size_t refusals = SIZE_MAX;  // reports of who came, and opens that are passed on
    size_t opens = SIZE_MAX;     // of this node's processes
};

constexpr size_t refusal_bytes_max = 1536 + 128;  // of the log, for each

class Refusals {
  public:
    explicit Refusals(size_t of_node_max) : of_node_max_(of_node_max) {}

    // Beyond the limit of this node its oldest one goes: that open waits until its deadline.
    void add(const NodeId& to, wire::GroupRefused refusal);
    // An open is withdrawn, by its node or by who passed it on.
    void remove(const wire::RequestId& open, const NodeId& from);
    std::optional<wire::GroupRefused> take(const NodeId& to);  // the oldest
    bool has(const NodeId& to) const { return nodes_.contains(to); }
    bool empty() const { return nodes_.empty(); }
    std::vector<NodeId> nodes() const;
    void check_invariants() const;

  private:
    using Places = std::map<std::pair<wire::RequestId, NodeId>, uint64_t>;
    Places::iterator erase(Places::iterator place);

    size_t of_node_max_;
    uint64_t next_ = 0;
    std::map<NodeId, std::map<uint64_t, wire::GroupRefused>> nodes_;  // the oldest first
    Places places_;                                                   // numbers by open and node
};

}  // namespace nexar::rendezvous
