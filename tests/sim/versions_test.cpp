// Daemons of different versions in one cluster (docs/protocol/wire.md [V1] to [V6]): one that is a feature
// behind, one that is ahead by a version and by features that nobody else knows, one that is too far ahead.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "nodes.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t unknown_feature = uint64_t{1} << 63;
constexpr Capabilities behind{2, 2, 0, known_features() & ~feature_of(OpKind::all_to_all)};
constexpr Capabilities ahead{2, 3, 0, known_features() | unknown_feature | feature_of_plan(2)};
constexpr Capabilities far_ahead{3, 4, 0, ahead.features};

ClusterShape shape_with(std::map<uint32_t, Capabilities> capabilities, bool connected) {
    ClusterShape shape;
    shape.nodes = connected ? 3 : 0;
    shape.connected = connected;
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    shape.capabilities = std::move(capabilities);
    return shape;
}

std::string address(uint32_t identity) {
    return "10.0.0." + std::to_string(identity + 1) + ":1";
}

std::vector<uint32_t> start_nodes(Cluster& cluster, Nodes& nodes) {
    std::vector<uint32_t> hosts{nodes.start(0, 1, address(0), {})};
    for (uint32_t i = 1; i < 3; ++i) hosts.push_back(nodes.start(i, 1, address(i), {address(0)}));
    cluster.run_for(4s);
    return hosts;
}

struct Run {
    std::string wrong, wrong_results;
    std::set<std::string> errors;
    size_t ok = 0;
};
// An all_to_all between two all_reduces, of one rank on each of these hosts.
Run run_job(Cluster& cluster, const std::vector<uint32_t>& hosts, const std::string& name) {
    std::vector<std::unique_ptr<App>> apps;
    std::vector<App*> members;
    for (const uint32_t host : hosts) {
        apps.push_back(std::make_unique<App>(cluster, host));
        members.push_back(apps.back().get());
    }
    Job job(cluster, name, members);
    for (const OpKind kind : {OpKind::all_reduce, OpKind::all_to_all, OpKind::all_reduce})
        job.add({kind, Dtype::i32, ReduceOp::sum, 3000, 0});
    job.start(50us, 2);
    cluster.run(60s);
    Run out{job.wrong(), job.wrong_results(), job.errors(), job.calls_ok()};
    for (auto& app : apps) app->kill();
    cluster.run_for(10ms);
    return out;
}

}  // namespace

TEST_CASE("daemons that are a feature behind and a version ahead work with the others, by what all have",
          "[V1][V2][V5][V6]") {
    for (const uint64_t seed : seeds(15)) {
        CAPTURE(seed);
        // Each of the three leads in turn: the lowest NodeId does.
        const auto turn = static_cast<uint32_t>(seed % 3);
        const uint32_t older = turn, newer = (turn + 1) % 3, present = (turn + 2) % 3;
        Cluster cluster(seed, shape_with({{older, behind}, {newer, ahead}}, false));
        Nodes nodes(cluster);
        const auto hosts = start_nodes(cluster, nodes);
        REQUIRE(nodes.meshed(hosts));
        const auto agreed_with = [&](uint32_t at, uint32_t peer) {
            return nodes.table(hosts[at]).info_of(cluster.hosts[hosts[peer]]->id)->agreed;
        };
        REQUIRE(agreed_with(present, newer) == Agreed{2, known_features()});
        REQUIRE(agreed_with(newer, present) == Agreed{2, known_features()});
        REQUIRE(agreed_with(newer, older) == Agreed{2, behind.features});
        REQUIRE(agreed_with(older, present) == Agreed{2, behind.features});

        const Run all = run_job(cluster, hosts, "all");
        for (const std::string& error : all.errors) UNSCOPED_INFO(error);
        REQUIRE(all.wrong_results == "");
        REQUIRE(all.ok == 6);  // the all_reduces: the one that was refused took no number
        REQUIRE(all.errors.size() == 1);
        const Host& lacking = *cluster.hosts[hosts[older]];
        for (const std::string& word :
             {std::string("all_to_all"), lacking.id.short_hex(), lacking.hostname()})
            REQUIRE(all.errors.begin()->contains(word));

        const Run two = run_job(cluster, {hosts[present], hosts[newer]}, "two");
        REQUIRE(two.wrong == "");
        cluster.check();
    }
}

TEST_CASE("frames of a later version, with longer headers and entries, carry the same results", "[V3]") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Random random(seed);
        ClusterShape shape = shape_with({{static_cast<uint32_t>(seed % 3), ahead}}, true);
        shape.network.jitter = Duration(static_cast<int64_t>(random.below(300'000)));
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1, 2, 2, 0}));
        for (const OpKind kind : collective_kinds)
            for (const uint64_t count : {1u, 300u, 9000u})
                program.add({kind, Dtype::i32, ReduceOp::sum, count, 1});
        program.start(100us, 3);
        for (int i = 0; i < 4; ++i)
            cluster.clock.after(cluster.clock.some(3ms), [&cluster, &random] {
                cluster.break_channel(0, static_cast<uint32_t>(1 + random.below(2)), 50us);
            });
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
        cluster.check();
    }
}

TEST_CASE("an operation that a node of the group lacks is UNSUPPORTED on all ranks, naming the node",
          "[V6]") {
    Cluster cluster(1, shape_with({{1, behind}}, true));
    const SimGroup group = cluster.make_group({0, 1, 2, 1, 0});
    engine::OpRequest words;
    words.descriptor = {OpKind::all_to_all, Dtype::i32, ReduceOp::sum, 10, 0};
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
        const Call& call = cluster.submit(group, rank, words, std::vector<std::byte>(200), 200);
        const Error& error = call.outcome.error;
        REQUIRE_FALSE(call.accepted);
        REQUIRE(error.code == Errc::unsupported);
        REQUIRE(error.rank == 1);
        REQUIRE(error.node == cluster.hosts[1]->id.hex());
        REQUIRE(error.host == "host1");
        REQUIRE(error.pid == 1001);
        REQUIRE(error.text.contains("all_to_all"));
    }
    cluster.run_for(100ms);
    for (uint32_t from = 0; from < 3; ++from)
        for (uint32_t to = 0; to < 3; ++to)
            if (from != to) REQUIRE(cluster.bytes_sent(from, to) == 0);
    const SimGroup without = cluster.make_group({0, 2});
    for (uint32_t rank = 0; rank < 2; ++rank)
        REQUIRE(cluster.submit(without, rank, words, std::vector<std::byte>(80), 80).accepted);
    REQUIRE(cluster.run());
    cluster.check();
}

TEST_CASE("partials that a node of the group lacks are UNSUPPORTED on all ranks, naming the node",
          "[Z3][V6]") {
    for (const Partials partials : {Partials::tree, Partials::wide}) {
        const Capabilities without{2, 2, 0, known_features() & ~feature_of(partials)};
        Cluster cluster(1, shape_with({{1, without}}, true));
        const SimGroup group = cluster.make_group({0, 1, 2});
        OpDescriptor words{OpKind::all_reduce, Dtype::bf16, ReduceOp::sum, 10, 0};
        words.partials = partials;
        for (uint32_t rank = 0; rank < group.size(); ++rank) {
            const Call& call = cluster.submit(group, rank, request_of(words), std::vector<std::byte>(20), 20);
            REQUIRE_FALSE(call.accepted);
            REQUIRE(call.outcome.error.code == Errc::unsupported);
            REQUIRE(call.outcome.error.rank == 1);
            REQUIRE(call.outcome.error.text.contains(text_of(partials)));
        }
        words.partials = partials == Partials::tree ? Partials::wide : Partials::tree;
        Program program(cluster, group);
        program.add(words);
        program.add({OpKind::all_reduce, Dtype::bf16, ReduceOp::sum, 10, 0});
        program.start(100us);
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
        cluster.check();
    }
}

TEST_CASE("a type or a reduction that a node of the group lacks is UNSUPPORTED on all ranks, naming the node",
          "[V6]") {
    constexpr Capabilities few_types{2, 2, 0, known_features() & ~feature_of_types(base_types, 0)};
    Cluster cluster(1, shape_with({{1, few_types}}, true));
    const SimGroup group = cluster.make_group({0, 1, 2});
    for (const OpDescriptor& lacking :
         {OpDescriptor{OpKind::all_reduce, Dtype::u8, ReduceOp::band, 10, 0},
          OpDescriptor{OpKind::all_reduce, Dtype::f8e5m2, ReduceOp::sum, 10, 0},
          OpDescriptor{OpKind::broadcast, Dtype::boolean, ReduceOp::sum, 10, 0}})
        for (uint32_t rank = 0; rank < group.size(); ++rank) {
            const Call& call =
                cluster.submit(group, rank, request_of(lacking), std::vector<std::byte>(10), 10);
            const Error& error = call.outcome.error;
            REQUIRE_FALSE(call.accepted);
            REQUIRE(error.code == Errc::unsupported);
            REQUIRE(error.rank == 1);
            REQUIRE(error.text.contains(lacking.text()));
            REQUIRE(error.text.contains("without this type or reduction"));
        }
    Program program(cluster, group);
    program.add({OpKind::all_reduce, Dtype::u8, ReduceOp::sum, 10, 0});
    program.start(100us);
    REQUIRE(cluster.run());
    REQUIRE(program.wrong() == "");
    cluster.check();
}

TEST_CASE("a daemon without a version in common is refused on both ends, and changes nothing for the others",
          "[V1]") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        const auto outsider = static_cast<uint32_t>(seed % 3);
        Cluster cluster(seed, shape_with({{outsider, far_ahead}}, false));
        Nodes nodes(cluster);
        const auto hosts = start_nodes(cluster, nodes);
        for (uint32_t i = 0; i < 3; ++i)
            for (uint32_t j = 0; j < 3; ++j) {
                if (i == j) continue;
                const bool refused = i == outsider || j == outsider;
                const auto connection = nodes.table(hosts[i]).connection_of(cluster.hosts[hosts[j]]->id);
                REQUIRE(connection.has_value() != (refused || (outsider == 0)));
            }
        const std::string older = cluster.hosts[hosts[outsider == 0 ? 1 : 0]]->id.short_hex();
        bool named = false;
        for (const uint32_t host : hosts)
            for (const std::string& note : nodes.notes(host))
                named |= note.starts_with("peer_refused") && note.contains("speaks nexar/3 to nexar/4") &&
                         note.contains("speaks nexar/2") && note.contains("upgrade node " + older);
        REQUIRE(named);
        if (outsider == 0) continue;  // the only address that the others know: they do not meet
        REQUIRE(run_job(cluster, {hosts[outsider == 1 ? 2 : 1], hosts[0]}, "job").wrong == "");
        cluster.check();
    }
}

}  // namespace nexar::sim
