// One node lies: it sends every kind of message, with values that it has received and with random ones.
// Groups without it must open and work; a group with it may fail. NEXAR_SIM_SEEDS and _FIRST as everywhere.
#include "support/lies.hpp"

#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"
#include "wire/codec.hpp"

namespace nexar::sim {
namespace {

constexpr uint32_t liar_host = 3;
constexpr Duration lies_for{3s};
constexpr size_t lies_per_seed = 600;

// A lie may be one that nobody can read.
std::string text_of(const lies::Encoded& message) {
    try {
        return lies::to_text(message);
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
}

struct Scene {
    explicit Scene(uint64_t seed) : cluster(seed, shape()), liar(seed) {
        for (auto& host : cluster.hosts)
            host->table = [this](link::PeerIndex, const wire::Message& message) {
                liar.learn(wire::encode(without_key(message)));
                return false;
            };
    }
    // All that can be guessed is known to the liar; a key cannot.
    static wire::Message without_key(wire::Message message) {
        std::visit(
            [](auto& m) {
                if constexpr (requires { m.key; }) m.key = {};
            },
            message);
        return message;
    }
    static ClusterShape shape() {
        ClusterShape out;
        out.nodes = 4;
        out.collective_timeout = 4s;
        return out;
    }
    void work(Program& program) {
        constexpr OpKind kinds[] = {OpKind::all_reduce, OpKind::broadcast, OpKind::all_gather,
                                    OpKind::barrier};
        for (uint32_t i = 0; i < 12; ++i)
            program.add({kinds[i % 4], Dtype::i32, ReduceOp::sum, i % 4 == 3 ? 0 : 1 + 400 * (i % 3), i % 3});
        program.start(lies_for / 14);
    }
    void lie(size_t kind) {
        const lies::Lie sent = liar.lie(kind);
        const auto message = wire::decode(sent.message);
        if (!message) return;  // undecodable: a daemon closes the connection
        const auto to = static_cast<uint32_t>(cluster.clock.random.below(liar_host));
        all += std::to_string(to_ms(cluster.clock.now() - Time{})) + " to " + std::to_string(to) + " " +
               sent.what + " " + text_of(sent.message) + "\n";
        cluster.hosts[to]->engine->on_message(cluster.clock.now(), link::PeerIndex(liar_host), *message);
        cluster.hosts[to]->after_input();
    }
    Cluster cluster;
    lies::Liar liar;
    std::string all;  // the lies that were sent
};

void check_opened(Scene& scene, const std::vector<Cluster::Open>& opens, size_t first) {
    GroupId group;
    for (size_t rank = 0; rank < 2; ++rank) {
        const Cluster::Open& open = opens[first + rank];
        const auto* answer = scene.cluster.answer(open);
        REQUIRE(answer != nullptr);
        INFO((answer->has_value() ? "" : answer->error().text));
        REQUIRE(answer->has_value());
        REQUIRE((*answer)->rank == Rank(static_cast<uint32_t>(rank)));
        REQUIRE((*answer)->size == 2);
        if (rank == 1) REQUIRE((*answer)->id == group);
        group = (*answer)->id;
        for (const auto& member : (*answer)->members)
            REQUIRE(member.node == scene.cluster.hosts[opens[first + member.rank.value].host]->id);
    }
}

void run_seed(uint64_t seed) {
    Scene scene(seed);
    Cluster& cluster = scene.cluster;
    const auto pairs = std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {1, 2}, {2, 2}};
    std::vector<Cluster::Open> opens;
    for (size_t i = 0; i < lies_per_seed; ++i)
        cluster.clock.after(cluster.clock.some(lies_for),
                            [&scene, kind = i % lies::kinds().size()] { scene.lie(kind); });
    for (size_t i = 0; i < 9; ++i) {
        const Duration at = cluster.clock.some(lies_for);
        const auto [a, b] = pairs[i % 3];
        opens.resize(opens.size() + 2);
        for (const uint32_t rank : {0u, 1u})
            cluster.clock.after(at + cluster.clock.some(200ms), [&opens, &cluster, i, rank, a, b] {
                opens[2 * i + rank] = cluster.open(rank == 0 ? a : b, "o" + std::to_string(i), 2, rank,
                                                   i % 3 == 2 ? "" : "s", Duration{20s});
            });
    }
    Program bystander(cluster, cluster.make_group({0, 1, 2}));
    Program with_the_liar(cluster, cluster.make_group({0, 1, liar_host, 1}));
    scene.work(bystander);
    scene.work(with_the_liar);

    cluster.run_for(lies_for + 1s);
    cluster.run(60s);  // every call ends
    cluster.run_for(21s);
    INFO(cluster.unfinished() + cluster.state());
    REQUIRE(cluster.all_ended());
    REQUIRE(cluster.to_be_submitted == 0);
    // No operation is still in flight. Announcements of collectives that no rank here has called are kept
    // until a rank calls them, or has left.
    for (const auto& host : cluster.hosts)
        for (const auto& op : host->engine->snapshot(cluster.clock.now()).ops) REQUIRE(op.age == Duration{0});
    for (uint32_t rank = 0; rank < with_the_liar.group.size(); ++rank)
        cluster.end_session(with_the_liar.group, rank);
    const bool finished = cluster.run(60s);

    // Shows every lie, and the nodes' state at the end.
    const bool is_verbose = environment("NEXAR_SIM_STATE", 0) != 0;
    INFO(cluster.unfinished() + (is_verbose ? "\n" + cluster.state() + scene.all : ""));
    REQUIRE(finished);
    cluster.check();
    REQUIRE(bystander.wrong() == "");
    for (size_t i = 0; i < 9; ++i) {
        CAPTURE(i);
        check_opened(scene, opens, 2 * i);
    }
}

}  // namespace

TEST_CASE("a member that lies harms no group that it is not in, and no daemon", "[H1][H6][lies]") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        run_seed(seed);
    }
}

}  // namespace nexar::sim
