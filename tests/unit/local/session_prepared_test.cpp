// What the daemon keeps of persistent operations between their starts (docs/protocol/shm.md [S22]).
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "core/recycled.hpp"
#include "core_fixture.hpp"
#include "support/allocations.hpp"

namespace nexar::test {
namespace {

nexar_shm_descriptor persistent(nexar_shm_descriptor d) {
    d.flags |= NEXAR_SHM_FLAG_PERSISTENT;
    return d;
}

// Ends the slot's operation, so that it can be submitted again.
void end(Fixture& f) {
    f.core.complete(f.engine.ops.back().ticket, {});
}

}  // namespace

TEST_CASE("a persistent operation is made into a request once, and each start is a new one of it",
          "[local][S22]") {
    Fixture f;
    const auto d = persistent(all_reduce(8));
    REQUIRE(f.ask(3, d) == 1);
    const engine::OpRequest first = f.engine.ops.back();
    end(f);
    CHECK(f.core.prepared() == 1);
    for (int start = 0; start < 5; ++start) {
        REQUIRE(f.ask(3, d) == 1);
        const engine::OpRequest& again = f.engine.ops.back();
        CHECK(again.ticket != first.ticket);
        CHECK(again.known == first.known);
        CHECK(again.descriptor == first.descriptor);
        CHECK((again.in.region == first.in.region && again.out.offset == first.out.offset));
        end(f);
    }
    // Another operation of the slot is not mistaken for it, and ends it.
    REQUIRE(f.ask(3, persistent(all_reduce(9))) == 1);
    CHECK(f.engine.ops.back().descriptor.count == 9);
    CHECK(f.engine.ops.back().known != first.known);
    end(f);
    REQUIRE(f.ask(3, all_reduce(9)) == 1);
    CHECK(f.engine.ops.back().known == nullptr);
    CHECK(f.core.prepared() == 0);
    end(f);
}

TEST_CASE("what is kept ends with its region and its group, which it does not pin", "[local][S22][M3]") {
    Fixture f;
    std::vector<std::byte> memory(8192);
    add_region(f.core, 14, 1, 2, memory.size(), [&] { return memory_of_test(memory.data(), memory.size()); });
    auto d = persistent(all_reduce(8));
    d.out = {2, 0, 0};
    REQUIRE(f.ask(3, d) == 1);
    end(f);
    f.engine.ops.clear();
    CHECK(f.core.prepared() == 1);
    const size_t rows = f.engine.rows.rows();
    REQUIRE(f.free_region(2) == 0);
    CHECK(f.core.prepared() == 0);
    CHECK(f.engine.rows.rows() == rows - 1);
    CHECK(f.ask(3, d) == -101);
    CHECK(f.text(3) == "the output names region 2, which this session has freed");

    d.out = {1, 0, 0};
    d.in = {1, 0, 0};
    REQUIRE(f.ask(3, d) == 1);
    end(f);
    nexar_shm_descriptor leave{};
    leave.kind = NEXAR_CMD_GROUP_FREE;
    leave.group = 1;
    REQUIRE(f.ask(5, leave) == 0);
    CHECK(f.core.prepared() == 0);
    CHECK(f.ask(3, d) == -106);
    d.epoch = 2;
    CHECK(f.ask(3, d) == -106);
}

TEST_CASE("a list of counts is read at the first start, and charged while it is kept", "[local][S22][N2]") {
    Fixture f;
    auto d = persistent(all_reduce(10));
    d.kind = NEXAR_OP_ALL_GATHERV;
    d.args = {1, 4, 32768};
    const uint64_t counts[4] = {1, 2, 3, 4}, wrong[4] = {9, 9, 9, 9};
    std::memcpy(f.region.data() + 32768, counts, sizeof counts);
    REQUIRE(f.ask(3, d) == 1);
    const auto list = f.engine.ops.back().counts;
    end(f);
    f.engine.ops.clear();
    const auto charged = [&] { return f.tenants.of("", 1000)->used(Resource::scratch_bytes); };
    CHECK(charged() == sizeof counts);
    std::memcpy(f.region.data() + 32768, wrong, sizeof wrong);
    REQUIRE(f.ask(3, d) == 1);
    CHECK(f.engine.ops.back().counts == list);
    end(f);
    f.engine.ops.clear();
    REQUIRE(f.ask(3, all_reduce(1)) == 1);
    end(f);
    CHECK(charged() == sizeof counts);  // by `list`
}

TEST_CASE("only operations that can be persistent may say so", "[local][S22][S14]") {
    Fixture f;
    nexar_shm_descriptor d{};
    d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
    d.group = d.epoch = 1;
    for (const uint8_t kind :
         {NEXAR_OP_PROBE, NEXAR_OP_MPROBE, NEXAR_OP_MESSAGE_FREE, NEXAR_OP_GROUP_SPLIT, NEXAR_OP_GROUP_DUP}) {
        d.kind = kind;
        CHECK(f.ask(3, persistent(d)) == -101);
        CHECK(f.text(3).ends_with(" cannot be persistent"));
    }
}

TEST_CASE("a start asks for no memory in the session, staged or not", "[local][S22][S25]") {
    Fixture f;
    auto d = persistent(all_reduce(8));
    if (GENERATE(false, true)) {
        d.flags |= NEXAR_SHM_FLAG_STAGED_IN | NEXAR_SHM_FLAG_STAGED_OUT;
        d.stage_windows = 2;
    }
    f.engine.ops.reserve(100);
    REQUIRE(f.ask(3, d) == 1);
    end(f);
    for (int start = 0; start < 10; ++start) {
        f.engine.ops.clear();
        const size_t before = allocations();
        f.memory.view().slot(3).state = NEXAR_SLOT_WORD(++f.generation, 1u);
        const bool pushed = f.producer.try_push({3, f.generation, NEXAR_ENTRY_SUBMIT});
        f.core.drain(at);
        f.core.complete(f.engine.ops.back().ticket, {});
        const size_t asked = allocations() - before;
        CHECK(pushed);
        CHECK(f.engine.ops.size() == 1);
        CHECK((asked == 0 || !recycled::is_on));  // [S26]
    }
}

}  // namespace nexar::test
