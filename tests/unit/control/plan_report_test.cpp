// nexarctl plan: the report agrees with the formula of the algorithm.
#include "nexarctl/plan_report.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

using namespace nexarctl;
using nexar::collectives::Kind;

namespace {
PlanQuestion question(uint64_t count, std::vector<uint32_t> node_of_rank) {
    return {"all_reduce", {Kind::all_reduce, count, 4, 0}, std::move(node_of_rank), {}, {}, {}};
}
}  // namespace

TEST_CASE("a large all_reduce is a ring: each node sends 2 (n-1) / n of the data to the next") {
    const auto report = *plan_report(question(3 << 20, {0, 0, 1, 1, 2, 2}));
    REQUIRE(report["algorithm"] == "ring");
    REQUIRE(report["class"] == "bulk");
    REQUIRE(report["ranks"] == 6);
    REQUIRE(report["nodes"] == 3);
    REQUIRE(report["total_bytes"] == uint64_t{4} * (12 << 20));  // 3 nodes, 4/3 of 12 MiB each
    REQUIRE(report["pairs"].size() == 3);
    REQUIRE(report["pairs"][2]["from"] == 2);
    REQUIRE(report["pairs"][2]["to"] == 0);

    const std::string text = render_plan(report);
    REQUIRE(text.find("6 ranks on 3 nodes") != std::string::npos);
    REQUIRE(text.find("bulk: through the shards") != std::string::npos);
}

TEST_CASE("a small one is doubling, one node sends nothing, and names are used where known") {
    REQUIRE((*plan_report(question(16, {0, 1})))["algorithm"] == "recursive doubling");
    const auto local = *plan_report(question(1 << 20, {0, 0, 0}));
    REQUIRE(local["algorithm"] == "local");
    REQUIRE(render_plan(local).find("nothing is sent between nodes") != std::string::npos);

    PlanQuestion named = question(1 << 20, {0, 1});
    named.names = {"alpha (01)", "beta (02)"};
    REQUIRE(render_plan(*plan_report(named)).find("beta (02)   alpha (01)") != std::string::npos);
}

TEST_CASE("what cannot be planned is an error that names it") {
    PlanQuestion root = question(1, {0, 1});
    root.shape.root = 2;
    REQUIRE(plan_report(root).error().text.find("root 2") != std::string::npos);
    PlanQuestion table = question(1, {0, 1});
    table.table.segment_bytes = 1;
    REQUIRE(plan_report(table).error().text.find("segment_bytes") != std::string::npos);
}

TEST_CASE("all candidates are shown with their terms, one of them as chosen, the excluded ones with the rule",
          "[O4]") {
    PlanQuestion asked = question(32 << 10, {0, 1, 2, 3});  // 128 KiB
    asked.table.version = 3;
    asked.table.ring_nodes_max = 3;
    const auto report = *plan_report(asked);
    REQUIRE(report["candidates"].size() == 6);
    size_t chosen = 0;
    for (const auto& one : report["candidates"]) {
        chosen += one["chosen"].get<bool>();
        REQUIRE((one["algorithm"] == "ring") == (one["why_not"] == "ring_max_world"));
        REQUIRE(one["predicted_us"] > 0);
        if (one["chosen"].get<bool>()) REQUIRE(one["algorithm"] == report["algorithm"]);
    }
    REQUIRE(chosen == 1);
    const std::string text = render_plan(report);
    REQUIRE(text.find("<- chosen") != std::string::npos);
    REQUIRE(text.find("halving and doubling") != std::string::npos);
    REQUIRE(text.find("the cost model") != std::string::npos);

    asked.table.version = 2;
    const auto by_size = *plan_report(asked);
    REQUIRE(by_size["candidates"].size() == 6);
    for (const auto& one : by_size["candidates"])
        REQUIRE(one["chosen"] == (one["algorithm"] == "ring" && one["class"] == "small"));
    REQUIRE(render_plan(by_size).find("the cost model") == std::string::npos);
    REQUIRE(render_plan(by_size).find(" size\n") != std::string::npos);
}

TEST_CASE("a group's table comes from the daemon's answer; an older daemon's has plan function 1") {
    PlanQuestion asked;
    const auto answer = nlohmann::ordered_json::parse(R"({"node_of_rank": [0, 1], "table": {"version": 3,
        "small_bytes_max": 1024, "doubling_bytes_max": 512, "chunk_bytes": 4096, "segment_bytes": 8192, "lanes": 1,
        "model": {"small_start_ns": 1, "small_ps_per_byte": 2, "bulk_start_ns": 3, "bulk_ps_per_byte": 4,
        "memory_ps_per_byte": 5, "shared_ps_per_byte": 6}, "large_message_bytes": 6, "ring_nodes_max": 7, "algorithms": "halving"}})");
    REQUIRE(read_group(answer, asked));
    nexar::collectives::PlanTable expected{3, 1024, 512, 4096, 8192, 1, {{1, 2}, {3, 4}, 5, 6}, 6, 7};
    expected.family = nexar::collectives::Family::halving;
    REQUIRE(asked.table == expected);
    PlanQuestion older;
    REQUIRE(
        read_group(nlohmann::ordered_json::parse(R"({"node_of_rank": [0], "table": {"lanes": 2}})"), older));
    REQUIRE(older.table.version == 1);
}
