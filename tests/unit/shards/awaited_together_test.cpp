// Which ends of transfers are awaited, against a count by hand of each batch.
#include "shards/awaited_together.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "core/random.hpp"

using namespace nexar;
using shards::AwaitedTogether;

namespace {

link::Batch batch_of(uint64_t first_handle, size_t recvs, size_t sends, bool together) {
    link::Batch out;
    out.first_handle = first_handle;
    out.recvs.resize(recvs);
    out.sends.resize(sends);
    out.awaited_together = together;
    return out;
}

}  // namespace

TEST_CASE("the last end of a batch is awaited, whichever it is", "[shards][T7]") {
    std::vector<uint64_t> order{10, 11, 12};
    do {
        AwaitedTogether ends;
        ends.post(batch_of(10, 2, 1, true));
        CHECK(!ends.ended(order[0]));
        CHECK(!ends.ended(order[1]));
        CHECK(!ends.empty());
        CHECK(ends.ended(order[2]));
        CHECK(ends.empty());
    } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("ends of other batches are awaited each", "[shards][T7]") {
    AwaitedTogether ends;
    ends.post(batch_of(10, 1, 1, false));
    ends.post(batch_of(20, 1, 0, true));
    ends.post(batch_of(30, 1, 1, true));
    for (const uint64_t handle : {9u, 10u, 11u, 20u, 29u, 32u, 1000u}) CHECK(ends.ended(handle));
    CHECK(!ends.ended(30));
    CHECK(ends.ended(31));
    CHECK(ends.empty());
}

TEST_CASE("each of many batches has one end that is awaited", "[shards][T7]") {
    Random random(7);
    AwaitedTogether ends;
    std::vector<std::pair<uint64_t, size_t>> handles;  // and the index of the batch
    std::vector<size_t> left;
    uint64_t next = 1;
    for (size_t i = 0; i < 200; ++i) {
        const size_t recvs = random.below(4), sends = 1 + random.below(3);
        ends.post(batch_of(next, recvs, sends, true));
        for (size_t n = 0; n < recvs + sends; ++n) handles.emplace_back(next++, i);
        left.push_back(recvs + sends);
        next += random.below(2);
    }
    for (size_t n = handles.size(); n > 1; --n) std::swap(handles[n - 1], handles[random.below(n)]);
    for (const auto& [handle, batch] : handles) CHECK(ends.ended(handle) == (--left[batch] == 0));
    CHECK(ends.empty());
}

TEST_CASE("a failure is awaited while others of its batch have not ended, and is one of its ends",
          "[shards][T7]") {
    using Kind = link::MeshEvent::Kind;
    const auto event = [](Kind kind, uint64_t handle) {
        link::MeshEvent out{};
        out.kind = kind;
        out.handle = handle;
        return out;
    };
    AwaitedTogether ends;
    ends.post(batch_of(10, 2, 2, true));
    CHECK(!ends.is_awaited(event(Kind::done, 12)));
    CHECK(ends.is_awaited(event(Kind::failed, 10)));
    for (const Kind kind :
         {Kind::mismatch, Kind::message, Kind::log_discarded, Kind::log_room, Kind::peer_garbage})
        CHECK(ends.is_awaited(event(kind, 11)));
    CHECK(!ends.is_awaited(event(Kind::done, 11)));
    CHECK(!ends.empty());
    CHECK(ends.is_awaited(event(Kind::done, 13)));
    CHECK(ends.empty());
}
