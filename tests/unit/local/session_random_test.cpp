// SessionCore over plain memory in which a client writes at random.
#include "core/random.hpp"
#include "core_fixture.hpp"
#include "local/session_core.hpp"

using namespace nexar;
using namespace nexar::local;
using namespace nexar::test;

TEST_CASE("random words in every field, drained and completed: refused or closed, never out of bounds",
          "[local]") {
    Random random(99);
    size_t closed = 0, accepted = 0;
    for (int round = 0; round < 300; ++round) {
        Fixture f;
        for (int step = 0; step < 200; ++step) {
            const auto slot = static_cast<uint32_t>(random.below(16));
            auto* words = reinterpret_cast<uint64_t*>(&f.memory.view().slot(slot));
            auto* payload = reinterpret_cast<uint64_t*>(&f.memory.view().payload(slot));
            for (int i = 0; i < 6; ++i) {
                const uint64_t value =
                    random.one_in(2) ? random.below(70) : random.next() >> random.below(64);
                words[random.below(32)] = value;
                payload[random.below(64)] = value;
            }
            auto& shared = f.memory.view().slot(slot);
            if (random.one_in(3)) shared.descriptor = all_reduce(random.below(20000));
            if (random.one_in(2))
                shared.descriptor.kind =
                    static_cast<uint8_t>(random.one_in(2) ? random.below(9) : 64 + random.below(6));
            if (!random.one_in(20)) shared.state = NEXAR_SLOT_WORD(static_cast<uint32_t>(step), 1u);
            f.producer.try_push(
                {slot, static_cast<uint32_t>(step),
                 static_cast<uint8_t>(random.one_in(30) ? random.below(9) : uint64_t{NEXAR_ENTRY_SUBMIT})});
            if (random.one_in(50))
                f.memory.view().header().submit_tail = static_cast<uint32_t>(random.next());
            f.core.drain(at);
            while (!f.engine.ops.empty()) {
                const auto op = f.engine.ops.back();
                f.engine.ops.pop_back();
                ++accepted;
                for (const MemoryRef& buffer : {op.in, op.out}) {
                    if (buffer.bytes == 0) continue;
                    const std::byte* first = buffer.place().resolve();
                    REQUIRE(first >= f.region.data());
                    REQUIRE(first + buffer.bytes <= f.region.data() + f.region.size());
                }
                if (!random.one_in(4)) f.core.complete(op.ticket, {});
            }
            REQUIRE(f.core.in_flight() <= 16);
            REQUIRE(f.core.groups() <= 64);
        }
        closed += f.core.broken().has_value();
    }
    CHECK(closed > 0);
    CHECK(accepted > 1000);  // or this test would be about nothing
}
