// Staged operations [S12] as SessionCore sees them: windows, counts, and what a client makes up.
#include "core_fixture.hpp"

using namespace nexar;
using namespace nexar::local;
using namespace nexar::test;

namespace {

// 4 ranks, segments of 4096 bytes: 10 segments.
nexar_shm_descriptor staged_all_reduce(uint32_t windows = 2) {
    nexar_shm_descriptor d = all_reduce(10240);
    d.flags = NEXAR_SHM_FLAG_STAGED_IN | NEXAR_SHM_FLAG_STAGED_OUT;
    d.stage_windows = windows;
    d.out.offset = 16384;
    return d;
}

}  // namespace

TEST_CASE("a staged descriptor becomes a request with its windows; the group's segment size was reported",
          "[local][S12]") {
    Fixture f;
    CHECK(f.memory.view().slot(0).result.stage == 4096);
    f.push(3, staged_all_reduce());
    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.stage.windows == 2);
    CHECK((op.stage.in && op.stage.out));
    CHECK((op.stage.in_stride == 4096 && op.stage.out_stride == 4096));
    CHECK((op.in.bytes == 8192 && op.out.bytes == 8192));
    CHECK(op.out.place().resolve() == f.region.data() + 16384);

    auto d = staged_all_reduce(3);
    d.kind = NEXAR_OP_ALL_GATHER;  // rows of 4 ranks: 40 segments of 256 elements
    f.push(4, d);
    REQUIRE(f.engine.ops.size() == 2);
    CHECK(f.engine.ops[1].stage.in_stride == 1024);
    CHECK(f.engine.ops[1].stage.out_stride == 4096);
    CHECK(f.engine.ops[1].out.bytes == 3 * 4096);

    d = staged_all_reduce(1);
    d.kind = NEXAR_OP_BROADCAST;  // we are rank 2, the root is 0: no input here, so nothing of it is staged
    d.in = {};
    f.push(5, d);
    REQUIRE(f.engine.ops.size() == 3);
    CHECK((!f.engine.ops[2].stage.in && f.engine.ops[2].stage.out));
}

TEST_CASE("a staged descriptor that makes no sense is refused, and the answer says why", "[local]") {
    Fixture f;
    const auto refused = [&](nexar_shm_descriptor d) {
        const int32_t status = f.ask(2, d);
        return std::to_string(status) + " " + f.text(2);
    };
    auto d = staged_all_reduce();
    for (const uint8_t kind : {NEXAR_OP_SEND, NEXAR_OP_RECV, NEXAR_OP_BARRIER})
        CHECK((d.kind = kind, refused(d)).find("cannot be staged") != std::string::npos);
    for (const uint32_t windows : {0u, 65u, UINT32_MAX})
        CHECK(refused(staged_all_reduce(windows)).find("1 to 64 windows") != std::string::npos);
    d = staged_all_reduce();
    CHECK((d.flags = 0, refused(d)).find("a staged side") != std::string::npos);
    d = staged_all_reduce();
    CHECK((d.out.offset = 65536 - 8191 / 4 * 4, refused(d)).find("output ends beyond") != std::string::npos);
    CHECK((d.out.offset = 16384 + 2, refused(d)).find("not aligned") != std::string::npos);
    CHECK((d.in.region = 9, refused(d)).find("not registered") != std::string::npos);
    for (const uint64_t count : {uint64_t{1} << 60, (uint64_t{1} << 60) - 1, uint64_t{1} << 61, UINT64_MAX}) {
        d = staged_all_reduce(64);
        d.count = count;
        CHECK(f.ask(2, d) == static_cast<int32_t>(Errc::invalid_argument));
        d.kind = NEXAR_OP_REDUCE_SCATTER;
        CHECK(f.ask(2, d) == static_cast<int32_t>(Errc::invalid_argument));
    }
    CHECK(f.engine.ops.empty());
    CHECK(!f.core.broken());
}

TEST_CASE(
    "hostile stage counts: growth only, clamped; for nothing in flight a race, for what is not staged a "
    "fault",
    "[local][S12]") {
    Fixture f;
    const uint32_t generation = f.push(3, staged_all_reduce());
    const uint64_t ticket = f.engine.ops[0].ticket;
    auto& slot = f.memory.view().slot(3);
    const auto say = [&](uint32_t filled, uint32_t taken, uint32_t which) {
        slot.stage_filled = filled, slot.stage_taken = taken;
        REQUIRE(f.producer.try_push({3, which, NEXAR_ENTRY_STAGE}));
        f.core.drain(at);
    };
    say(2, 0, generation);
    say(1, 1, generation);
    say(1, 0, generation);           // nothing new
    say(9, 9, generation + 1);       // not in flight: ignored
    say(UINT32_MAX, 0, generation);  // 10 is all there is
    say(0, UINT32_MAX - 1, generation);
    const std::vector<Engine::Moved> expected{
        {ticket, 2, 0}, {ticket, 2, 1}, {ticket, 10, 1}, {ticket, 10, 10}};
    CHECK(f.engine.moves == expected);

    f.push(4, all_reduce(100));
    for (int i = 0; i < 40 && !f.core.broken(); ++i) {
        REQUIRE(f.producer.try_push({4, f.generation, NEXAR_ENTRY_STAGE}));
        f.core.drain(at);
    }
    REQUIRE(f.core.broken());
    CHECK(f.core.broken()->text.find("not staged") != std::string::npos);
    CHECK(f.engine.moves.size() == 4);
}

TEST_CASE(
    "how far a staged operation has come stands in its slot, wakes like an ending, and stays at its end",
    "[local]") {
    Fixture f;
    f.memory.view().header().bell_wanted = 1;
    const uint32_t generation = f.push(3, staged_all_reduce());
    const uint64_t ticket = f.engine.ops[0].ticket;
    shm::CompletionConsumer completions(f.memory.view());
    while (completions.try_pop()) {
    }
    auto& slot = f.memory.view().slot(3);

    f.core.stage_done(ticket, 4);

    CHECK(slot.result.stage == 4);
    CHECK(slot.state == NEXAR_SLOT_WORD(generation, 1u));
    const auto entry = completions.try_pop();
    REQUIRE(entry);
    CHECK((entry->slot == 3 && entry->generation == generation && entry->kind == NEXAR_ENTRY_COMPLETION));
    CHECK(f.waker.doorbells == 1);
    f.core.stage_done(ticket, 10);
    f.core.complete(ticket, {});
    CHECK(slot.state == NEXAR_SLOT_WORD(generation, 2u));
    CHECK(slot.result.stage == 10);

    f.core.stage_done(ticket, 3);  // late: ignored
    CHECK(slot.result.stage == 10);
    const uint32_t next = f.push(3, all_reduce(100));  // the slot's next use is not staged
    f.core.stage_done(f.engine.ops[1].ticket, 7);
    f.core.complete(f.engine.ops[1].ticket, {});
    CHECK(slot.state == NEXAR_SLOT_WORD(next, 2u));
    CHECK(slot.result.stage == 0);
}
