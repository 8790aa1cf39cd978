// What nexarctl shows of the groups that processes of a node wait for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// The opens that a leader has listed for one key. A leader's list may be long, and is kept in part.
struct Arrived {
    static constexpr size_t came_max = 1024, missing_max = 64;
    std::vector<wire::GroupMemberRecord> came;  // the first came_max, in rank order
    uint32_t came_count = 0;
    // The first missing_max; empty with automatic ranks. A leader that asks itself looks for them among the
    // first ranks_looked_at_max.
    static constexpr size_t ranks_looked_at_max = 4096;
    std::vector<uint32_t> missing;
    uint32_t missing_count = 0;
    uint32_t others = 0;  // opens of the same name and opener's mark with another key
};
Arrived arrived_of(uint32_t size, const wire::GroupStatus& status);

struct FormingGroup {
    static constexpr size_t here_max = 1024;
    struct Waiting {  // an open of this node
        int64_t rank = -1;
        uint32_t pid = 0;
        Time since;
    };
    wire::GroupKey key{};
    std::string name;
    uint32_t size = 0;
    uint64_t opener_mark = 0;   // of the first open here [R30]
    bool local = false;         // without a secret
    bool reserved = false;      // all ranks have come, an attempt to make the group is in progress
    NodeId leader;              // the node that collects the ranks
    Time since;                 // of the first open here
    Time deadline = never;      // of the first one in `here` to give up
    std::vector<Waiting> here;  // the first here_max
    size_t here_count = 0;
    std::optional<Arrived> arrived;  // none: the leader has not answered
    std::string trouble;             // why the last attempt was aborted; empty: none was
};

// Which groups nexarctl asks for, and how much of them it shows [N17].
struct FormingScope {
    uint64_t mark = 0;  // of one user's; 0: of all
    std::string name;   // empty: of any
    size_t groups_max = SIZE_MAX;
    size_t rows_max = SIZE_MAX;  // of the opens that are looked at; the last group may go beyond it
};
struct FormingList {
    std::vector<FormingGroup> groups;  // by name
    size_t omitted = 0;
};

}  // namespace nexar::rendezvous
