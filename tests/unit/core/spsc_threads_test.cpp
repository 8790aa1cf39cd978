// The queue between two real threads: nothing is lost, doubled or torn; run under the thread sanitizer too.
#include <sched.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <thread>

#include "core/spsc_queue.hpp"

using namespace nexar;

namespace {

// Wide enough that a torn copy shows.
struct Wide {
    std::array<uint64_t, 8> words{};
    std::shared_ptr<uint64_t> owned;
};
Wide wide(uint64_t n) {
    Wide w;
    w.words.fill(n);
    w.owned = std::make_shared<uint64_t>(n);
    return w;
}
bool is_wide(const Wide& w, uint64_t n) {
    for (const uint64_t word : w.words)
        if (word != n) return false;
    return w.owned && *w.owned == n;
}

void stress(size_t capacity, uint64_t total) {
    SpscQueue<Wide> q(capacity);
    uint64_t wrong = 0;
    std::thread consumer([&] {
        for (uint64_t n = 0; n < total;) {
            if (auto got = q.pop())
                wrong += !is_wide(*got, n++);
            else
                sched_yield();
        }
    });
    Outbox<Wide> out(q);
    for (uint64_t n = 0; n < total; ++n) {
        if (n % 3 == 0) {
            out.push(wide(n));
            continue;
        }
        while (!out.flush()) sched_yield();
        Wide value = wide(n);
        while (!q.push(value)) sched_yield();
    }
    while (!out.flush()) sched_yield();
    consumer.join();
    CHECK(wrong == 0);
    CHECK(q.empty());
}

}  // namespace

TEST_CASE("two threads exchange values in order, with a ring of any size", "[core][threads]") {
    stress(1, 1000);
    stress(2, 5000);
    stress(64, 20000);
    stress(4096, 20000);
}
