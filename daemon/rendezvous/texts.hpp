// The texts of failed opens and attempts. group_incomplete: the error of an open whose group was not complete
// in time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "core/shared_list.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

struct Unfilled {
    const wire::GroupOpen& open;
    bool local;                           // without a job_secret
    Duration waited;                      // the open's time-out
    std::string trouble;                  // why the last attempt was aborted; empty: none was
    bool in_cluster;                      // this node; otherwise no other node's rank can come
    std::pair<NodeId, NodeId> apart{};    // leaders that do not reach each other [R36]; zero: none
    SharedList<uint32_t> parent_ranks{};  // of a group from a list: who is missing is known; empty: any other
};

// Texts of which the first few are kept, with the number of all.
struct Listing {
    // The first ones, as long as they fit whole into `room` bytes, and how many more there are. Empty: not
    // even one fits.
    std::string text(size_t room) const;
    size_t count = 0;
    std::vector<std::string> first;
};

// Who came to a group, of a leader's report: what the texts of all its opens say of it. It is as short as a
// text, however many came.
struct RollCall {
    size_t came_count = 0;           // and wait
    Listing came, gave_up, missing;  // those that gave up shortly before are in no other one
    int64_t first_missing = -1;      // or, where none is missing, that gave up
    bool automatic = false;          // ranks are given when all have come
    bool alone = false;              // all that came are of the open's node
    uint32_t others = 0;             // opens of this name with another key
};
// `open`: one of this node. `parent_ranks`: what the texts call its ranks; empty: as they are.
RollCall roll_call(const wire::GroupOpen& open, const SharedList<uint32_t>& parent_ranks,
                   const wire::GroupStatus& status, const std::function<std::string(const NodeId&)>& name_of);

// The text names the arrived and the missing ranks [R11], as many as a program will see: it is not longer
// than the room for it, if the names, the hint and the last attempt's trouble leave some. `roll`: of the
// leader's report; null: it did not answer.
Error group_incomplete(const Unfilled& unfilled, const RollCall* roll,
                       const std::function<std::string(const NodeId&)>& name_of);

// Two nodes of a group that is to be formed.
std::string unreachable_text(const std::string& node, const std::string& other, const std::string& group);

// [R25] The node, and through which one its open came.
std::string opens_of(const std::function<std::string(const NodeId&)>& name_of, const NodeId& origin,
                     const NodeId& via);
// `at` keeps `most` opens of `whose`, and no more.
Error too_many_opens(const std::string& whose, const std::string& at, size_t most);

// [R20]
std::string unproven_text(const std::string& node_name);

}  // namespace nexar::rendezvous
