// The send queue alone: bytes stay until acknowledged, blocks come back.
#include "quic/send_queue.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <utility>
#include <vector>

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

TEST_CASE("a queue whose bytes are all acknowledged fills its block from the beginning again", "[quic]") {
    BlockPool pool;
    SendQueue queue(pool);
    size_t at = 0;
    const auto append = [&](size_t n) { queue.append(numbered(std::exchange(at, at + n), n)); };
    // All unsent bytes, which are to be those that were appended; the first one's place.
    const auto send = [&] {
        const std::byte* first = nullptr;
        while (queue.unsent() > 0) {
            const Bytes piece = queue.next(at).piece[0];
            if (!first) first = piece.data();
            const auto want = numbered(at - queue.unsent(), piece.size());
            REQUIRE(std::equal(want.begin(), want.end(), piece.begin()));
            queue.mark_sent(piece.size());
        }
        return first;
    };

    append(100);
    const std::byte* const begin = send();
    queue.mark_acked(at);
    append(100);
    CHECK(send() == begin);
    append(50);  // while others are in flight, they stay where they are
    CHECK(send() == begin + 100);
    queue.mark_acked(at - 50);
    append(50);
    queue.mark_acked(at - 50);  // unsent ones stay as well
    CHECK(queue.unsent() == 50);
    CHECK(send() == begin + 150);
    queue.mark_acked(at);

    append(2 * BlockPool::block_bytes + 7);  // over borders of blocks that begin at no multiple of their size
    CHECK(send() == begin);
    queue.mark_acked(at - 7);
    CHECK(queue.held() == 7);
    append(BlockPool::block_bytes);
    send();
    queue.mark_acked(at - 1);
    queue.mark_acked(at);
    CHECK((queue.held() == 0 && queue.acknowledged() == at && queue.appended() == at));
    append(BlockPool::block_bytes);  // a whole block: it is returned, and not begun again
    send();
    queue.mark_acked(at);
    append(1);
    send();
    CHECK(queue.held() == 1);
}
