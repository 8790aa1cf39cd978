// Messages between two ranks of a host: small ones are copied where they are matched, larger ones by workers,
// with the same result.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "engine/context.hpp"
#include "post.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t at_once_max = engine::inline_job_bytes_max / 2;  // it is read and written
constexpr uint64_t room = at_once_max + 1000;

engine::OpRequest bytes(OpKind kind, uint32_t peer, uint64_t count) {
    engine::OpRequest request = request_of({kind, Dtype::u8, ReduceOp::sum, count, 0});
    request.peer = peer;
    return request;
}

}  // namespace

TEST_CASE("a message between ranks of a host is the same at the length from which workers copy it") {
    for (const uint32_t to : {0u, 1u})
        for (const bool posted_first : {false, true})
            for (const uint64_t count : {uint64_t{1}, at_once_max - 1, at_once_max, at_once_max + 1}) {
                CAPTURE(to, posted_first, count);
                ClusterShape shape = shape_of(1);
                shape.worker_delay = 10ms;
                Cluster cluster(1, shape);
                const SimGroup group = cluster.make_group({0, 0});
                const auto sent = Reference::input(1, 0, count, Dtype::u8);
                Call* recv = nullptr;
                const auto post = [&] {
                    recv = &cluster.submit(group, to, bytes(OpKind::recv, 0, room), {}, room);
                };
                if (posted_first) post();
                const Call& send = cluster.submit(group, 0, bytes(OpKind::send, to, count), sent, 0);
                if (!posted_first) post();
                cluster.run_for(1ms);

                CHECK((send.ended && recv->ended) == (count <= at_once_max));
                cluster.cancel(group, 0, send);  // too late, for a copy that runs, too
                cluster.cancel(group, to, *recv);
                expect_end(cluster);
                REQUIRE((send.ok() && recv->ok()));
                CHECK(recv->outcome.bytes == count);
                const std::vector<std::byte>& got = recv->out_at_end;
                CHECK(std::equal(sent.begin(), sent.end(), got.begin()));
                CHECK(std::all_of(got.begin() + static_cast<ptrdiff_t>(count), got.end(),
                                  [](std::byte b) { return b == std::byte{0xdd}; }));
            }
}

}  // namespace nexar::sim
