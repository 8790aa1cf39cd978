// Whose entries the control loop takes in a turn [N12]: users in turns, and each one's sessions in turns.
#include "local/ring_turns.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <utility>

namespace nexar::local {
namespace {

struct Ring {
    size_t entries = 0, looks = 0, taken = 0, looks_in_turn = 0;
    Duration cost{1000};  // of an entry
    RingTurns<Ring>::Place place;
};

struct Loop {
    RingTurns<Ring> turns;
    std::deque<Ring> rings;

    Ring& add(uint64_t user, size_t entries = 0) {
        Ring& ring = rings.emplace_back();
        ring.entries = entries;
        ring.place = turns.add(ring, user);
        return ring;
    }
    void add_many(uint64_t user, size_t count, size_t entries) {
        for (size_t i = 0; i < count; ++i) turns.warm(add(user, entries).place);
    }
    size_t turn() {
        const auto has = [](Ring& ring) {
            ++ring.looks;
            return ring.entries > 0;
        };
        const auto take = [this](Ring& ring) {
            if (ring.looks_in_turn++ == 0) ++ring.looks;
            if (ring.entries == 0) return false;
            --ring.entries;
            ++ring.taken;
            now += ring.cost;
            return true;
        };
        for (Ring& ring : rings) ring.looks_in_turn = 0;
        return turns.serve(has, take, [this] { return now; });
    }
    Time now{};
    size_t looks() const {
        size_t sum = 0;
        for (const Ring& ring : rings) sum += ring.looks;
        return sum;
    }
};

using Turns = RingTurns<Ring>;

}  // namespace

TEST_CASE("users get the same few entries of a turn, whatever number of sessions they have",
          "[local][N12][H9]") {
    Loop loop;
    loop.add_many(1, 590, 1000);
    Ring& other = loop.add(2, 1000);
    for (size_t turn = 1; turn <= 20; ++turn) {
        CHECK(loop.turn() == 2 * Turns::shared.entries);
        CHECK(other.taken == turn * Turns::shared.entries);
    }
}

TEST_CASE("one user's sessions get turns in order", "[local][N12]") {
    Loop loop;
    loop.add_many(1, 3, 1000);
    loop.add_many(2, 1, 1000);
    for (int turn = 0; turn < 6; ++turn) loop.turn();
    for (size_t i = 0; i < 3; ++i) CHECK(loop.rings[i].taken == 2 * Turns::shared.entries);
}

TEST_CASE("entries of many sessions are taken in one turn, as those of one", "[local][N12]") {
    Loop loop;
    loop.add_many(1, 100, 1);
    Ring& other = loop.add(2, 3);
    CHECK(loop.turn() == Turns::shared.entries + 3);
    CHECK(other.taken == 3);
}

TEST_CASE("a user alone gets more, and a newcomer waits for no more than that", "[local][N12]") {
    Loop loop;
    loop.add_many(1, 590, 1000);
    CHECK(loop.turn() == Turns::alone.entries);
    Ring& newcomer = loop.add(2, 1);
    loop.turns.warm(newcomer.place);
    loop.turn();
    CHECK(newcomer.taken == 1);
}

TEST_CASE("sessions that do nothing cost a few looks in a turn, and each is looked at", "[local][N12]") {
    Loop loop;
    for (int i = 0; i < 590; ++i) loop.add(1);
    Ring& busy = loop.add(2, 1'000'000);
    loop.turns.warm(busy.place);
    const size_t turns = 590 / Turns::cold_looks + 1;
    for (size_t i = 0; i < turns; ++i) loop.turn();
    CHECK(loop.looks() <= turns * (Turns::cold_looks + 1));
    for (const Ring& ring : loop.rings) CHECK(ring.looks > 0);
}

TEST_CASE("a user whose entries take long gets fewer of them in a turn", "[local][N12]") {
    Loop loop;
    loop.add_many(1, 3, 1000);
    loop.add_many(2, 1, 1000);
    for (Ring& ring : loop.rings) ring.cost = Duration(20'000);
    loop.rings.back().cost = Duration(1000);
    loop.turn();
    CHECK(loop.rings[0].taken == 3);  // the one in which the time ends is handled
    CHECK(loop.rings[3].taken == Turns::shared.entries);
    loop.turn();
    CHECK(loop.rings[1].taken == 3);  // the next one's turn
    loop.rings.back().entries = 0;
    for (size_t i = 0; i <= Turns::quiet_max; ++i) loop.turn();
    const size_t before = loop.rings[0].taken + loop.rings[1].taken + loop.rings[2].taken;
    for (Ring& ring : loop.rings) ring.entries = 1000;
    loop.rings.back().entries = 0;
    loop.turn();
    CHECK(loop.rings[0].taken + loop.rings[1].taken + loop.rings[2].taken - before == 25);  // alone
}

TEST_CASE("an entry in a ring that was cold is taken after one round", "[local][N12]") {
    Loop loop;
    for (int i = 0; i < 100; ++i) loop.add(1);
    Ring& ring = loop.add(2, 1);
    for (size_t i = 0; i <= 101 / Turns::cold_looks; ++i) loop.turn();
    CHECK(ring.taken == 1);
}

TEST_CASE("rings without entries become cold, and go", "[local][N12]") {
    Loop loop;
    loop.add_many(1, 2, 1);
    loop.add_many(2, 1, 1);
    for (size_t i = 0; i <= Turns::quiet_max; ++i) loop.turn();
    const size_t looks = loop.looks();
    loop.turn();
    CHECK(loop.looks() == looks + 3);  // as cold ones
    loop.turns.warm(loop.rings[0].place);
    for (Ring& ring : loop.rings) loop.turns.remove(ring.place);
    CHECK(loop.turn() == 0);
    CHECK(loop.looks() == looks + 3);
}

TEST_CASE("a ring that becomes warm while another is served gets its turn", "[local][N12]") {
    Loop loop;
    Ring& first = loop.add(1, 1);
    for (int i = 0; i < 100; ++i) loop.add(1);
    Ring& second = loop.add(2, 1);
    loop.turns.warm(first.place);
    const auto has = [](Ring&) { return false; };
    const auto take = [&](Ring& ring) {
        if (&ring == &first) loop.turns.warm(second.place);
        return std::exchange(ring.entries, 0) > 0;
    };
    CHECK(loop.turns.serve(has, take, [] { return Time{}; }) == 2);
    CHECK(second.entries == 0);
}

}  // namespace nexar::local
