// A hostile member's messages about a group end nothing but its own ranks' operations.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <vector>

#include "program.hpp"
#include "support/proofs.hpp"

namespace nexar::sim {
namespace {

constexpr OpDescriptor large_sum{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0};

void deliver(Cluster& cluster, uint32_t to, uint32_t from, const wire::Message& message) {
    cluster.hosts[to]->engine->on_message(cluster.clock.now(), link::PeerIndex(from), message);
    cluster.hosts[to]->after_input();
}

engine::OpRequest receive_any() {
    engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, 500, 0});
    r.peer = engine::any_rank;
    r.any_tag = true;
    return r;
}

}  // namespace

TEST_CASE("a message under the number of a collective, or of another node's message, ends nothing") {
    for (const bool offer : {false, true})
        for (const bool of_message : {false, true}) {
            CAPTURE(offer, of_message);
            ClusterShape shape;
            shape.nodes = 3;
            Cluster cluster(1, shape);
            Program program(cluster, cluster.make_group({0, 1, 2}));
            program.add(large_sum);
            program.add(large_sum);
            for (size_t step = 0; step < 2; ++step) program.post(step, 0);
            engine::OpRequest send = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, 500, 0});
            send.peer = 2;
            Call& sent = cluster.submit(program.group, 0, send, Reference::input(3, 0, 500, Dtype::i32), 0);
            Call& other = cluster.submit(program.group, 0, receive_any(), {}, 2000);
            cluster.run_for(1ms);
            // Rank 0's first message has this number.
            const uint64_t number = of_message ? link::OpKey::message_bit | 1 : 1;
            if (offer)
                deliver(cluster, 0, 1, wire::MessageOffer{program.group.id, 1, 1, 0, 0, 2000, 5, number});
            else
                deliver(cluster, 0, 1, wire::MessageWithdraw{program.group.id, number});
            cluster.run_for(1ms);
            for (uint32_t rank = 1; rank < 3; ++rank)
                for (size_t step = 0; step < 2; ++step) program.post(step, rank);
            Call& received = cluster.submit(program.group, 2, receive_any(), {}, 2000);
            send.peer = 0;
            cluster.submit(program.group, 1, send, Reference::input(4, 0, 500, Dtype::i32), 0);

            const bool finished = cluster.run(10s);

            INFO(cluster.unfinished());
            REQUIRE(finished);
            cluster.check();
            REQUIRE(program.wrong() == "");
            REQUIRE((sent.ok() && received.ok() && other.ok()));
            REQUIRE(received.out_at_end == Reference::input(3, 0, 500, Dtype::i32));
            REQUIRE(other.out_at_end == Reference::input(4, 0, 500, Dtype::i32));
        }
}

TEST_CASE("a group that all its ranks have left is forgotten, though another node announced a collective") {
    ClusterShape shape;
    Cluster cluster(1, shape);
    const SimGroup group = cluster.make_group({0, 1});
    for (const uint64_t seq : {0u, 7u})
        deliver(cluster, 0, 1, wire::OpAnnounce{group.id, 1, seq, 1, 5, 0, 500, 0, 1});
    for (uint32_t rank = 0; rank < 2; ++rank) cluster.end_session(group, rank, false);
    cluster.run_for(1s);
    for (const auto& host : cluster.hosts)
        REQUIRE(host->engine->snapshot(cluster.clock.now()).groups.empty());
}

TEST_CASE(
    "a group that only a send keeps goes with it, whatever is sent about collectives that no rank can call") {
    ClusterShape shape;
    Cluster cluster(1, shape);
    const SimGroup group = cluster.make_group({0, 1});
    engine::OpRequest send = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, 500, 0});
    send.peer = 1;
    cluster.submit(group, 0, send, Reference::input(3, 0, 500, Dtype::i32), 0);
    cluster.run_for(1ms);
    REQUIRE(cluster.free_group(group, 0));  // sends go on
    const auto groups_of_node_0 = [&] {
        return cluster.hosts[0]->engine->snapshot(cluster.clock.now()).groups.size();
    };
    REQUIRE(groups_of_node_0() == 1);

    for (const uint64_t seq : {uint64_t{0}, UINT64_MAX - 1, UINT64_MAX}) {
        deliver(cluster, 0, 1, wire::OpAbort{group.id, 1, seq, {Errc::aborted, "made up", 1, -1, {}}});
        deliver(cluster, 0, 1, wire::OpAnnounce{group.id, 1, seq, 1, 5, 0, 500, 0, 1});
    }
    const Call& received = cluster.submit(group, 1, receive_any(), {}, 2000);
    cluster.run_for(1s);

    REQUIRE(received.ok());
    REQUIRE(groups_of_node_0() == 0);
    cluster.check();
}

TEST_CASE(
    "a collective whose transfers the link has given up, though the peer is alive, ends at its deadline") {
    ClusterShape shape;
    shape.collective_timeout = 2s;
    Cluster cluster(1, shape);
    Program program(cluster, cluster.make_group({0, 1}));
    program.add(large_sum);
    program.post(0, 0);
    for (uint64_t handle = 1; handle < 16; ++handle) {
        link::MeshEvent failed;
        failed.kind = link::MeshEvent::Kind::failed;
        failed.handle = handle;
        cluster.hosts[0]->engine->on_mesh_event(cluster.clock.now(), failed);
    }
    cluster.hosts[0]->after_input();
    cluster.run_for(4s);
    REQUIRE(program.steps[0].calls[0]->ended);
    REQUIRE(program.steps[0].calls[0]->outcome.error.code == Errc::timed_out);
}

TEST_CASE("a transfer that cannot be begun ends its operation as a mismatch, also without a deadline",
          "[H12]") {
    ClusterShape shape;
    shape.collective_timeout = Duration{0};
    Cluster cluster(1, shape);
    Program program(cluster, cluster.make_group({0, 1}));
    program.add(large_sum);
    program.post(0, 0);
    for (uint64_t handle = 1; handle < 16; ++handle) {
        link::MeshEvent failed;
        failed.kind = link::MeshEvent::Kind::failed;
        failed.handle = handle;
        failed.text = "the number of the transfer was used before";
        cluster.hosts[0]->engine->on_mesh_event(cluster.clock.now(), failed);
    }
    cluster.hosts[0]->after_input();
    cluster.run_for(100ms);
    program.post(0, 1);
    cluster.run_for(100ms);
    for (const Call* call : program.steps[0].calls) {
        REQUIRE(call->ended);
        CAPTURE(call->outcome.error.text);
        REQUIRE(call->outcome.error.code == Errc::mismatch);
    }
}

TEST_CASE("a node reports its own ranks only: it cannot blame another node's for an operation that is late") {
    for (const bool twice : {false, true}) {
        CAPTURE(twice);
        ClusterShape shape;
        shape.nodes = 3;
        shape.collective_timeout = 2s;
        Cluster cluster(1, shape);
        Program program(cluster, cluster.make_group({0, 1, 2}));
        program.add(large_sum);
        size_t asked = 0;
        cluster.hosts[1]->table = [&](link::PeerIndex from, const wire::Message& message) {
            const auto* query = std::get_if<wire::ArrivalQuery>(&message);
            if (query == nullptr || from.value != 0) return false;
            ++asked;
            wire::ArrivalReply lie{program.group.id, query->nonce, {{twice ? 1u : 2u, 0, true}}};
            for (int i = 0; i < (twice ? 1000 : 0); ++i) lie.ranks.push_back({1, 0, true});
            cluster.clock.after(1us, [&cluster, lie] { deliver(cluster, 0, 1, lie); });
            return true;
        };
        program.post(0, 0);
        program.post(0, 2);

        cluster.run_for(4s);

        REQUIRE(asked > 0);
        const std::string& text = program.steps[0].calls[0]->outcome.error.text;
        CAPTURE(text);
        REQUIRE(text.contains("not arrived: "));
        // Before that the text names the rank whose deadline has passed.
        REQUIRE_FALSE(text.substr(text.find("not arrived: ")).contains("rank 2"));
        REQUIRE_FALSE(text.contains("moved"));
    }
}

TEST_CASE("an announcement of an operation that is not known ends it as a mismatch, on all ranks", "[H1]") {
    constexpr uint8_t all_reduce = 1, i32 = 5, sum = 0;
    struct Unknown {
        std::array<uint8_t, 4> numbers;  // kind, type, operator, partials
        std::string named;
    };
    const std::vector<Unknown> unknown{
        {{all_reduce, 19, sum, 0}, "type 19 (it knows 0 to 18)"},
        {{all_reduce, 63, sum, 0}, "type 63"},
        {{all_reduce, 255, sum, 0}, "type 255"},
        {{all_reduce, i32, 14, 0}, "operator 14 (it knows 0 to 13)"},
        {{all_reduce, i32, 255, 0}, "operator 255"},
        {{6, i32, sum, 0}, "kind 6 as a collective"},
        {{63, i32, sum, 0}, "kind 63 (it knows 0 to 23)"},
        {{all_reduce, i32, sum, 3}, "partials 3 (it knows 0 to 2)"},
        {{255, 255, 255, 255}, "operator 255 (it knows 0 to 13), partials 255 (it knows 0 to 2)"}};
    for (const bool posted_first : {true, false})
        for (const auto& [numbers, named] : unknown) {
            const auto [kind, dtype, op, partials] = numbers;
            CAPTURE(posted_first, kind, dtype, op, partials);
            ClusterShape shape;
            shape.nodes = 3;
            shape.collective_timeout = Duration{0};
            Cluster cluster(1, shape);
            Program program(cluster, cluster.make_group({0, 1, 2}));
            program.add(large_sum);
            const auto post = [&] {
                for (uint32_t rank = 0; rank < 2; ++rank) program.post(0, rank);
                cluster.run_for(10ms);
            };
            if (posted_first) post();
            deliver(cluster, 0, 2,
                    wire::OpAnnounce{program.group.id, 1, 0, kind, dtype, op, 500, 0, 2, 0, 0, 0, partials});
            cluster.run_for(10ms);
            if (!posted_first) post();

            for (uint32_t rank = 0; rank < 2; ++rank) {
                const Call& call = *program.steps[0].calls[rank];
                CAPTURE(rank, call.outcome.error.text);
                REQUIRE(call.ended);
                REQUIRE(call.outcome.error.code == Errc::mismatch);
                REQUIRE(call.outcome.error.text.contains(named));
                REQUIRE(call.outcome.error.rank == 2);
                REQUIRE(call.outcome.error.node == cluster.hosts[2]->id.hex());
            }
            cluster.check();
        }
}

TEST_CASE("a message of elements that are not known is a mismatch for its sender and its receiver", "[H1]") {
    for (const uint8_t dtype : std::initializer_list<uint8_t>{reduce::dtype_count, 63, 255}) {
        CAPTURE(dtype);
        ClusterShape shape;
        Cluster cluster(1, shape);
        const SimGroup group = cluster.make_group({0, 1});
        std::optional<Error> answer;
        cluster.hosts[1]->table = [&](link::PeerIndex, const wire::Message& message) {
            const auto* refused = std::get_if<wire::MessageRefused>(&message);
            if (refused != nullptr) answer = refused->error;
            return refused != nullptr;
        };
        Call& recv = cluster.submit(group, 0, receive_any(), {}, 2000);
        const uint64_t number = link::OpKey::message_bit | uint64_t{1} << 40 | 1;
        deliver(cluster, 0, 1, wire::MessageOffer{group.id, 1, 1, 0, 0, 2000, dtype, number});
        cluster.run_for(10ms);
        REQUIRE(recv.ended);
        REQUIRE(recv.outcome.error.code == Errc::mismatch);
        REQUIRE(answer);
        REQUIRE(answer->code == Errc::mismatch);
    }
}

TEST_CASE("a group is made once: a commit of one that exists, or existed, opens nothing") {
    for (const bool over : {false, true}) {
        CAPTURE(over);
        ClusterShape shape;
        Cluster cluster(1, shape);
        const SimGroup old = cluster.make_group({0, 1});
        if (over)
            for (uint32_t rank = 0; rank < 2; ++rank) cluster.end_session(old, rank, false);
        wire::GroupOpen asked;  // what the leader receives
        cluster.hosts[0]->table = [&](link::PeerIndex, const wire::Message& message) {
            if (const auto* o = std::get_if<wire::GroupOpen>(&message)) asked = *o;
            return false;
        };
        const auto open = cluster.open(1, "g", 2, 0);
        REQUIRE(open.accepted);
        cluster.run_for(10ms);
        const Host &host = *cluster.hosts[1], &leader = *cluster.hosts[0];
        wire::GroupPrepare prepare;
        prepare.group = old.id;
        prepare.epoch = 1;
        prepare.name = "g";
        prepare.plan = shape.plan;
        prepare.plan.version = 1;  // the members name no features
        prepare.timeouts = {1000, 1000, 1000};
        prepare.key = asked.key;
        prepare.members = {{asked.id, host.id, 0, 1, host.incarnation, 0, asked.nonce},
                           {{leader.id, 1}, leader.id, 1, 1, leader.incarnation, 0, {}}};
        deliver(cluster, 1, 0, prepare);
        const auto port = test::proof_port();
        const rendezvous::Proof proof(port, *test::credentials_of("s", "g", 0).proof, prepare);
        std::map<NodeId, wire::Tag> tags;
        for (const Host* one : {&host, &leader}) tags[one->id] = proof.tag_of(one->id, one->incarnation);
        wire::GroupCommit commit{old.id, {}};
        for (const auto& [node, tag] : tags) commit.tags.push_back(tag);
        deliver(cluster, 1, 0, commit);
        cluster.run_for(1s);
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        REQUIRE_FALSE(answer->has_value());
        REQUIRE(answer->error().code == Errc::protocol_error);
    }
}

}  // namespace nexar::sim
