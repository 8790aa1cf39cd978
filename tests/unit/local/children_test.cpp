// Splits and dups of one session: what reaches the engine, what is refused, and the memberships that come
// back.
#include <catch2/catch_test_macros.hpp>

#include "core_fixture.hpp"
#include "local/group_answers.hpp"

using namespace nexar;
using namespace nexar::local;
using namespace nexar::test;

using engine::OpKind;

namespace {

struct Splitter : Fixture {  // rank 2 of 4 is membership 1
    uint32_t start(uint32_t slot, const nexar_shm_group_child& asked, uint8_t kind = NEXAR_OP_GROUP_SPLIT) {
        memory.view().payload(slot).group_child = asked;
        nexar_shm_descriptor d{};
        d.kind = kind, d.priority = NEXAR_SHM_PRIORITY_DEFAULT, d.group = 1, d.epoch = 1;
        d.timeout_ns = -1;
        return push(slot, d);
    }
    // Ends the last one; empty: with this child.
    void finish(uint32_t slot, std::shared_ptr<const engine::GroupInfo> child, Errc error = Errc::ok) {
        engine::Outcome outcome;
        outcome.error.code = error;
        outcome.child = std::move(child);
        outcome.sequence = 7;
        outcome.epoch = 1;
        core.complete(engine.ops.back().ticket, outcome);
        core.check_invariants();
        REQUIRE((memory.view().slot(slot).state & 0xff) == NEXAR_SLOT_DONE);
    }
    std::string refusal(const nexar_shm_group_child& asked, uint8_t kind = NEXAR_OP_GROUP_SPLIT) {
        start(3, asked, kind);
        REQUIRE(engine.ops.empty());
        REQUIRE(memory.view().slot(3).result.status == static_cast<int32_t>(Errc::invalid_argument));
        return text(3);
    }
};

std::shared_ptr<const engine::GroupInfo> a_child() {
    engine::GroupInfo out;
    out.id = {4, 5, 6};
    out.epoch = GroupEpoch(1);
    out.rank = Rank(1);
    out.size = 2;
    out.segment_bytes = 8192;
    out.members = {{Rank(0), NodeId{{7}}, 1}, {Rank(1), NodeId{{7}}, 2}};
    return std::make_shared<const engine::GroupInfo>(out);
}

}  // namespace

TEST_CASE("[Y1] a split's colour, key and time-outs reach the engine, and its child becomes a membership",
          "[local]") {
    Splitter f;
    f.start(3, {5, 0, -9, 1'500'000, 0, -1});
    const engine::ChildRequest& asked = *f.engine.ops.back().child;
    CHECK(f.engine.ops.back().descriptor.kind == OpKind::group_split);
    CHECK(f.engine.ops.back().rank == 2);
    CHECK(asked.colour == 5);
    CHECK(asked.key == -9);
    CHECK(asked.asked.collective == Duration(2'000'000));  // whole milliseconds
    CHECK(asked.asked.barrier == Duration(0));
    CHECK(asked.asked.rpc == Duration(-1));
    f.finish(3, a_child());
    const nexar_shm_result& result = f.memory.view().slot(3).result;
    CHECK(result.status == 0);
    CHECK(result.group == 2);
    CHECK(result.rank == 1);
    CHECK(result.size == 2);
    CHECK(result.group_epoch == 1);
    CHECK(result.stage == 8192);
    CHECK(result.sequence == 7);
    CHECK(f.core.groups() == 2);

    f.start(4, {NEXAR_SHM_NO_COLOUR, 0, 0, -1, -1, -1});
    f.finish(4, nullptr);
    CHECK(f.memory.view().slot(4).result.group == 0);
    f.start(4, {0, 0, 0, -1, -1, -1}, NEXAR_OP_GROUP_DUP);
    f.finish(4, nullptr, Errc::peer_lost);
    CHECK(f.memory.view().slot(4).result.status == static_cast<int32_t>(Errc::peer_lost));
    CHECK(f.core.groups() == 2);
}

TEST_CASE("[Y1] what a split may not state is refused by its name, and uses no number", "[local]") {
    CHECK(Splitter().refusal({0, 3, 0, -1, -1, -1}).starts_with("a reserved word of the payload is 3"));
    CHECK(Splitter().refusal({0, 0, 0, -2, -1, -1}).starts_with("collective_timeout_ns is -2"));
    CHECK(Splitter().refusal({0, 0, 0, -1, -5, -1}).starts_with("barrier_timeout_ns is -5"));
    CHECK(Splitter().refusal({0, 0, 0, -1, -1, -9}).starts_with("rpc_timeout_ns is -9"));
    CHECK(Splitter()
              .refusal({1, 0, 0, -1, -1, -1}, NEXAR_OP_GROUP_DUP)
              .starts_with("colour is 1, key 0; allowed: 0"));
    CHECK(Splitter()
              .refusal({0, 0, 4, -1, -1, -1}, NEXAR_OP_GROUP_DUP)
              .starts_with("colour is 0, key 4; allowed: 0"));
}

TEST_CASE("[Y4] a session with as many groups as it may have takes part in a split, and says so to all",
          "[local]") {
    Splitter f;
    for (uint32_t groups = 1; groups < NEXAR_SHM_GROUPS_MAX; ++groups) {
        f.start(3, {0, 0, 0, -1, -1, -1});
        f.finish(3, a_child());
    }
    f.start(3, {0, 0, 0, -1, -1, -1});
    CHECK(f.engine.ops.back().child->refusal == engine::ChildRefusal::session);
    CHECK(f.engine.ops.back().child->limit == NEXAR_SHM_GROUPS_MAX);
    f.finish(3, nullptr, Errc::table_full);
    f.start(3, {NEXAR_SHM_NO_COLOUR, 0, 0, -1, -1, -1});
    CHECK(f.engine.ops.back().child->refusal == engine::ChildRefusal::none);
    f.finish(3, nullptr);
    nexar_shm_descriptor free{};
    free.kind = NEXAR_CMD_GROUP_FREE, free.group = 2, free.epoch = 1;
    REQUIRE(f.ask(5, free) == 0);
    f.start(3, {0, 0, 0, -1, -1, -1});
    CHECK(f.engine.ops.back().child->refusal == engine::ChildRefusal::none);
}

TEST_CASE("ranks of a group are translated to those of its parent, its children and their siblings",
          "[local]") {
    engine::GroupInfo root, left, right, nested, other;
    root.id = {1, 1, 1}, root.size = 6, root.name = "root";
    left.id = {2, 2, 0}, left.size = 3, left.root = root.id, left.root_ranks = {4, 0, 2};
    right.id = {2, 2, 1}, right.size = 3, right.root = root.id, right.root_ranks = {1, 3, 5};
    nested.id = {3, 3, 0}, nested.size = 2, nested.root = root.id, nested.root_ranks = {2, 4};
    other.id = {9, 9, 9}, other.size = 6, other.name = "other";
    constexpr uint32_t none = NEXAR_SHM_ANY_RANK;
    const auto of = [](const engine::GroupInfo& from, const engine::GroupInfo& to,
                       std::vector<uint32_t> ranks) { return *translated(from, to, ranks); };
    CHECK(of(root, left, {0, 1, 2, 3, 4, 5}) == std::vector<uint32_t>{1, none, 2, none, 0, none});
    CHECK(of(left, root, {0, 1, 2}) == std::vector<uint32_t>{4, 0, 2});
    CHECK(of(left, right, {0, 1, 2}) == std::vector<uint32_t>{none, none, none});
    CHECK(of(nested, left, {1, 0}) == std::vector<uint32_t>{0, 2});
    CHECK(of(root, root, {5, 5}) == std::vector<uint32_t>{5, 5});
    CHECK(of(root, left, {}).empty());
    CHECK(translated(left, root, std::vector<uint32_t>{3}).error().text == "rank 3 is not in a group of 3");
    CHECK(translated(root, other, std::vector<uint32_t>{0}).error().code == Errc::invalid_argument);
}

TEST_CASE("what a group is, and its ranks as another one's, are answered in the detail's place", "[local]") {
    Splitter f;
    auto child = *a_child();
    child.name = "g/7.5", child.parent_name = "g", child.parent = GroupId{1, 1, 1};
    child.root = GroupId{1, 1, 1}, child.root_ranks = {3, 2};
    child.timeouts = {Duration(2'000'000), Duration(0), Duration(5'000'000)};
    child.plan = {2, 15, 13, 16, 14, 11, 12};
    f.start(3, {5, 0, 0, -1, -1, -1});
    f.finish(3, std::make_shared<const engine::GroupInfo>(child));
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_INFO, d.group = 2, d.epoch = 1;
    REQUIRE(f.ask(4, d) == 0);
    nexar_shm_group_info info;
    std::memcpy(&info, &f.memory.view().detail(4), sizeof info);
    CHECK(std::string(info.name, info.name_bytes) == "g/7.5");
    CHECK(std::string(info.parent_name, info.parent_name_bytes) == "g");
    CHECK(info.id[2] == 6);
    CHECK(info.parent[0] == 1);
    CHECK(info.nodes == 1);
    CHECK(info.collective_timeout_ms == 2);
    CHECK(info.barrier_timeout_ms == 0);
    CHECK(info.rpc_timeout_ms == 5);
    CHECK(info.plan_version == 2);
    CHECK(info.plan_small_bytes_max == 11);
    CHECK(info.plan_doubling_bytes_max == 12);
    CHECK(info.plan_chunk_bytes == 13);
    CHECK(info.plan_segment_bytes == 14);
    CHECK(info.plan_lanes == 15);
    CHECK(info.plan_shards == 16);

    const auto translate = [&](uint32_t from, uint32_t to, uint32_t count, uint32_t rank) {
        nexar_shm_group_translate asked{};
        asked.to = to, asked.count = count, asked.ranks[0] = rank, asked.ranks[1] = 1;
        f.memory.view().payload(4).group_translate = asked;
        d.kind = NEXAR_CMD_GROUP_TRANSLATE, d.group = from;
        return f.ask(4, d);
    };
    REQUIRE(translate(2, 1, 2, 0) == 0);
    uint32_t ranks[2];
    std::memcpy(ranks, &f.memory.view().detail(4), sizeof ranks);
    CHECK(ranks[0] == 3);
    CHECK(ranks[1] == 2);
    CHECK(translate(2, 9, 1, 0) == static_cast<int32_t>(Errc::closed));
    CHECK(translate(2, 1, 127, 0) == static_cast<int32_t>(Errc::invalid_argument));
    CHECK(f.text(4).starts_with("count is 127"));
    CHECK(translate(2, 1, 1, 2) == static_cast<int32_t>(Errc::invalid_argument));
}
