// Opens that a node keeps for others, as their leader or on the way there, and through which nodes they came
// (docs/protocol/rendezvous.md [R1][R17][R25]).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// The nodes that an open was listed with before its present leader, the last few of them [R27].
class FormerLeaders {
  public:
    void add(const NodeId& leader);
    bool has(const NodeId& node) const;

  private:
    std::vector<NodeId> leaders_;
};

// An open that is kept for its node, and the ways by which it came here, until the last of them is lost
// [R31]. What a node says of another one's opens counts only for its own way [R17].
struct Listed {
    wire::GroupOpen open;
    NodeId via;                 // the node that it came through: replies go there
    std::set<NodeId> relays{};  // others that passed on the same; never the open's own node
    // Where it is passed on: the node that it was sent to, and leader_changes_ when it was last sent. Below
    // now: the leader has changed since [R26].
    NodeId leader{};
    uint64_t sent_in = 0;
    FormerLeaders former_leaders{};

    // It came again, by this way.
    void add_via(const wire::GroupOpen& again, const NodeId& way);
    // A way is lost. True: no other is left.
    bool drop_via(const NodeId& way);
    bool came_through(const NodeId& way) const { return via == way || relays.contains(way); }
};
bool is_same(const wire::GroupOpen& a, const wire::GroupOpen& b);

// The opens that came through each node.
class Ways {
  public:
    void add(const Listed& listed);
    void remove(const Listed& listed);
    // The share that has no room for one more open of `origin` by this way, where a node may have `most`;
    // none: there is room [R25]. `passed_on`: it will be one of those that somebody passed on.
    std::optional<size_t> full(const NodeId& way, const NodeId& origin, size_t most, bool passed_on) const;
    std::vector<wire::RequestId> of(const NodeId& way) const;
    size_t count(const NodeId& way, const NodeId& origin) const;
    size_t size() const;  // an open counts once for each of its ways

  private:
    struct Way {
        std::map<NodeId, std::set<wire::RequestId>> of_origin;  // none is empty
        size_t passed_on = 0;                                   // those of other nodes than the way itself
    };
    std::map<NodeId, Way> ways_;  // none is empty
};

// The opens that a node passes on.
class Relayed {
  public:
    const Listed* find(const wire::RequestId& request) const;  // null: none
    void put(Listed listed);                                   // in the place of the same open
    void add_via(const wire::GroupOpen& open, const NodeId& way);
    // True: no other way was left, and the open is forgotten.
    bool drop_via(const wire::RequestId& request, const NodeId& way);
    void erase(const wire::RequestId& request);
    void set_sent(const wire::RequestId& request, const NodeId& leader, uint64_t change);
    const Listed* after(const wire::RequestId& request) const;  // in the order of their ids; null: none
    Listed take_first();                                        // requires: not empty()
    std::vector<wire::RequestId> of(const NodeId& way) const { return ways_.of(way); }
    std::optional<size_t> full(const NodeId& way, const NodeId& origin, size_t most) const {
        return ways_.full(way, origin, most, true);
    }
    size_t size() const { return opens_.size(); }
    bool empty() const { return opens_.empty(); }
    void check_invariants() const;

  private:
    std::map<wire::RequestId, Listed> opens_;
    Ways ways_;
};

}  // namespace nexar::rendezvous
