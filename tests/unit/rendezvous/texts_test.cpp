// What a program sees of the texts of failed opens: the buffer of its error is 511 bytes long.
#include "rendezvous/texts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "shm_layout.h"

namespace nexar::rendezvous {
namespace {

constexpr size_t seen_max = NEXAR_SHM_TEXT_BYTES - 1;

wire::GroupStatus came(uint32_t ranks, uint32_t of_each) {
    wire::GroupStatus status;
    for (uint32_t i = 0; i < ranks; ++i) {
        wire::GroupMemberRecord member;
        member.rank = i * of_each;
        member.node.bytes[0] = 1;  // not the opener's
        member.pid = 4'000'000 + i;
        status.present.push_back(member);
    }
    return status;
}

std::string text_of(const wire::GroupStatus& status, const std::string& trouble,
                    SharedList<uint32_t> parent_ranks = {}) {
    wire::GroupOpen open;
    open.name = "pretraining-of-the-large-model";
    open.size = 4096;
    const auto name_of = [](const NodeId&) { return "compute-node-0123.rack-17.example (0123456789ab)"; };
    const RollCall roll = roll_call(open, parent_ranks, status, name_of);
    const Unfilled unfilled{open, false, std::chrono::seconds(30), trouble, true, {}, parent_ranks};
    return group_incomplete(unfilled, &roll, name_of).text;
}

size_t whole_entries(const std::string& text) {
    const std::regex entry(
        R"(rank \d+ \(pid \d+ on node compute-node-0123.rack-17.example \(0123456789ab\)\))");
    return static_cast<size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), entry), {}));
}

}  // namespace

TEST_CASE("[R11] the ranks that came are listed as far as they fit whole, with the number of the rest") {
    for (const uint32_t ranks : {1u, 2u, 5u, 12u, 13u, 2000u})
        for (const std::string trouble : {"", "node beta did not prove that it has the job's secret"}) {
            CAPTURE(ranks, trouble);
            const std::string text = text_of(came(ranks, 2), trouble);
            CAPTURE(text);
            REQUIRE(text.size() <= seen_max);
            REQUIRE(text.contains("missing: rank "));
            const size_t listed = whole_entries(text);
            REQUIRE(listed >= 1);
            const std::string rest =
                listed == ranks ? "" : " and " + std::to_string(ranks - listed) + " more";
            const std::string tail = trouble.empty() ? "" : "; last attempt: " + trouble;
            REQUIRE(text.ends_with("(0123456789ab))" + rest + tail));
        }
}

TEST_CASE("[R11] the advice is whole, however long the group's name and the hint are") {
    const auto name_of = [](const NodeId&) { return std::string(40, 'h') + " (0123456789ab)"; };
    for (const size_t name : {1u, 60u, 128u})
        for (const bool in_cluster : {true, false})
            for (const bool alone : {true, false})
                for (const bool apart : {true, false}) {
                    CAPTURE(name, in_cluster, alone, apart);
                    wire::GroupOpen open;
                    open.name = std::string(name, 'n');
                    open.size = 4096;
                    if (alone) open.id.origin.bytes[0] = 1;
                    Unfilled unfilled{open, false, std::chrono::seconds(30), "", in_cluster, {}, {}};
                    if (apart) unfilled.apart.first.bytes[0] = 1;
                    const RollCall roll = roll_call(open, {}, came(1000, 2), name_of);
                    const std::string text = group_incomplete(unfilled, &roll, name_of).text;
                    CAPTURE(text);
                    CHECK(text.size() <= seen_max);
                    CHECK(text.contains("NEXAR_OPEN_TIMEOUT_SECS. 1000 came"));
                    CHECK(std::regex_search(text,
                                            std::regex("missing: (rank 1.* and \\d+ more|3096 ranks)\\. ")));
                }
}

TEST_CASE("[R11] where there is no room for a rank that came, their number is there") {
    const std::string text = text_of(came(2000, 2), std::string(300, 'x'));
    CHECK(whole_entries(text) == 0);
    CHECK(text.contains(". 2000 came; last attempt: xxx"));
}

}  // namespace nexar::rendezvous
