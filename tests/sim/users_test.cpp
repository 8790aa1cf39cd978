// What one user of a daemon may take from the others: a share, never all.
#include <catch2/catch_test_macros.hpp>
#include <string>

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

}  // namespace nexar::sim
