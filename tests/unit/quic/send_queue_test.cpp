// The send queue alone: bytes stay until acknowledged, blocks come back.
#include "quic/send_queue.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using quic::BlockPool;
using quic::SendQueue;

namespace {

std::vector<std::byte> numbered(size_t from, size_t n) {
    std::vector<std::byte> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((from + i) * 31 >> 3);
    return out;
}

}  // namespace

TEST_CASE("a send queue gives its bytes in order over block borders, and keeps them until acknowledged",
          "[quic]") {
    BlockPool pool;
    SendQueue queue(pool);
    constexpr size_t total = 3 * BlockPool::block_bytes + 77;
    queue.append(numbered(0, 1000));
    queue.append(numbered(1000, total - 1000));
    CHECK(queue.held() == total);

    size_t at = 0;
    const std::byte* first = nullptr;
    while (queue.unsent() > 0) {
        const SendQueue::Pieces pieces = queue.next(50'000);
        size_t n = 0;
        for (size_t i = 0; i < pieces.count; ++i) {
            if (!first) first = pieces.piece[i].data();
            const auto want = numbered(at + n, pieces.piece[i].size());
            REQUIRE(std::equal(want.begin(), want.end(), pieces.piece[i].begin()));
            n += pieces.piece[i].size();
        }
        REQUIRE(n == std::min<size_t>(50'000, total - at));
        queue.mark_sent(n);
        at += n;
    }
    CHECK(*first == numbered(0, 1)[0]);  // still there, though all is sent
    queue.mark_acked(BlockPool::block_bytes * 2);
    CHECK(queue.held() == total - 2 * BlockPool::block_bytes);
    queue.mark_acked(100);  // an old acknowledgement changes nothing
    CHECK(queue.held() == total - 2 * BlockPool::block_bytes);
    queue.mark_acked(total);
    CHECK(queue.held() == 0);
    queue.append(numbered(total, 10));
    CHECK(queue.next(100).piece[0].size() == 10);
}
