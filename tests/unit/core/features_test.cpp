// Features: which bit stands for what, and what two daemons have in common (docs/protocol/wire.md).
#include "core/features.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

namespace nexar {

TEST_CASE("an operation's bit follows from its number, and the base has none", "[V2]") {
    std::set<uint64_t> seen;
    for (const OpRow& row : operation_table::rows) {
        const uint64_t bit = feature_of(row.kind);
        const auto number = static_cast<uint64_t>(row.kind);
        const uint64_t place = number < 24 ? 24 + number - 8 : 48 + number - 24;
        CHECK(bit == (number < 8 || !row.collective ? 0 : uint64_t{1} << place));
        if (bit != 0) CHECK(seen.insert(bit).second);
        CHECK((known_features() & bit) == bit);
    }
    CHECK(feature_of(OpKind::all_to_all) == uint64_t{1} << 24);
    CHECK(feature_of(OpKind::recv) == 0);
}

TEST_CASE("what a call may ask for has bits of its own", "[V2]") {
    CHECK(feature_of(Partials::native) == 0);
    CHECK(feature_of(Partials::tree) == uint64_t{1} << 40);
    CHECK(feature_of(Partials::wide) == uint64_t{1} << 41);
    CHECK((known_features() & uint64_t{3} << 40) == uint64_t{3} << 40);
    for (const OpRow& row : operation_table::rows) CHECK((feature_of(row.kind) & uint64_t{0xFF} << 40) == 0);
}

TEST_CASE("types and reductions that came later share a bit, and the base has none", "[V2]") {
    CHECK(feature_of_types(base_types - 1, base_reductions - 1) == 0);
    CHECK(feature_of_types(base_types, 0) == uint64_t{1} << 56);
    CHECK(feature_of_types(0, base_reductions) == uint64_t{1} << 56);
    CHECK((known_features() & feature_of_types(base_types, 0)) != 0);
}

TEST_CASE("the plan function of a set of features is the latest that has its bit", "[V5]") {
    CHECK(plan_version_of(0) == 1);
    CHECK(plan_version_of(known_features()) == plan_version_max);
    CHECK(plan_version_of(feature_of_plan(2)) == 2);
    CHECK(plan_version_of(feature_of_plan(9) | feature_of_plan(3)) == 9);
    CHECK(plan_version_of(~uint64_t{0} & ~(uint64_t{0xFF} << 16)) == 1);  // of all other kinds
}

TEST_CASE("two ranges agree on the highest version that both have, and on the features that both have",
          "[V1][V2]") {
    const Capabilities ours{2, 3, 0, 0b0110};
    CHECK(agreed(ours, {3, 4, 0, 0b1100}) == Agreed{3, 0b0100});
    CHECK(agreed(ours, {1, 2, 0, 0}) == Agreed{2, 0});
    CHECK(agreed(ours, ours) == Agreed{3, 0b0110});
    CHECK_FALSE(agreed(ours, {4, 5, 0, 0b0110}));
    CHECK_FALSE(agreed(ours, {1, 1, 0, 0b0110}));
    CHECK_FALSE(agreed(ours, {3, 2, 0, 0b0110}));
    CHECK(ours.versions() == "nexar/2 to nexar/3");
    CHECK(Capabilities{}.versions() == "nexar/2");
}

}  // namespace nexar
