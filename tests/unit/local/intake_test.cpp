// In which order a session's entries are handled [K28].
#include "local/intake.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <vector>

#include "core/random.hpp"
#include "core_fixture.hpp"

using namespace nexar;
using namespace nexar::local;
using namespace nexar::test;

namespace {

constexpr uint8_t own = NEXAR_SHM_PRIORITY_DEFAULT, critical = 0, bulk = 2;

struct Ring {
    explicit Ring(uint32_t slots) : memory(slots) {}
    ControlMemory memory;
    shm::SubmissionProducer producer{memory.view()};
    Intake intake{memory.view()};
    uint32_t generation = 0;

    void submit(uint32_t slot, uint8_t kind, uint8_t priority, uint32_t group) {
        nexar_shm_descriptor d{};
        d.kind = kind, d.priority = priority, d.group = group;
        memory.view().slot(slot).descriptor = d;
        push(slot, NEXAR_ENTRY_SUBMIT);
    }
    void push(uint32_t slot, uint8_t kind) { REQUIRE(producer.try_push({slot, ++generation, kind})); }
    std::vector<uint32_t> all() {
        std::vector<uint32_t> slots;
        while (const auto entry = intake.next()) slots.push_back(entry->slot);
        CHECK(!intake.has_entry());
        return slots;
    }
};

}  // namespace

TEST_CASE("a critical operation passes what waits of other groups, and nothing of its own", "[local][K28]") {
    Ring ring(16);
    ring.submit(0, NEXAR_OP_ALL_REDUCE, bulk, 1);
    ring.submit(1, NEXAR_OP_SEND, own, 2);
    ring.submit(2, NEXAR_OP_ALL_REDUCE, critical, 2);  // its group has a call before it
    ring.submit(3, NEXAR_OP_ALL_REDUCE, critical, 3);
    ring.submit(4, NEXAR_OP_BARRIER, own, 4);
    ring.submit(5, NEXAR_OP_BARRIER, bulk, 5);
    ring.submit(6, NEXAR_OP_SEND, critical, 3);
    CHECK(ring.all() == std::vector<uint32_t>{3, 4, 6, 0, 1, 2, 5});
}

TEST_CASE("what came after urgent entries stays behind them, however many they are", "[local][K28]") {
    // The last entry: of their group, of another one, a command, and one about an entry before it.
    for (const int last : {0, 1, 2, 3}) {
        CAPTURE(last);
        Ring ring(64);
        for (uint32_t slot = 0; slot < 40; ++slot) ring.submit(slot, NEXAR_OP_SEND, critical, 1);
        if (last == 0) ring.submit(40, NEXAR_OP_SEND, bulk, 1);
        if (last == 1) ring.submit(40, NEXAR_OP_SEND, bulk, 2);
        if (last == 2) ring.submit(40, NEXAR_CMD_GROUP_FREE, 0, 1);
        if (last == 3) ring.push(40, NEXAR_ENTRY_CANCEL);
        std::vector<uint32_t> in_order(41);
        for (uint32_t slot = 0; slot < 41; ++slot) in_order[slot] = slot;
        CHECK(ring.all() == in_order);
    }
}

TEST_CASE("what came before urgent entries has its turn after some of them", "[local][K28]") {
    Ring ring(64);
    ring.submit(0, NEXAR_OP_SEND, bulk, 2);
    ring.submit(1, NEXAR_OP_SEND, bulk, 2);
    for (uint32_t slot = 2; slot < 42; ++slot) ring.submit(slot, NEXAR_OP_SEND, critical, 1);
    const auto order = ring.all();
    REQUIRE(order.size() == 42);
    CHECK(order[Intake::urgent_in_row_max] == 0);
    CHECK(order[2 * Intake::urgent_in_row_max + 1] == 1);
}

TEST_CASE("nothing passes a command", "[local][K28]") {
    Ring ring(16);
    ring.submit(0, NEXAR_OP_ALL_REDUCE, bulk, 1);
    ring.submit(1, NEXAR_CMD_REGION_FREE, 0, 0);
    ring.submit(2, NEXAR_OP_ALL_REDUCE, critical, 3);
    CHECK(ring.all() == std::vector<uint32_t>{0, 1, 2});
}

TEST_CASE("a critical operation behind a thousand others waits for a few of them", "[local][K28]") {
    Ring ring(1024);
    for (uint32_t slot = 0; slot < 1000; ++slot) ring.submit(slot, NEXAR_OP_SEND, own, 1);
    ring.submit(1000, NEXAR_OP_ALL_REDUCE, critical, 2);
    const std::vector<uint32_t> order = ring.all();
    REQUIRE(order.size() == 1001);
    CHECK(std::ranges::find(order, 1000u) - order.begin() <=
          1000 / static_cast<int>(Intake::ahead_per_entry));
}

TEST_CASE("after some critical operations in a row one of the others is handled", "[local][K28]") {
    Ring ring(256);
    for (uint32_t slot = 0; slot < 10; ++slot) ring.submit(slot, NEXAR_OP_SEND, own, 1);
    for (uint32_t slot = 10; slot < 200; ++slot) ring.submit(slot, NEXAR_OP_SEND, critical, 2);
    size_t in_row = 0;
    const std::vector<uint32_t> order = ring.all();
    for (size_t i = 0; i + 40 < order.size(); ++i) {
        in_row = order[i] >= 10 ? in_row + 1 : 0;
        CHECK(in_row <= Intake::urgent_in_row_max);
    }
}

TEST_CASE("entries that make no sense come in their place, and none comes twice or is lost", "[local][K28]") {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        INFO("seed " << seed);
        Random random(seed);
        Ring ring(1024);
        std::map<uint32_t, std::deque<uint32_t>> by_group;  // generations of the calls that were pushed
        size_t pushed = 0, got = 0;
        for (int step = 0; step < 400; ++step) {
            if (random.one_in(2)) {
                for (uint64_t n = random.below(20); n > 0 && pushed < 1000; --n, ++pushed) {
                    const uint32_t group = 1 + static_cast<uint32_t>(random.below(4));
                    const auto slot = static_cast<uint32_t>(pushed);
                    if (random.one_in(10)) {
                        ring.push(random.one_in(2) ? slot : 60'000,
                                  random.one_in(2) ? NEXAR_ENTRY_CANCEL : 77);
                        continue;
                    }
                    ring.submit(slot, NEXAR_OP_SEND, static_cast<uint8_t>(random.below(3)), group);
                    by_group[group].push_back(ring.generation);
                }
            }
            for (uint64_t n = random.below(20); n > 0; --n) {
                const auto entry = ring.intake.next();
                if (!entry) break;
                ++got;
                if (entry->kind != NEXAR_ENTRY_SUBMIT || entry->slot >= 1024) continue;
                auto& calls = by_group[ring.memory.view().slot(entry->slot).descriptor.group];
                REQUIRE(!calls.empty());
                CHECK(calls.front() == entry->generation);
                calls.pop_front();
            }
        }
        got += ring.all().size();
        CHECK(got == pushed);
    }
}
