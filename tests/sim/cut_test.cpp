// Connections that are cut at every control message of every protocol, as it leaves or as it arrives, in both
// directions: everything ends as if nothing had been. And a peer that stands still under load.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "program.hpp"

namespace nexar::sim {
namespace {

enum class Moment : uint8_t { never, leaves, arrives };

// What happened, in words that a cut does not change.
struct Story {
    std::vector<std::string> ends;
    size_t messages = 0;
};

class Scene {
  public:
    Scene(Moment moment, size_t cut_at, Duration down) : cluster_(3, shape()), cut_at_(cut_at), down_(down) {
        for (uint32_t i = 0; i < cluster_.hosts.size(); ++i) {
            auto& hook =
                moment == Moment::arrives ? cluster_.hosts[i]->on_arrival : cluster_.hosts[i]->on_append;
            hook = [this, i](link::PeerIndex peer) { count(i, peer.value); };
        }
    }

    Story run() {
        const SimGroup group = open();
        collectives(group);
        messages(group);
        leave(group);
        cluster_.run_for(8s);
        INFO(cluster_.unfinished());
        REQUIRE(cluster_.all_ended());
        cluster_.check();
        for (const auto& [what, call] : calls_) story_.ends.push_back(what + ": " + end_of(*call));
        return story_;
    }

  private:
    static ClusterShape shape() {
        ClusterShape out;
        out.nodes = 3;
        out.collective_timeout = 5s;
        out.engine.unexpected_per_group_max = 6;  // two credits for each rank
        out.engine.late_after = 20ms;
        return out;
    }
    void count(uint32_t host, uint32_t peer) {
        if (story_.messages++ != cut_at_) return;
        cluster_.clock.after(Duration{0}, [this, host, peer] { cluster_.break_channel(host, peer, down_); });
    }
    static std::string end_of(const Call& call) {
        const std::string result = call.out ? std::to_string(std::hash<std::string_view>{}(std::string_view(
                                                  reinterpret_cast<const char*>(call.out_at_end.data()),
                                                  call.ok() ? call.out_at_end.size() : 0)))
                                            : "";
        return std::string(name_of(call.outcome.error.code)) + " " + std::to_string(call.outcome.error.rank) +
               " " + result;
    }
    void wait() { cluster_.run_for(60ms); }
    Call& post(const std::string& what, const SimGroup& group, uint32_t rank, const engine::OpRequest& r,
               std::vector<std::byte> in, size_t out) {
        Call& call = cluster_.submit(group, rank, r, std::move(in), out);
        calls_.emplace_back(what + " of rank " + std::to_string(rank), &call);
        return call;
    }
    Call& sum(const SimGroup& group, uint32_t rank, uint64_t match_id = 0) {
        engine::OpRequest r = request_of({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 300, 0});
        r.descriptor.match_id = match_id;
        return post("sum", group, rank, r, Reference::input(7, rank, 300, Dtype::i32), 1200);
    }
    Call& send(const SimGroup& group, uint32_t from, uint32_t to, uint64_t salt) {
        engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, 20, 0});
        r.peer = to;
        return post("send", group, from, r, Reference::input(salt, from, 20, Dtype::i32), 0);
    }
    Call& receive(const SimGroup& group, uint32_t at, uint32_t from, uint64_t count = 20) {
        engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, count, 0});
        r.peer = from;
        return post("receive", group, at, r, {}, count * 4);
    }

    // Rendezvous: open, prepare, prepared, commit.
    SimGroup open() {
        std::vector<Cluster::Open> opens;
        for (uint32_t i = 0; i < 3; ++i) opens.push_back(cluster_.open(i, "job", 3, i));
        cluster_.run_for(1s);
        SimGroup group;
        group.placement.resize(3);
        group.sessions.resize(3);
        for (const Cluster::Open& open : opens) {
            const auto* answer = cluster_.answer(open);
            REQUIRE(answer != nullptr);
            REQUIRE(answer->has_value());
            group.id = (*answer)->id;
            group.placement[(*answer)->rank.value] = open.host;
            group.sessions[(*answer)->rank.value] = open.session;
        }
        return group;
    }
    // Announcement, query and reply, abort, mismatch.
    void collectives(const SimGroup& group) {
        sum(group, 0);
        wait();
        for (const uint32_t rank : {1u, 2u}) sum(group, rank);
        wait();
        Call& cancelled = sum(group, 1);
        wait();
        cluster_.cancel(group, 1, cancelled);
        wait();
        for (const uint32_t rank : {0u, 2u}) sum(group, rank);
        wait();
        for (const uint32_t rank : {0u, 1u, 2u}) sum(group, rank, rank == 2 ? 1 : 0);
        wait();
        for (const uint32_t rank : {0u, 1u, 2u}) sum(group, rank);
        wait();
    }
    // Offer, credit, withdrawal, refusal.
    void messages(const SimGroup& group) {
        for (uint64_t i = 0; i < 7; ++i) send(group, 0, 1, i);
        wait();
        for (uint64_t i = 0; i < 7; ++i) receive(group, 1, 0);
        wait();
        Call& withdrawn = send(group, 0, 1, 9);
        wait();
        cluster_.cancel(group, 0, withdrawn);
        wait();
        send(group, 2, 1, 10);
        wait();
        receive(group, 1, 2, 5);  // too short
        wait();
        send(group, 0, 1, 11);
        wait();
        receive(group, 1, 0);
        wait();
    }
    // A rank frees the group, one crashes: RankGone, suspicion report, decision.
    void leave(const SimGroup& group) {
        send(group, 1, 2, 12);
        wait();
        REQUIRE(cluster_.free_group(group, 2));
        wait();
        sum(group, 1);
        wait();
        cluster_.end_session(group, 0);
        wait();
        sum(group, 1);
        wait();
        cluster_.end_session(group, 1, false);
    }

    Cluster cluster_;
    size_t cut_at_;
    Duration down_;
    Story story_;
    std::vector<std::pair<std::string, Call*>> calls_;
};

void check_every_cut(Moment moment, Duration down) {
    const Story whole = Scene(moment, SIZE_MAX, down).run();
    REQUIRE(whole.messages > 60);
    for (size_t at = 0; at < whole.messages; ++at) {
        CAPTURE(at, whole.messages);
        const Story cut = Scene(moment, at, down).run();
        REQUIRE(cut.ends == whole.ends);
    }
}

}  // namespace

TEST_CASE("a connection that is cut as any control message leaves changes nothing", "[L2][L4]") {
    check_every_cut(Moment::leaves, 3ms);
}

TEST_CASE("a connection that is cut as any control message arrives changes nothing", "[L2][L4]") {
    check_every_cut(Moment::arrives, 1us);
}

TEST_CASE("a log that is discarded ends the groups that span the two nodes, and no others", "[L7][F20]") {
    ClusterShape shape;
    shape.nodes = 3;
    shape.collective_timeout = Duration{0};
    Cluster cluster(1, shape);
    const SimGroup spanning = cluster.make_group({0, 1, 2}), other = cluster.make_group({0, 2});
    const auto barrier = [&](const SimGroup& group, uint32_t rank) {
        return &cluster.submit(group, rank, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {},
                               0);
    };
    std::vector<Call*> ended, waits{barrier(other, 0)};
    for (const uint32_t rank : {0u, 1u}) ended.push_back(barrier(spanning, rank));
    cluster.run_for(10ms);
    cluster.hosts[1]->meshes[0]->discard_log(link::PeerIndex(0), "a test");
    cluster.hosts[1]->schedule_pump(0);
    cluster.run_for(1s);
    ended.push_back(barrier(spanning, 2));
    waits.push_back(barrier(other, 1));
    cluster.run_for(1s);
    for (const Call* call : ended) {
        CAPTURE(call->outcome.error.text);
        REQUIRE(call->ended);
        CHECK(call->outcome.error.code == Errc::link_lost);
        CHECK(call->outcome.error.rank == 0);
        CHECK(call->outcome.error.other_rank == 1);
    }
    for (const Call* call : waits) CHECK(call->ok());
    // The two nodes have a log again.
    const SimGroup next = cluster.make_group({0, 1});
    std::vector<Call*> both{barrier(next, 0), barrier(next, 1)};
    REQUIRE(cluster.run(10s));
    for (const Call* call : both) CHECK(call->ok());
    cluster.check();
}

TEST_CASE("one user's requests to a peer that stands still take no room from another's", "[L8][N4]") {
    ClusterShape shape;
    shape.collective_timeout = Duration{0};
    shape.mesh.log.requests_bytes_max = 64 << 10;
    shape.mesh.log.account_bytes_max = 16 << 10;
    shape.engine.heartbeat_timeout = 60s;
    Cluster cluster(1, shape);
    const auto open = [&](const std::string& name, uint32_t uid) {
        SimGroup group;
        group.placement = {0, 1};
        std::vector<Cluster::Open> opens;
        for (const uint32_t host : {0u, 1u})
            opens.push_back(cluster.open(host, name, 2, host, "s", Duration{30s}, uid));
        cluster.run_for(100ms);
        for (const auto& one : opens) {
            REQUIRE(cluster.answer(one)->has_value());
            group.id = (*cluster.answer(one))->id;
            group.sessions.push_back(one.session);
        }
        return group;
    };
    const SimGroup first = open("first", 1000), second = open("second", 1001);
    cluster.block(0, 1, true);
    size_t refused = 0;
    const engine::OpRequest barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    for (int i = 0; i < 50; ++i) {
        const Call& call = cluster.submit(first, 0, barrier, {}, 0);
        if (call.accepted) continue;
        ++refused;
        CHECK(call.outcome.error.code == Errc::table_full);
    }
    CHECK(refused > 30);
    Call& of_second = cluster.submit(second, 0, barrier, {}, 0);
    CHECK(of_second.accepted);
    cluster.block(0, 1, false);
    for (uint32_t i = 0; i < 50 - refused; ++i) cluster.submit(first, 1, barrier, {}, 0);
    cluster.submit(second, 1, barrier, {}, 0);
    REQUIRE(cluster.run(10s));
    CHECK(of_second.ok());
    CHECK(cluster.submit(first, 0, barrier, {}, 0).accepted);
    cluster.submit(first, 1, barrier, {}, 0);
    REQUIRE(cluster.run(10s));
    cluster.check();
}

}  // namespace nexar::sim
