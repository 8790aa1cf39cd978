// The opens of a node's own processes by group, user and name: so that a question of nexarctl looks at what
// it shows, and at nothing else [N17].
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "wire/messages.hpp"

namespace nexar::rendezvous {

class Waiting {
  public:
    // A scope's groups: of one user, by his mark, or of all.
    struct Names {
        std::map<std::string, std::set<wire::GroupKey>> keys;
        size_t count = 0;  // of keys
    };
    struct Group {
        std::set<wire::RequestId> opens;   // in the order in which they were opened
        std::map<uint64_t, size_t> marks;  // numbers of opens by opener's mark
    };

    void add(const wire::GroupOpen& open, bool local);
    void remove(const wire::GroupOpen& open);  // no effect on one that is not there

    const Names& all() const { return all_; }
    const Names* of(uint64_t mark) const;  // null: it waits for nothing
    const Group& group(const wire::GroupKey& key) const { return groups_.at(key); }
    // Keys that are not local, by opener's mark.
    const std::map<uint64_t, std::set<wire::GroupKey>>& shared() const { return shared_; }
    size_t opens() const { return opens_; }
    bool contains(const wire::GroupOpen& open) const;

  private:
    static void add_to(Names& names, const wire::GroupOpen& open);
    static void remove_from(Names& names, const wire::GroupOpen& open);

    std::map<wire::GroupKey, Group> groups_;
    Names all_;
    std::map<uint64_t, Names> of_mark_;
    std::map<uint64_t, std::set<wire::GroupKey>> shared_;
    size_t opens_ = 0;
};

}  // namespace nexar::rendezvous
