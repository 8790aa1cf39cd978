// What one user of a daemon may take from the others: a share, never all.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "post.hpp"
#include "program.hpp"

namespace nexar::sim {
namespace {

constexpr uint32_t greedy = 2001, other = 2002;

// Opens a group of `size` by a new session of this user every 32 opens; whether the open was accepted.
class User {
  public:
    User(Cluster& cluster, uint32_t uid) : cluster_(cluster), uid_(uid) {}

    bool open(uint32_t size) {
        Host& host = *cluster_.hosts[0];
        if (opens_++ % 32 == 0) session_ = cluster_.new_session();
        ticket_ = host.next_ticket++;
        const std::string name = std::to_string(uid_) + "-" + std::to_string(opens_);
        const engine::OpenRequest request{session_, ticket_, name, size, 0, {}, host.tenants.of("", uid_),
                                          4000,     0,       60s};
        const bool accepted = host.engine->open(cluster_.clock.now(), request).has_value();
        host.after_input();
        return accepted;
    }
    // Opens a group for itself alone, which needs nobody else.
    bool has_group() {
        if (!open(1)) return false;
        cluster_.run_for(10ms);
        const auto& opened = cluster_.hosts[0]->opened;
        const auto at = opened.find({session_.value, ticket_});
        return at != opened.end() && at->second.has_value();
    }

  private:
    Cluster& cluster_;
    uint32_t uid_;
    uint64_t opens_ = 0;
    SessionId session_;
    uint64_t ticket_ = 0;
};

ClusterShape one_node() {
    ClusterShape shape;
    shape.nodes = 1;
    return shape;
}

}  // namespace

TEST_CASE("one user who makes groups as long as there is room leaves room for the others", "[N1][H8]") {
    ClusterShape shape = one_node();
    shape.tenants.total(Resource::groups) = 64;
    Cluster cluster(1, shape);
    User taker(cluster, greedy), neighbour(cluster, other);
    for (size_t i = 0; i < 64 && taker.has_group(); ++i) {
    }

    CHECK(neighbour.has_group());
}

TEST_CASE("one user who opens groups that never fill, as long as there is room, leaves room for the others",
          "[N1][H8]") {
    ClusterShape shape = one_node();
    shape.tenants.total(Resource::groups) = 4096;
    Cluster cluster(1, shape);
    User taker(cluster, greedy), neighbour(cluster, other);
    for (size_t i = 0; i < 4096 && taker.open(2); ++i) {
    }

    CHECK(neighbour.has_group());
}

TEST_CASE("an operation looks at its own group, however many others there are", "[H17]") {
    const auto looks = [](size_t foreign) {
        Cluster cluster(1, one_node());
        User neighbour(cluster, other);
        for (size_t i = 0; i < foreign; ++i)
            if (!neighbour.has_group()) return uint64_t{0};
        const SimGroup group = cluster.make_group({0, 0});
        const uint64_t before = cluster.hosts[0]->engine->groups_visited();
        for (uint32_t rank = 0; rank < 2; ++rank)
            cluster.submit(group, rank, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {}, 0);
        cluster.run_for(100ms);
        return cluster.hosts[0]->engine->groups_visited() - before;
    };

    CHECK(looks(500) <= looks(5));
}

namespace {

std::vector<std::string> names_of(const engine::Snapshot& snapshot) {
    std::vector<std::string> out;
    for (const auto& group : snapshot.groups) out.push_back(group.name);
    for (const auto& forming : snapshot.forming) out.push_back("forming " + forming.name);
    std::ranges::sort(out);
    return out;
}

engine::SnapshotScope of(uint32_t uid, const std::string& group = {}, size_t rows = 8192) {
    return {.tenant = TenantName{"", uid}, .group = group, .rows_max = rows};
}

void open_both(Cluster& cluster, const std::string& name, uint32_t uid) {
    for (int64_t rank = 0; rank < 2; ++rank) cluster.open(0, name, 2, rank, "", 60s, uid);
}

uint64_t requests_of(const Cluster& cluster) {
    return cluster.hosts[0]->tenants.totals().used[static_cast<size_t>(Resource::requests)].load();
}

// Requests of rank 0 that nobody answers, as many as are accepted, and `most` in all.
size_t fill(Post& post, size_t most, bool collectives) {
    const auto barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    for (size_t i = 0; i < most; ++i) {
        const Call& call =
            collectives ? post.cluster.submit(post.group, 0, barrier, {}, 0) : post.recv(0, 1, 1, 4);
        if (!call.ended) continue;
        CHECK(call.outcome.error.code == Errc::table_full);
        CHECK(call.outcome.error.text.find("requests_max") != std::string::npos);
        return i;
    }
    return most;
}

}  // namespace

TEST_CASE("what a user is shown has his groups and those that he waits for, and nothing of others",
          "[U12][C8]") {
    Cluster cluster(1, one_node());
    const engine::Engine& engine = *cluster.hosts[0]->engine;
    for (const uint32_t uid : {greedy, other}) {
        open_both(cluster, "made by " + std::to_string(uid), uid);
        cluster.open(0, "awaited by " + std::to_string(uid), 2, 0, "", 60s, uid);
    }
    cluster.run_for(100ms);
    const Time now = cluster.clock.now();

    CHECK(names_of(engine.snapshot(now)).size() == 4);
    CHECK(names_of(engine.snapshot(now, of(other))) ==
          std::vector<std::string>{"forming awaited by 2002", "made by 2002"});
    CHECK(names_of(engine.snapshot(now, {.tenant = TenantName{"label", other}})).empty());
    CHECK(names_of(engine.snapshot(now, of(2003))).empty());
}

TEST_CASE("what a user is shown is bounded, and a group that is named is shown", "[U12][C8]") {
    Cluster cluster(1, one_node());
    for (int i = 0; i < 8; ++i) open_both(cluster, "group " + std::to_string(i), other);
    cluster.run_for(100ms);
    const engine::Engine& engine = *cluster.hosts[0]->engine;
    const Time now = cluster.clock.now();

    const auto some = engine.snapshot(now, of(other, "", 6));
    CHECK(some.groups.size() == 3);
    CHECK(some.omitted_groups == 5);
    for (int i = 0; i < 8; ++i) {
        const auto one = engine.snapshot(now, of(other, "group " + std::to_string(i), 6));
        REQUIRE(one.groups.size() == 1);
        CHECK(one.omitted_groups == 0);
    }
}

TEST_CASE("a question looks at what it shows, however many groups and opens there are", "[N17][C8]") {
    constexpr int groups = 500;
    Cluster cluster(1, one_node());
    for (int i = 0; i < groups; ++i) {
        open_both(cluster, "group " + std::to_string(i), greedy);
        cluster.open(0, "awaited " + std::to_string(i), 2, 0, "", 60s, greedy);
    }
    open_both(cluster, "mine", other);
    cluster.open(0, "awaited", 2, 0, "", 60s, other);
    cluster.run_for(1s);
    const engine::Engine& engine = *cluster.hosts[0]->engine;
    const auto looks = [&](const engine::SnapshotScope& scope, size_t shown, size_t omitted) {
        const uint64_t before = engine.rows_looked_at();
        const auto snapshot = engine.snapshot(cluster.clock.now(), scope);
        CHECK(snapshot.groups.size() == shown);
        CHECK(snapshot.forming.size() <= 6);
        CHECK(snapshot.omitted_groups == omitted);
        return engine.rows_looked_at() - before;
    };

    CHECK(looks(of(other), 1, 0) < 20);
    CHECK(looks(of(greedy, "group 7"), 1, 0) < 20);
    CHECK(looks(of(other, "group 7"), 0, 0) == 0);
    CHECK(looks(of(greedy, "", 6), 3, groups - 3) < 40);
    CHECK(looks({.rows_max = 6}, 3, groups + 1 - 3) < 40);
    CHECK(engine.groups({}) == groups + 1);
    CHECK(engine.groups(TenantName{"", greedy}) == groups);
    CHECK(engine.groups(TenantName{"", other}) == 1);
    CHECK(engine.groups(TenantName{"", 2003}) == 0);
}

TEST_CASE("collectives in flight are counted as they begin and end", "[N17]") {
    Cluster cluster(1, one_node());
    const SimGroup group = cluster.make_group({0, 0});
    const engine::Engine& engine = *cluster.hosts[0]->engine;
    const auto barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    for (int i = 0; i < 3; ++i) cluster.submit(group, 0, barrier, {}, 0);
    cluster.run_for(1ms);
    CHECK(engine.collectives() == 3);

    cluster.submit(group, 1, barrier, {}, 0);
    cluster.run_for(100ms);
    CHECK(engine.collectives() == 2);
}

TEST_CASE("collectives that have begun are counted until they are over for the ranks here", "[T8]") {
    Cluster cluster(1, {});
    const SimGroup group = cluster.make_group({0, 0, 1});
    const engine::Engine& engine = *cluster.hosts[0]->engine;
    const auto barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    cluster.submit(group, 0, barrier, {}, 0);
    cluster.run_for(1ms);
    CHECK(engine.running() == 0);  // rank 1 has not called it
    cluster.submit(group, 1, barrier, {}, 0);
    cluster.run_for(1ms);
    CHECK(engine.running() == 1);
    cluster.submit(group, 2, barrier, {}, 0);
    cluster.run_for(100ms);
    CHECK(engine.running() == 0);

    cluster.submit(group, 0, barrier, {}, 0);
    cluster.submit(group, 1, barrier, {}, 0);
    cluster.run_for(1ms);
    CHECK(engine.running() == 1);
    REQUIRE(cluster.abort_group(group, 0, "a reason"));
    cluster.run_for(100ms);
    CHECK(engine.running() == 0);
}

TEST_CASE("one user whose requests never end has a share of them, and leaves room for the others",
          "[N1][N13]") {
    for (const bool collectives : {false, true}) {
        CAPTURE(collectives);
        ClusterShape shape = one_node();
        shape.tenants.total(Resource::requests) = 100;
        Cluster cluster(1, shape);
        Post taker(cluster, cluster.make_group({0, 0})), neighbour(cluster, cluster.make_group({0, 0}));
        // A collective counts for both ranks from its first post on.
        CHECK(fill(taker, 200, collectives) == (collectives ? 15 : 30));
        CHECK(requests_of(cluster) == 30);
        if (collectives) {  // the other rank's part is paid
            const auto barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
            CHECK(cluster.submit(taker.group, 1, barrier, {}, 0).ok());
            CHECK(requests_of(cluster) == 28);
        }
        CHECK(fill(neighbour, 10, collectives) == 10);

        for (const Post* post : {&taker, &neighbour})
            for (uint32_t rank = 0; rank < 2; ++rank) cluster.end_session(post->group, rank);
        cluster.run_for(1s);
        CHECK(requests_of(cluster) == 0);
        cluster.check();
    }
}

TEST_CASE("a collective that its rank has cancelled counts as long as the daemon keeps it", "[N2][N13]") {
    ClusterShape shape = one_node();
    shape.tenants.total(Resource::requests) = 100;
    Cluster cluster(1, shape);
    const SimGroup group = cluster.make_group({0, 0});
    const auto barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    const Call& call = cluster.submit(group, 0, barrier, {}, 0);
    cluster.cancel(group, 0, call);
    cluster.run_for(1s);
    REQUIRE(call.ended);
    CHECK(requests_of(cluster) == 2);  // the other rank has yet to call it
    CHECK(cluster.submit(group, 1, barrier, {}, 0).outcome.error.code == Errc::aborted);
    CHECK(requests_of(cluster) == 0);
}

}  // namespace nexar::sim
