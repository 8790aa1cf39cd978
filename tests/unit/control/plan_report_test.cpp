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
    return {"all_reduce", {Kind::all_reduce, count, 4, 0}, std::move(node_of_rank), {}, {}};
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
