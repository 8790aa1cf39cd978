// The rows of proto/operations.def as the daemon and the library see them.
#include "core/operations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "shm_layout.h"

namespace nexar {

TEST_CASE("an operation's number stays the same for ever") {
    const std::map<std::string, int> numbers{
        {"barrier", 0},         {"all_reduce", 1},       {"reduce", 2},       {"broadcast", 3},
        {"all_gather", 4},      {"reduce_scatter", 5},   {"send", 6},         {"recv", 7},
        {"all_to_all", 8},      {"gather", 9},           {"scatter", 10},     {"scan", 11},
        {"exclusive_scan", 12}, {"all_gatherv", 13},     {"gatherv", 14},     {"scatterv", 15},
        {"all_to_allv", 16},    {"reduce_scatterv", 17}, {"probe", 18},       {"mprobe", 19},
        {"mrecv", 20},          {"message_free", 21},    {"group_split", 22}, {"group_dup", 23}};
    for (const auto& [name, number] : numbers) {
        CAPTURE(name);
        const OpRow* row = find_operation(std::string_view(name));
        REQUIRE(row != nullptr);
        REQUIRE(static_cast<int>(row->kind) == number);
        REQUIRE(find_operation(static_cast<uint64_t>(number)) == row);
    }
    REQUIRE(operation_count == NEXAR_OP_KINDS);
    REQUIRE(NEXAR_OP_REDUCE_SCATTER == 5);
    REQUIRE(NEXAR_OP_RECV == 7);
}

TEST_CASE("a number that is no operation's has no row, and a name for people") {
    for (const uint64_t number : {uint64_t{NEXAR_OP_KINDS}, uint64_t{63}, uint64_t{255}, UINT64_MAX})
        REQUIRE(find_operation(number) == nullptr);
    REQUIRE_FALSE(is_collective(255));
    REQUIRE_FALSE(is_collective(NEXAR_OP_SEND));
    REQUIRE(is_collective(NEXAR_OP_BARRIER));
    REQUIRE(std::string(name_of(static_cast<OpKind>(200))) == "unknown");
    REQUIRE(find_operation(std::string_view("all")) == nullptr);
}

TEST_CASE("the sides of a rank have the blocks that the row states") {
    const auto sides = [](OpKind kind, bool is_root) {
        const SideBlocks blocks = blocks_of(row_of(kind), 7, is_root ? 3 : 4, 3);
        return std::pair{blocks.in, blocks.out};
    };
    using Pair = std::pair<uint64_t, uint64_t>;
    REQUIRE(sides(OpKind::barrier, true) == Pair{0, 0});
    REQUIRE(sides(OpKind::all_reduce, false) == Pair{1, 1});
    REQUIRE(sides(OpKind::reduce, false) == Pair{1, 0});
    REQUIRE(sides(OpKind::reduce, true) == Pair{1, 1});
    REQUIRE(sides(OpKind::broadcast, false) == Pair{0, 1});
    REQUIRE(sides(OpKind::broadcast, true) == Pair{1, 0});
    REQUIRE(sides(OpKind::all_gather, false) == Pair{1, 7});
    REQUIRE(sides(OpKind::reduce_scatter, false) == Pair{7, 1});
    REQUIRE(sides(OpKind::all_to_all, false) == Pair{7, 7});
    REQUIRE(sides(OpKind::gather, true) == Pair{1, 7});
    REQUIRE(sides(OpKind::gather, false) == Pair{1, 0});
    REQUIRE(sides(OpKind::scatter, true) == Pair{7, 1});
    REQUIRE(sides(OpKind::scatter, false) == Pair{0, 1});
    REQUIRE(sides(OpKind::scan, false) == Pair{1, 1});
    REQUIRE(sides(OpKind::exclusive_scan, false) == Pair{1, 1});
    const SideBlocks first = blocks_of(row_of(OpKind::exclusive_scan), 7, 0, 0);
    REQUIRE(std::pair{first.in, first.out} == Pair{1, 1});
    REQUIRE(sides(OpKind::send, false) == Pair{1, 0});
    REQUIRE(sides(OpKind::recv, false) == Pair{0, 1});
    REQUIRE(sides(OpKind::mrecv, false) == Pair{0, 1});
    REQUIRE(sides(OpKind::probe, false) == Pair{0, 0});
    REQUIRE_FALSE(row_of(OpKind::mprobe).has_elements);
    REQUIRE((row_of(OpKind::mprobe).any_source && row_of(OpKind::mrecv).of_apart));
    REQUIRE((has_pieces(row_of(OpKind::mrecv)) && !has_pieces(row_of(OpKind::message_free))));
}

TEST_CASE("input and output share memory only as the row allows") {
    constexpr uint64_t memory = 100;
    REQUIRE(may_share(InPlace::same, memory, memory, 8));
    REQUIRE_FALSE(may_share(InPlace::same, memory, memory + 8, 8));
    REQUIRE(may_share(InPlace::block_of_out, memory + 8, memory, 8));
    REQUIRE_FALSE(may_share(InPlace::block_of_out, memory, memory + 8, 8));
    REQUIRE(may_share(InPlace::block_of_in, memory, memory + 8, 8));
    REQUIRE_FALSE(may_share(InPlace::block_of_in, memory + 8, memory, 8));
    REQUIRE_FALSE(may_share(InPlace::never, memory, memory, 0));
}

TEST_CASE("a segment holds whole rows: a block for each rank where a side has one") {
    REQUIRE(segments_of(row_of(OpKind::all_reduce), 1000, 4, 8, 400) == 10);
    REQUIRE(segments_of(row_of(OpKind::all_gather), 1000, 4, 8, 400) == 80);
    REQUIRE(segments_of(row_of(OpKind::reduce_scatter), 1000, 4, 8, 32) == 1000);
    REQUIRE(segments_of(row_of(OpKind::reduce_scatter), 1000, 4, 8, 1) == 1000);
    REQUIRE(segments_of(row_of(OpKind::all_to_all), 1000, 4, 8, 400) == 80);
    REQUIRE(segments_of(row_of(OpKind::gather), 1000, 4, 8, 400) == 80);
    REQUIRE(segments_of(row_of(OpKind::scatter), 1000, 4, 8, 400) == 80);
    REQUIRE(segments_of(row_of(OpKind::barrier), 1000, 4, 8, 1) == 1);
    REQUIRE(segments_of(row_of(OpKind::broadcast), 0, 4, 8, 1) == 1);
}

}  // namespace nexar
