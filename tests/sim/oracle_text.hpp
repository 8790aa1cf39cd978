// Programs of tests/oracle as text: tests/oracle/simulator.py has the format.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace nexar::sim {

using Bytes = std::vector<std::byte>;

struct Item {
    std::string what;  // collective, send, recv; create, ending; wait, deadline, pause, cancel, lose
    bool is_call() const { return what == "collective" || what == "send" || what == "recv"; }
    bool is_create() const { return what == "create" || what == "ending"; }
    uint64_t step = 0;
    uint32_t rank = 0, group = 0;
    engine::OpRequest request;
    std::optional<Bytes> in, out;
    uint64_t room = 0;
    int64_t number = -1;
    bool again = false;  // a recv or an ending, if the one before it got nothing
    uint64_t time = 0;   // deadline: milliseconds; pause: microseconds
    std::string how;     // lose: free, abort, exception, die, die_later
    const Call* call = nullptr;
    bool is_skipped = false;  // the rank has not got the group
    // Of a create.
    uint32_t parent = 0;
    uint64_t tag = 0;
    Duration timeout{-1};
    std::vector<uint32_t> list;
    std::optional<Cluster::Open> open;  // empty: not called
    Time called{};
    bool is_freed = false;  // of an ending: the group that it got
};

struct Made {
    uint32_t number = 0;
    std::string how;
    int64_t parent = -1, call = -1;
    std::vector<uint32_t> members;
};

struct Text {
    uint64_t seed = 0;
    bool judged = false;  // otherwise everything must succeed
    std::vector<uint32_t> places;
    std::vector<uint32_t> processes;  // the session of each rank
    std::vector<Made> groups;
    std::optional<uint32_t> lost;          // the rank that ends before its program does
    std::vector<std::vector<Item>> items;  // of each rank
};

// The next one of the file; false: there is none.
bool read_program(std::istream& file, Text& out);

}  // namespace nexar::sim
