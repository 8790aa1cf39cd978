// Posts sends and receives of i32, and checks what a receive got.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include "program.hpp"

namespace nexar::sim {

class Post {
  public:
    explicit Post(Cluster& c, SimGroup g) : cluster(c), group(std::move(g)) {}

    Call& send(uint32_t from, uint32_t to, uint64_t tag, uint64_t salt, uint64_t count,
               Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, count, 0});
        r.peer = to;
        r.tag = tag;
        r.timeout = timeout;
        return cluster.submit(group, from, r, Reference::input(salt, 0, count, Dtype::i32), 0);
    }
    Call& recv(uint32_t at, uint32_t from, int64_t tag, uint64_t count, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, count, 0});
        r.peer = from;
        r.any_tag = tag < 0;
        r.tag = tag < 0 ? 0 : static_cast<uint64_t>(tag);
        r.timeout = timeout;
        return cluster.submit(group, at, r, {}, count * 4);
    }
    // A probe or an mprobe.
    Call& look(OpKind kind, uint32_t at, uint32_t from, int64_t tag, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({kind, Dtype::f32, ReduceOp::sum, 0, 0});
        r.peer = from;
        r.any_tag = tag < 0;
        r.tag = tag < 0 ? 0 : static_cast<uint64_t>(tag);
        r.timeout = timeout;
        return cluster.submit(group, at, r, {}, 0);
    }
    Call& mrecv(uint32_t at, uint64_t message, uint64_t count, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({OpKind::mrecv, Dtype::i32, ReduceOp::sum, count, 0});
        r.peer = 0;
        r.tag = message;
        r.timeout = timeout;
        return cluster.submit(group, at, r, {}, count * 4);
    }
    Call& put_back(uint32_t at, uint64_t message) {
        engine::OpRequest r = request_of({OpKind::message_free, Dtype::f32, ReduceOp::sum, 0, 0});
        r.peer = 0;
        r.tag = message;
        return cluster.submit(group, at, r, {}, 0);
    }
    Cluster& cluster;
    SimGroup group;
};

inline void expect_message(const Call& call, uint64_t salt, uint64_t count, uint32_t source, uint64_t tag) {
    REQUIRE(call.ok());
    REQUIRE(call.outcome.bytes == 4 * count);
    REQUIRE(call.outcome.source == source);
    REQUIRE(call.outcome.tag == tag);
    const auto expected = Reference::input(salt, 0, count, Dtype::i32);
    REQUIRE(std::equal(expected.begin(), expected.end(), call.out_at_end.begin()));
}

inline void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
}

inline ClusterShape shape_of(uint32_t nodes) {
    ClusterShape shape;
    shape.nodes = nodes;
    return shape;
}

}  // namespace nexar::sim
