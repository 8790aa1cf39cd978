// A member that asks about creates without end (CreateQuery): what each question costs the node that is
// asked, and what it leaves there (docs/protocol/children.md [Y25]).
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <vector>

#include "creation.hpp"

namespace nexar::sim {
namespace {

using Ranks = Creation::Ranks;
constexpr uint32_t local_ranks = 8;    // of node 1: ranks 1 to 8
constexpr uint64_t questions = 2'000;  // of each flood

// Creates of all ranks of node 1 that wait for rank 0, which is on node 0: `tags` of each rank.
void wait_in_creates(Cluster& cluster, const SimGroup& parent, uint64_t tags) {
    for (uint32_t rank = 1; rank <= local_ranks; ++rank)
        for (uint64_t tag = 0; tag < tags; ++tag) {
            const auto call = create(cluster, parent, rank, {{rank, 0}, tag, 60s});
            REQUIRE(call.accepted);
        }
}

wire::CreateQuery query(const SimGroup& parent, uint64_t tag, Ranks ranks,
                        std::vector<wire::CreateCall> callers) {
    return {parent.id, 1, tag, std::move(ranks), std::move(callers), 1};
}

struct Flood {
    const char* what;
    uint64_t looks_max;  // at creates, calls and ranks, of each question
    std::function<wire::CreateQuery(uint64_t)> nth;
};

std::vector<Flood> floods(const SimGroup& parent) {
    constexpr uint64_t once = local_ranks + 1, twice = 3 * local_ranks + 1;
    const Ranks all{0, 1, 2, 3, 4, 5, 6, 7, 8}, own{0};
    GroupId unknown = parent.id;
    unknown.counter += 1000;
    return {
        {"unknown groups", 0,
         [=](uint64_t n) {
             wire::CreateQuery out = query(parent, 0, all, {{0, n}});
             out.group = unknown, out.group.counter += n;
             return out;
         }},
        {"other epochs", 0,
         [=](uint64_t n) {
             wire::CreateQuery out = query(parent, 0, all, {{0, n}});
             out.epoch = static_cast<uint32_t>(2 + n);
             return out;
         }},
        {"callers of another node", 0, [=](uint64_t n) { return query(parent, 0, all, {{1, n}}); }},
        {"no callers", 0, [=](uint64_t) { return query(parent, 0, all, {}); }},
        {"lists beyond the parent", 0,
         [=](uint64_t n) { return query(parent, 0, Ranks(10 + n % 99, 1), {{0, n}}); }},
        {"tags that nobody gave", once, [=](uint64_t n) { return query(parent, 1000 + n, all, {{0, n}}); }},
        {"tags that all gave", twice, [=](uint64_t n) { return query(parent, n % 5, all, {{0, n}}); }},
        {"lists of nobody", twice, [=](uint64_t n) { return query(parent, n % 5, own, {{0, n}}); }},
        {"ranks that are none", twice, [=](uint64_t n) {
             return query(parent, n % 5, Ranks(9, UINT32_MAX - static_cast<uint32_t>(n)), {{0, n}});
         }}};
}

}  // namespace

TEST_CASE(
    "[Y25] a question about creates costs the same however many wait, and a flood of them leaves nothing") {
    for (const uint64_t tags : {5u, 100u}) {
        Cluster cluster(1, shape_of(2));
        std::vector<uint32_t> placement(1 + local_ranks, 1);
        placement[0] = 0;
        const SimGroup parent = cluster.make_group(placement), other = cluster.make_group(placement);
        wait_in_creates(cluster, parent, tags);
        wait_in_creates(cluster, other, tags);
        cluster.run_for(10ms);
        Host& asked = *cluster.hosts[1];
        const TenantRef user = asked.tenants.of("", 1000 + parent.id.counter % 3);
        const auto usage = [&] {
            return std::array{user->used(Resource::groups), user->used(Resource::scratch_bytes),
                              user->used(Resource::requests)};
        };
        const auto before = usage();
        cluster.block(1, 0, true);  // so the answers stay
        for (const Flood& flood : floods(parent)) {
            CAPTURE(flood.what, tags);
            for (uint64_t n = 1; n <= questions; ++n) {
                const uint64_t looked = asked.engine->creates_looked_at();
                asked.engine->on_message(cluster.clock.now(), link::PeerIndex(0), flood.nth(n));
                REQUIRE(asked.engine->creates_looked_at() - looked <= flood.looks_max);
            }
            asked.after_input();
            REQUIRE(usage() == before);
            REQUIRE(asked.meshes[0]->log_of(link::PeerIndex(0))->bytes_of(link::Account(user->number)) <=
                    link::ControlLogConfig{}.account_bytes_max);
        }
        cluster.block(1, 0, false);
        // What was asked about goes on: rank 0 calls, and the create is complete.
        Creation made(cluster, parent, {3, 0}, 2);
        REQUIRE(made.start(0));
        cluster.run_for(500ms);
        REQUIRE(made.ok(0));
        cluster.check();
    }
}

}  // namespace nexar::sim
