// Credits for unexpected messages: docs/protocol/control_log.md [L9].
#include "engine/credits.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>

#include "core/random.hpp"

namespace nexar::engine {
namespace {

TEST_CASE("the ranks of a group share what a node keeps of unexpected messages", "[L9]") {
    CHECK(credit_window(1024, 1) == 256);
    CHECK(credit_window(1024, 2) == 256);
    CHECK(credit_window(1024, 64) == 16);
    CHECK(credit_window(1024, 60'000) == 1);
}

TEST_CASE("a rank that sends beyond its credits is noticed", "[L9]") {
    CreditTable table(3);
    for (int i = 0; i < 3; ++i) CHECK(table.arrived(7));
    CHECK_FALSE(table.arrived(7));
    CHECK(table.arrived(8));  // each has its own
    table.check_invariants();
}

TEST_CASE("no credit is lost: whatever is taken in whatever order, a rank can go on sending", "[L9][K27]") {
    const uint64_t windows[] = {1, 2, 3, 16, 255, 256};
    for (int n = 0; n < 12; ++n) {
        // Of two nodes: the ranks of a node keep the sender's last credits for each other.
        const uint64_t window = windows[n / 2], reserve = n % 2 == 0 ? 0 : credit_reserve(window, 32);
        CAPTURE(window, reserve);
        Random random(window);
        CreditTable table(window, reserve);
        uint64_t limit = window, sent = 0, kept = 0, taken = 0;
        std::deque<uint64_t> limits;  // on their way to the sender
        for (int step = 0; step < 20'000; ++step) {
            if (random.one_in(2) && sent + reserve < limit) {
                REQUIRE(table.arrived(1));
                ++sent, ++kept;
                if (const auto more = table.take_limit(1)) limits.push_back(*more);
            } else if (random.one_in(2) && kept > 0) {
                --kept, ++taken;
                table.returned(1);
                if (const auto more = table.take_limit(1)) limits.push_back(*more);
            } else if (!limits.empty()) {
                limit = limits.front();
                limits.pop_front();
            }
            table.check_invariants();
            REQUIRE(kept <= window);
            // A rank waits for a credit only while as many of its messages as it may have there do.
            if (sent + reserve == limit && limits.empty()) REQUIRE(kept == window - reserve);
        }
        REQUIRE(taken > 1000);
    }
}

}  // namespace
}  // namespace nexar::engine
