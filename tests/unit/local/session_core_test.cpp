// SessionCore over plain memory: what a hostile or broken client may write there, and what becomes of it.
#include "local/session_core.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "shm/words.hpp"
#include "support/control_memory.hpp"

using namespace nexar;
using namespace nexar::local;
using test::ControlMemory;

namespace {

constexpr Time at{};

// Takes everything and completes nothing by itself; answers group opens at once.
struct Engine final : engine::Service {
    SessionCore* core = nullptr;
    std::vector<engine::OpRequest> ops;
    std::vector<uint64_t> cancelled;
    struct Moved {
        uint64_t ticket;
        uint32_t filled, taken;
        bool operator==(const Moved&) const = default;
    };
    std::vector<Moved> moves;
    size_t freed_groups = 0;

    Result<void> open(Time, const engine::OpenRequest& request) override {
        engine::GroupInfo info;
        info.id = {1, 1, 1};
        info.size = request.size;
        info.segment_bytes = 4096;
        info.rank = Rank(request.rank < 0 ? 0 : static_cast<uint32_t>(request.rank));
        for (uint32_t r = 0; r < request.size; ++r) info.members.push_back({Rank(r), NodeId{{7}}, 1});
        core->group_opened(request.ticket, info);
        return {};
    }
    Result<void> submit(Time, const engine::OpRequest& request) override {
        ops.push_back(request);
        if (ops.size() > 100000) ops.clear();
        return {};
    }
    void cancel(Time, SessionId, uint64_t ticket) override { cancelled.push_back(ticket); }
    void stage(Time, SessionId, uint64_t ticket, uint32_t filled, uint32_t taken) override {
        moves.push_back({ticket, filled, taken});
    }
    Result<void> free_group(Time, SessionId, const GroupId&) override {
        ++freed_groups;
        return {};
    }
    void session_ended(Time, SessionId, bool, const std::string&) override {}
};

struct NoWaker final : Waker {
    size_t bells = 0;
    void wake_all(uint32_t*) override {}
    void ring_bell() override { ++bells; }
};

struct Fixture {
    ControlMemory memory{16};
    Engine engine;
    NoWaker waker;
    SessionCore core{{SessionId(5), 1000, 77, {}}, memory.view(), engine, waker, {}};
    shm::SubmissionProducer producer{memory.view()};
    uint32_t generation = 0;
    std::vector<std::byte> region = std::vector<std::byte>(65536);

    Fixture() {
        engine.core = &core;
        auto keepalive = std::shared_ptr<const void>(region.data(), [](const void*) {});
        core.add_region(15, 1, 1, engine::Buffer{region.data(), region.size(), keepalive});
        nexar_shm_group_open open{};
        open.size = 4, open.rank = 2, open.name_bytes = 3;
        memory.view().payload(0).group_open = open;
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_OPEN;
        REQUIRE(ask(0, d) == 0);
        REQUIRE(memory.view().slot(0).result.group == 1);
    }

    uint32_t push(uint32_t slot, const nexar_shm_descriptor& d) {
        ++generation;
        memory.view().slot(slot).descriptor = d;
        memory.view().slot(slot).state = NEXAR_SLOT_WORD(generation, 1u);
        REQUIRE(producer.try_push({slot, generation, NEXAR_ENTRY_SUBMIT}));
        core.drain(at);
        return generation;
    }
    // The slot's status after a drain; PENDING if it is in flight.
    int32_t ask(uint32_t slot, const nexar_shm_descriptor& d) {
        const uint32_t mine = push(slot, d);
        const auto& shared = memory.view().slot(slot);
        return shared.state == NEXAR_SLOT_WORD(mine, 2u) ? shared.result.status : 1;
    }
    std::string text(uint32_t slot) {
        const auto& detail = memory.view().detail(slot);
        return {detail.text, detail.text_bytes};
    }
};

nexar_shm_descriptor all_reduce(uint64_t count) {
    nexar_shm_descriptor d{};
    d.kind = NEXAR_OP_ALL_REDUCE;
    d.group = 1;
    d.count = count;
    d.in = {1, 0, 0};
    d.out = {1, 0, 4096};
    return d;
}

}  // namespace

TEST_CASE("a good descriptor becomes a request with the right memory, and its completion lands in its slot",
          "[local]") {
    Fixture f;
    const uint32_t generation = f.push(3, all_reduce(100));

    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.in.data == f.region.data());
    CHECK(op.out.data == f.region.data() + 4096);
    CHECK(op.out.bytes == 400);
    CHECK(op.session == SessionId(5));
    f.core.complete(op.ticket, {});
    CHECK(f.memory.view().slot(3).state == NEXAR_SLOT_WORD(generation, 2u));
    CHECK(f.memory.view().slot(3).result.status == 0);
    CHECK(f.core.in_flight() == 0);
    f.core.complete(op.ticket, {});  // a second time: ignored
    f.core.complete(~uint64_t{0}, {});
    CHECK(!f.core.broken());
}

TEST_CASE("every field of a descriptor is validated, and the answer names it", "[local]") {
    Fixture f;
    const auto refused = [&](nexar_shm_descriptor d) {
        const int32_t status = f.ask(2, d);
        return std::to_string(status) + " " + f.text(2);
    };
    auto d = all_reduce(100);
    CHECK((d.kind = 9, refused(d)) == "-3 request kind 9 is unknown");
    CHECK((d.kind = 255, refused(d)) == "-3 request kind 255 is unknown");
    d = all_reduce(100);
    CHECK((d.dtype = 12, refused(d)) == "-1 dtype 12 is unknown");
    d = all_reduce(100);
    CHECK((d.op = 5, refused(d)) == "-1 reduction 5 is unknown");
    d = all_reduce(100);
    CHECK((d.group = 2, refused(d)) == "-6 the group is not open in this session");
    CHECK(refused(all_reduce(UINT64_MAX / 2)) == "-1 count 9223372036854775807 is too large for its type");
    CHECK(refused(all_reduce(16385)).substr(0, 40) == "-1 the input ends beyond its region of 6");
    d = all_reduce(100);
    CHECK((d.in.region = 2, refused(d)) == "-1 the input names region 2, which is not one");
    CHECK((d.in.region = UINT32_MAX, refused(d)) == "-1 the input names region 4294967295, which is not one");
    d = all_reduce(100);
    CHECK((d.out.offset = UINT64_MAX - 3, refused(d)).substr(0, 20) == "-1 the output ends b");
    CHECK((d.out.offset = 65536, refused(d)).substr(0, 20) == "-1 the output ends b");
    CHECK((d.out.offset = 2, refused(d)) == "-1 the output is not aligned to its elements");
    d = all_reduce(1);
    d.kind = NEXAR_OP_BROADCAST, d.peer = 4;
    CHECK(refused(d) == "-1 rank 4 is not in a group of 4");
    d.kind = NEXAR_OP_SEND, d.peer = UINT32_MAX;
    CHECK(refused(d).substr(0, 8) == "-1 rank ");
    d.kind = NEXAR_CMD_GROUP_NODE, d.peer = 4;
    CHECK(refused(d).substr(0, 8) == "-1 rank ");
    d.kind = NEXAR_CMD_REGION_FREE, d.in.region = 0;
    CHECK(refused(d) == "-4 region 0 is not one");
    CHECK(f.engine.ops.empty());
    CHECK(!f.core.broken());
}

TEST_CASE("a region's memory lives until the last operation on it is over", "[local]") {
    Fixture f;
    auto owned = std::make_shared<std::vector<std::byte>>(4096);
    std::weak_ptr<std::vector<std::byte>> alive = owned;
    f.core.add_region(14, 1, 2, engine::Buffer{owned->data(), 4096, owned});
    owned.reset();
    auto d = all_reduce(8);
    d.in.region = 2;
    f.push(3, d);
    nexar_shm_descriptor free{};
    free.kind = NEXAR_CMD_REGION_FREE;
    free.in.region = 2;

    CHECK(f.ask(4, free) == 0);

    CHECK(!alive.expired());
    CHECK(f.core.regions() == 1);
    f.engine.ops.clear();
    CHECK(alive.expired());
    CHECK(f.ask(4, free) == -4);
}

TEST_CASE("regions: an id twice, an id too large, too many bytes", "[local]") {
    Fixture f;
    const auto add = [&](uint32_t region, uint64_t bytes) {
        auto keepalive = std::shared_ptr<const void>(f.region.data(), [](const void*) {});
        f.core.add_region(14, ++f.generation, region, engine::Buffer{f.region.data(), bytes, keepalive});
        return f.memory.view().slot(14).result.status;
    };
    CHECK(add(1, 64) == -2);
    CHECK(add(0, 64) == -20);
    CHECK(add(257, 64) == -20);
    CHECK(add(2, uint64_t{1} << 42) == -23);
    CHECK(add(2, 64) == 0);
    CHECK(f.core.region_bytes() == 65536 + 64);
}

TEST_CASE("cancel reaches the engine only for what is in flight", "[local]") {
    Fixture f;
    const uint32_t generation = f.push(3, all_reduce(100));
    REQUIRE(f.producer.try_push({3, generation, NEXAR_ENTRY_CANCEL}));
    REQUIRE(f.producer.try_push({3, generation + 1, NEXAR_ENTRY_CANCEL}));
    REQUIRE(f.producer.try_push({4, 1, NEXAR_ENTRY_CANCEL}));
    f.core.drain(at);
    CHECK(f.engine.cancelled == std::vector<uint64_t>{f.engine.ops[0].ticket});
}

TEST_CASE("a turn takes a bounded number of entries; senseless ones end the session after a few", "[local]") {
    Fixture f;
    for (int i = 0; i < 64; ++i) REQUIRE(f.producer.try_push({15, 12345, NEXAR_ENTRY_SUBMIT}));
    CHECK(f.core.drain(at) == 16);
    REQUIRE(f.core.broken());
    CHECK(f.core.broken()->code == Errc::protocol_error);
    CHECK(f.core.drain(at) == 0);
    CHECK(!f.core.has_work());
    CHECK(f.memory.view().header().closed_code == static_cast<uint32_t>(Errc::protocol_error));
}

TEST_CASE("the same slot submitted twice is taken once", "[local]") {
    Fixture f;
    const uint32_t generation = f.push(3, all_reduce(100));
    REQUIRE(f.producer.try_push({3, generation, NEXAR_ENTRY_SUBMIT}));
    f.core.drain(at);
    CHECK(f.engine.ops.size() == 1);
    CHECK(f.core.in_flight() == 1);
}

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
                for (const auto& buffer : {op.in, op.out}) {
                    if (buffer.bytes == 0) continue;
                    REQUIRE(buffer.data >= f.region.data());
                    REQUIRE(buffer.data + buffer.bytes <= f.region.data() + f.region.size());
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

// ---- Staged operations [S12] ----

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

TEST_CASE("a staged descriptor becomes a request with its windows; the group's segment size was told",
          "[local]") {
    Fixture f;
    CHECK(f.memory.view().slot(0).result.stage == 4096);
    f.push(3, staged_all_reduce());
    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.stage.windows == 2);
    CHECK((op.stage.in && op.stage.out));
    CHECK((op.stage.in_stride == 4096 && op.stage.out_stride == 4096));
    CHECK((op.in.bytes == 8192 && op.out.bytes == 8192));
    CHECK(op.out.data == f.region.data() + 16384);

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
    CHECK((d.in.region = 9, refused(d)).find("not one") != std::string::npos);
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
    "[local]") {
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
    CHECK(f.waker.bells == 1);
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
