// However many users fill their queues, there is room for the next one.
#include "core/paced_queue.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using namespace std::chrono_literals;

TEST_CASE("[N18] users who fill their queues together leave room for the next one", "[core]") {
    for (const size_t all : {64u, 512u, 4096u}) {
        CAPTURE(all);
        PacedQueue<int> queue(1s, 1);
        for (uint64_t user = 1; user <= all / 4; ++user) {
            CAPTURE(user);
            size_t own = 0;
            for (int one = 0; queue.add(user, Time{1h}, one, waiting_of_user_max(queue.waiting(), all));)
                ++own;
            REQUIRE(own >= 1);
            if (user == 1) REQUIRE(own == all / 8);
            REQUIRE(queue.waiting() <= all);
        }
    }
}
