// Staging: which segments may begin and how many are over, whatever the clients' counts say [S12].
#include "engine/staging.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::engine {
namespace {

constexpr SessionId session{5};

Staging staging_of(uint32_t windows, uint32_t segments, bool in = true, bool out = true) {
    Staging staging(false);
    Staging::Member member;
    member.rank = 3;
    member.session = session;
    member.ticket = 77;
    member.stage = {windows, in, out, 64, 64};
    member.segments = segments;
    staging.add(member);
    staging.begin(2);
    return staging;
}

}  // namespace

TEST_CASE("a segment begins when its input is filled and its output window was taken, not before") {
    Staging staging = staging_of(2, 6);
    Op& first = staging.gate(0, 0);
    REQUIRE_FALSE(first.done());
    REQUIRE(staging.waits_for(3));
    REQUIRE(staging.on_progress(session, 77, 1, 0));
    REQUIRE(first.done());
    REQUIRE_FALSE(staging.waits_for(3));
    REQUIRE(staging.on_progress(session, 77, 4, 0));
    REQUIRE(staging.gate(1, 1).done());
    REQUIRE(staging.end_segment(0));
    REQUIRE(staging.end_segment(1));

    Op& third = staging.gate(0, 2);  // filled, but window 0 still holds segment 0's output
    REQUIRE_FALSE(third.done());
    REQUIRE(staging.waits_for(3));
    REQUIRE(staging.on_progress(session, 77, 4, 1));
    REQUIRE(third.done());
}

TEST_CASE("a side that is not staged is not waited for") {
    Staging only_in = staging_of(1, 6, true, false), only_out = staging_of(1, 6, false, true);
    REQUIRE(only_in.on_progress(session, 77, 6, 0));
    REQUIRE(only_in.gate(1, 5).done());
    REQUIRE(only_out.gate(0, 0).done());
    REQUIRE_FALSE(only_out.gate(1, 1).done());
    REQUIRE(only_out.find(3)->has_filled());
}

TEST_CASE("made-up counts: only growth, at most what there is, and only for the operation that they name",
          "[S12]") {
    Staging staging = staging_of(2, 6);
    REQUIRE_FALSE(staging.on_progress(session, 78, 6, 6));
    REQUIRE_FALSE(staging.on_progress(SessionId(6), 77, 6, 6));
    REQUIRE(staging.find(3)->filled == 0);
    REQUIRE(staging.on_progress(session, 77, 3, 2));
    REQUIRE(staging.on_progress(session, 77, 1, 0));
    REQUIRE((staging.find(3)->filled == 3 && staging.find(3)->taken == 2));
    REQUIRE(staging.on_progress(session, 77, UINT32_MAX, UINT32_MAX));
    REQUIRE((staging.find(3)->filled == 6 && staging.find(3)->taken == 6));
    REQUIRE(staging.find(3)->has_filled());
}

TEST_CASE("segments count as over from the first without a gap, whichever lane is ahead") {
    Staging staging = staging_of(4, 5);
    REQUIRE_FALSE(staging.end_segment(1));
    REQUIRE_FALSE(staging.end_segment(3));
    REQUIRE(staging.segments_ended() == 0);
    REQUIRE(staging.end_segment(0));
    REQUIRE(staging.segments_ended() == 2);
    REQUIRE(staging.end_segment(2));
    REQUIRE(staging.segments_ended() == 4);
    REQUIRE(staging.end_segment(4));
    REQUIRE(staging.segments_ended() == 5);
}

TEST_CASE("a rank that has gone is not waited for to take its output; its input still is") {
    Staging staging = staging_of(1, 6);
    REQUIRE(staging.on_progress(session, 77, 2, 0));
    REQUIRE(staging.gate(0, 0).done());
    Op& second = staging.gate(1, 1);
    REQUIRE_FALSE(second.done());
    staging.leave(3);
    REQUIRE_FALSE(second.done());  // the first still runs in its window
    REQUIRE(staging.end_segment(0));
    REQUIRE(second.done());
    REQUIRE_FALSE(staging.gate(0, 2).done());
}

TEST_CASE("two segments are never in one window, whatever count of taken segments is sent") {
    Staging staging = staging_of(1, 6);
    REQUIRE(staging.on_progress(session, 77, 6, 6));
    REQUIRE(staging.gate(0, 0).done());
    Op& second = staging.gate(1, 1);
    REQUIRE_FALSE(second.done());
    REQUIRE(staging.end_segment(0));
    REQUIRE(second.done());
}

TEST_CASE("after an end every gate fails at once, those that wait and those to come") {
    Staging staging = staging_of(1, 6);
    Op& waiting = staging.gate(0, 0);
    staging.fail({Errc::peer_lost, "rank 9 is gone", 9, -1, {}});
    REQUIRE(waiting.error()->code == Errc::peer_lost);
    REQUIRE(staging.gate(1, 1).error()->text == "rank 9 is gone");
    REQUIRE(staging.on_progress(session, 77, 6, 6));
    REQUIRE_FALSE(staging.waits_for(3));
}

}  // namespace nexar::engine
