// Suspicion: when silence and closed connections become one.
#include "membership/failure_detector.hpp"

#include <catch2/catch_test_macros.hpp>

#include "failure_cluster.hpp"

namespace nexar::membership {
namespace {

using State = FailureDetector::State;
constexpr PeerIndex peer{4};

FailureDetector with_one_peer() {
    FailureDetector detector(DetectorConfig{}, at_ms(0));
    detector.on_up(peer, at_ms(0));
    detector.on_time(at_ms(0));
    return detector;
}
// Wakes the detector whenever it asks, until then.
void run_to(FailureDetector& detector, Time end) {
    while (detector.wake_at() < end) detector.on_time(detector.wake_at());
    detector.on_time(end);
}

TEST_CASE("a silent peer is suspected at the timeout and not before", "[membership]") {
    auto detector = with_one_peer();
    run_to(detector, at_ms(4999));
    REQUIRE_FALSE(detector.poll_change());
    run_to(detector, at_ms(5000));

    const auto change = detector.poll_change();
    REQUIRE(change);
    CHECK(change->state == State::suspected);
    CHECK(change->reason == "silent for 5000 ms");
    CHECK_FALSE(detector.poll_change());
}

TEST_CASE("a suspect that is received from again is alive; one that has failed stays unknown",
          "[membership][F4]") {
    auto detector = with_one_peer();
    run_to(detector, at_ms(6000));
    REQUIRE(detector.poll_change());

    SECTION("received from") {
        detector.on_received(peer, at_ms(6100));
        REQUIRE(detector.poll_change()->state == State::alive);
        CHECK(detector.wake_at() <= at_ms(7100));
    }
    SECTION("gone") {
        detector.on_gone(peer);
        detector.on_received(peer, at_ms(6100));
        CHECK_FALSE(detector.poll_change());
        CHECK(detector.wake_at() == never);
        CHECK_FALSE(detector.state_of(peer));
    }
}

TEST_CASE("traffic replaces heartbeats, and is not taken for a stall of this node", "[membership][F2][F3]") {
    auto detector = with_one_peer();
    for (int ms = 0; ms < 20'000; ms += 100) {
        detector.on_sent(peer, at_ms(ms));
        if (ms < 10'000) detector.on_received(peer, at_ms(ms));
        if (detector.wake_at() <= at_ms(ms)) detector.on_time(at_ms(ms));
        CHECK_FALSE(detector.poll_heartbeat());
        const auto change = detector.poll_change();
        CHECK(change.has_value() == (ms == 14'900));  // the last was received at 9,900
    }
}

TEST_CASE("heartbeats go out only when nothing else does", "[membership]") {
    auto detector = with_one_peer();
    size_t beats = 0;
    for (int64_t t = 0; t <= 10'000; t += 100) {
        detector.on_received(peer, at_ms(t));
        if (t < 5000) detector.on_sent(peer, at_ms(t));
        detector.on_time(at_ms(t));
        while (detector.poll_heartbeat()) {
            CHECK(t >= 5000);
            ++beats;
        }
    }
    CHECK(beats == 5);
}

TEST_CASE("a closed connection is suspected after three failed redials, or after the window",
          "[membership]") {
    auto detector = with_one_peer();
    detector.on_rtt(peer, ms(1));
    detector.on_closed(peer, "reset", at_ms(100));
    SECTION("refused") {
        for (int64_t n = 1; n <= 3; ++n) {
            REQUIRE_FALSE(detector.poll_change());
            detector.on_redial_failed(peer, at_ms(100 + 20 * n));
        }
        const auto change = detector.poll_change();
        REQUIRE(change);
        CHECK(change->reason == "connection closed (reset), 3 redials failed");
    }
    SECTION("no answer") {
        run_to(detector, at_ms(299));
        REQUIRE_FALSE(detector.poll_change());
        run_to(detector, at_ms(300));
        REQUIRE(detector.poll_change()->state == State::suspected);
    }
    SECTION("no answer from far away") {
        detector.on_up(peer, at_ms(110));
        detector.on_rtt(peer, ms(300));
        detector.on_closed(peer, "reset", at_ms(200));
        run_to(detector, at_ms(799));
        REQUIRE_FALSE(detector.poll_change());
        run_to(detector, at_ms(800));
        REQUIRE(detector.poll_change());
    }
    SECTION("connected again in time") {
        detector.on_redial_failed(peer, at_ms(120));
        detector.on_redial_failed(peer, at_ms(140));
        detector.on_up(peer, at_ms(150));
        detector.on_redial_failed(peer, at_ms(160));
        run_to(detector, at_ms(1000));
        CHECK_FALSE(detector.poll_change());
    }
    SECTION("an old packet does not bring it back") {
        detector.on_received(peer, at_ms(101));
        run_to(detector, at_ms(300));
        REQUIRE(detector.poll_change());
    }
}

TEST_CASE("a detector that was itself stalled starts all silences anew", "[membership][F3]") {
    auto detector = with_one_peer();
    run_to(detector, at_ms(1000));

    SECTION("by more than half the timeout") {
        detector.on_time(at_ms(9000));
        CHECK_FALSE(detector.poll_change());
        run_to(detector, at_ms(13'999));
        CHECK_FALSE(detector.poll_change());
        run_to(detector, at_ms(14'000));
        CHECK(detector.poll_change());
    }
    SECTION("a little late does not matter") {
        run_to(detector, at_ms(4000));
        detector.on_time(at_ms(5400));
        CHECK(detector.poll_change());
    }
}

TEST_CASE("a detector's invariants hold after every input", "[membership]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        Time now{};
        FailureDetector detector({}, now);
        for (int step = 0; step < 2000; ++step) {
            now += Duration(
                static_cast<int64_t>(random.below(random.one_in(50) ? 10'000'000'000 : 300'000'000)));
            const PeerIndex one{static_cast<uint32_t>(random.below(4))};
            switch (random.below(7)) {
                case 0:
                    detector.on_up(one, now);
                    break;
                case 1:
                    detector.on_received(one, now);
                    break;
                case 2:
                    detector.on_sent(one, now);
                    break;
                case 3:
                    detector.on_closed(one, "closed", now);
                    break;
                case 4:
                    detector.on_redial_failed(one, now);
                    break;
                case 5:
                    if (random.one_in(10)) detector.on_gone(one);
                    break;
                default:
                    detector.on_time(now);
            }
            detector.check_invariants();
        }
    }
}

}  // namespace
}  // namespace nexar::membership
