// SessionCore over plain memory: what a hostile or broken client may write there, and what becomes of it.
#include "local/session_core.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "core_fixture.hpp"
#include "local/used_numbers.hpp"
#include "support/add_region.hpp"

using namespace nexar;
using namespace nexar::local;
using namespace nexar::test;

TEST_CASE("a good descriptor becomes a request with the right memory, and its completion lands in its slot",
          "[local][S4]") {
    Fixture f;
    const uint32_t generation = f.push(3, all_reduce(100));

    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.in.place().resolve() == f.region.data());
    CHECK(op.out.place().resolve() == f.region.data() + 4096);
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

TEST_CASE("every field of a descriptor is validated, and the answer names it", "[local][S14]") {
    Fixture f;
    const auto refused = [&](nexar_shm_descriptor d) {
        const int32_t status = f.ask(2, d);
        return std::to_string(status) + " " + f.text(2);
    };
    auto d = all_reduce(100);
    CHECK((d.kind = operation_count, refused(d)) ==
          "-103 request kind " + std::to_string(operation_count) + " is unknown");
    CHECK((d.kind = 255, refused(d)) == "-103 request kind 255 is unknown");
    d = all_reduce(100);
    CHECK((d.dtype = 19, refused(d)) == "-101 dtype 19 is unknown");
    d = all_reduce(100);
    CHECK((d.op = 14, refused(d)) == "-101 reduction 14 is unknown");
    d = all_reduce(100);
    CHECK((d.op = 5, refused(d)) ==
          "-101 f32 has no reduction band; allowed: sum, prod, min, max, avg, premul_sum");
    d = all_reduce(100);
    CHECK((d.kind = NEXAR_OP_EXCLUSIVE_SCAN, d.op = 4, refused(d)) ==
          "-101 exclusive_scan has no reduction avg; allowed: sum, and a division by this rank's number");
    d = all_reduce(100);
    CHECK((d.scalar = 1, refused(d)) == "-101 scalar is 1; allowed: 0, all_reduce has none");
    d = all_reduce(100);
    CHECK((d.op = 13, d.scalar = uint64_t{1} << 32, refused(d)) ==
          "-101 scalar is longer than an element of f32");
    d = all_reduce(100);
    CHECK((d.group = 2, refused(d)) == "-106 the group is not open in this session");
    CHECK(refused(all_reduce(UINT64_MAX / 2)) == "-101 count 9223372036854775807 is too large for its type");
    CHECK(refused(all_reduce(16385)) == "-101 the input ends beyond its region 1 of 65536 bytes");
    d = all_reduce(100);
    CHECK((d.in.region = 0, refused(d)) ==
          "-101 the input names region 0, which this session has not registered");
    CHECK((d.in.region = 2, refused(d)) ==
          "-101 the input names region 2, which this session has not registered");
    CHECK((d.in.region = UINT32_MAX, refused(d)) ==
          "-101 the input names region 4294967295, which this session has not registered");
    d = all_reduce(100);
    CHECK((d.out.offset = UINT64_MAX - 3, refused(d)).substr(0, 22) == "-101 the output ends b");
    CHECK((d.out.offset = 65536, refused(d)).substr(0, 22) == "-101 the output ends b");
    CHECK((d.out.offset = 2, refused(d)) == "-101 the output in region 1 is not aligned to its elements");
    d = all_reduce(1);
    d.kind = NEXAR_OP_BROADCAST, d.peer = 4;
    CHECK(refused(d) == "-101 rank 4 is not in a group of 4");
    d.kind = NEXAR_OP_SEND, d.peer = UINT32_MAX;
    CHECK(refused(d).substr(0, 10) == "-101 rank ");
    d = {};
    d.kind = NEXAR_CMD_GROUP_NODE, d.group = 1, d.peer = 4;
    CHECK(refused(d).substr(0, 10) == "-101 rank ");
    d = {};
    d.kind = NEXAR_CMD_REGION_FREE, d.in.region = 0;
    CHECK(refused(d) == "-104 region 0 is not one");
    CHECK(f.engine.ops.empty());
    CHECK(!f.core.broken());
}

namespace {

// Of four ranks, of which the session's is 2; the list lies at 32768.
nexar_shm_descriptor all_gatherv(Fixture& f, std::array<uint64_t, 4> counts) {
    nexar_shm_descriptor d = all_reduce(0);
    d.kind = NEXAR_OP_ALL_GATHERV;
    for (const uint64_t count : counts) d.count += count;
    d.args = {1, 4, 32768};
    std::memcpy(f.region.data() + 32768, counts.data(), sizeof counts);
    return d;
}

}  // namespace

TEST_CASE("a list of counts gives both sides their lengths", "[local][S3]") {
    Fixture f;
    REQUIRE(f.ask(2, all_gatherv(f, {5, 0, 7, 100})) == 1);
    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.in.bytes == 4 * 7);
    CHECK(op.out.bytes == 4 * 112);
    CHECK(op.counts->begin(3) == 12);
    CHECK(op.descriptor.counts == op.counts->digest());
}

TEST_CASE("a list of counts is charged as scratch memory while the daemon keeps it", "[local][N2]") {
    TenantLimits limits;
    limits.total(Resource::scratch_bytes) = 320;  // a share of 96: three lists of four
    Fixture f(limits);
    const auto used = [&] { return f.tenants.of("", 1000)->used(Resource::scratch_bytes); };
    for (uint32_t slot = 2; slot < 5; ++slot) REQUIRE(f.ask(slot, all_gatherv(f, {1, 2, 3, 4})) == 1);
    CHECK(used() == 96);
    CHECK(f.ask(5, all_gatherv(f, {1, 2, 3, 4})) == static_cast<int32_t>(Errc::no_memory));
    CHECK(f.text(5).contains("scratch_bytes_max"));
    f.engine.ops.clear();
    CHECK(used() == 0);
}

TEST_CASE("a list of counts is validated, and the answer names what is wrong", "[local][S14]") {
    Fixture f;
    const auto refused = [&](const nexar_shm_descriptor& d) {
        const int32_t status = f.ask(2, d);
        return std::to_string(status) + " " + f.text(2);
    };
    auto d = all_gatherv(f, {1, 2, 3, 4});
    CHECK((d.args.entries = 3, refused(d)) == "-101 args.entries is 3; allowed: 4, a count for each rank");
    d = all_gatherv(f, {1, 2, 3, 4});
    CHECK((d.args.region = 0, refused(d)) ==
          "-101 the list of counts names region 0, which this session has not registered");
    d = all_gatherv(f, {1, 2, 3, 4});
    CHECK((d.args.offset = 65536 - 24, refused(d)) ==
          "-101 the list of counts ends beyond its region 1 of 65536 bytes");
    CHECK((d.args.offset = UINT64_MAX - 7, refused(d)) ==
          "-101 the list of counts ends beyond its region 1 of 65536 bytes");
    CHECK((d.args.offset = 32772, refused(d)) ==
          "-101 the list of counts in region 1 is not aligned to its elements");
    d = all_gatherv(f, {1, 2, 3, 4});
    CHECK((d.count = 11, refused(d)) == "-101 count is 11, the counts of all ranks are together 10");
    CHECK(refused(all_gatherv(f, {1, UINT64_MAX, 1, 0})).contains("that of rank 1 is 18446744073709551615"));
    CHECK(refused(all_gatherv(f, {0, 0, 0, uint64_t{1} << 60})) ==
          "-101 count 1152921504606846976 is too large for its type");
    CHECK(refused(all_gatherv(f, {0, 0, 0, 16385})) ==
          "-101 the output ends beyond its region 1 of 65536 bytes");
    d = all_reduce(100);
    CHECK((d.args.entries = 4, refused(d)) == "-101 args.entries is 4; allowed: 0, all_reduce has none");
    CHECK(f.engine.ops.empty());
}

namespace {

// Of four ranks; what rank 2 sends to and receives from each.
nexar_shm_descriptor all_to_allv(Fixture& f, std::array<uint64_t, 8> lists) {
    nexar_shm_descriptor d = all_gatherv(f, {});
    d.kind = NEXAR_OP_ALL_TO_ALLV;
    d.args.entries = 8;
    std::memcpy(f.region.data() + 32768, lists.data(), sizeof lists);
    return d;
}

}  // namespace

TEST_CASE("a rank's own lists give each side its length, and are charged while the daemon keeps them",
          "[local][S3][N2]") {
    Fixture f;
    const auto used = [&] { return f.tenants.of("", 1000)->used(Resource::scratch_bytes); };
    REQUIRE(f.ask(2, all_to_allv(f, {1, 0, 7, 100, 50, 3, 7, 0})) == 1);
    REQUIRE(f.engine.ops.size() == 1);
    const auto& op = f.engine.ops[0];
    CHECK(op.in.bytes == 4 * 108);
    CHECK(op.out.bytes == 4 * 60);
    CHECK(op.own_counts->sends.of(3) == 100);
    CHECK(op.own_counts->receives.begin(2) == 53);
    CHECK(op.descriptor.count == 0);
    CHECK(op.descriptor.counts == 0);
    CHECK(used() == 64);
    f.engine.ops.clear();
    CHECK(used() == 0);
}

TEST_CASE("a rank's own lists are validated, and the answer names what is wrong", "[local][S14]") {
    Fixture f;
    const auto refused = [&](const nexar_shm_descriptor& d) {
        const int32_t status = f.ask(2, d);
        return std::to_string(status) + " " + f.text(2);
    };
    auto d = all_to_allv(f, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK((d.args.entries = 4, refused(d)) == "-101 args.entries is 4; allowed: 8, two counts for each rank");
    d = all_to_allv(f, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK((d.args.offset = 65536 - 56, refused(d)) ==
          "-101 the list of counts ends beyond its region 1 of 65536 bytes");
    d = all_to_allv(f, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK((d.count = 10, refused(d)) == "-101 count is 10; allowed: 0, all_to_allv has none");
    d = all_to_allv(f, {1, 2, 3, 4, 5, 6, 7, 8});
    d.flags = NEXAR_SHM_FLAG_STAGED_IN, d.stage_windows = 1;
    CHECK(refused(d) == "-101 all_to_allv cannot be staged");
    CHECK(refused(all_to_allv(f, {1, UINT64_MAX, 1, 0, 0, 0, 0, 0})).contains("that of rank 1"));
    CHECK(refused(all_to_allv(f, {0, 0, 0, 0, 0, 0, uint64_t{1} << 63, 0})).contains("that of rank 2"));
    CHECK(refused(all_to_allv(f, {0, 0, 0, uint64_t{1} << 61, 0, 0, 0, 0})).contains("too many"));
    CHECK(refused(all_to_allv(f, {0, 0, 0, 0, 0, 0, 0, uint64_t{1} << 62})).contains("too many"));
    CHECK(refused(all_to_allv(f, {0, 0, 0, 16385, 0, 0, 0, 0})) ==
          "-101 the input ends beyond its region 1 of 65536 bytes");
    CHECK(refused(all_to_allv(f, {0, 0, 0, 0, 0, 0, 0, 16385})) ==
          "-101 the output ends beyond its region 1 of 65536 bytes");
    CHECK(f.engine.ops.empty());
}

TEST_CASE("a list of counts that a client rewrites while it is read is used as it was copied",
          "[local][S3]") {
    Fixture f;
    const auto d = all_gatherv(f, {1000, 1000, 1000, 1000});
    std::atomic<bool> over{false};
    std::thread hostile([&] {
        auto* list = reinterpret_cast<uint64_t*>(f.region.data() + 32768);
        for (uint64_t turn = 0; !over.load(std::memory_order_relaxed); ++turn)
            for (int rank = 0; rank < 4; ++rank)
                std::atomic_ref(list[rank])
                    .store(turn % 3 == 0 ? UINT64_MAX / 2 : 500 + 500 * (turn % 2),
                           std::memory_order_relaxed);
    });
    for (int i = 0; i < 20'000; ++i) {
        f.ask(2, d);
        for (const auto& op : f.engine.ops) {
            REQUIRE(op.counts->sum() == op.descriptor.count);
            REQUIRE(op.in.bytes == 4 * op.counts->of(2));
            REQUIRE(op.out.bytes == 16000);
            f.core.complete(op.ticket, {});
        }
        f.engine.ops.clear();
    }
    over = true;
    hostile.join();
    CHECK(!f.core.broken());
}

TEST_CASE("a region's memory stays mapped until the last operation on it has ended", "[local][S10][M3][M5]") {
    Fixture f;
    auto owned = std::make_shared<std::vector<std::byte>>(4096);
    std::weak_ptr<std::vector<std::byte>> alive = owned;
    nexar::test::add_region(f.core, 14, 1, 2, 4096,
                            [&] { return nexar::test::memory_of_test(owned->data(), 4096, owned); });
    owned.reset();

    CHECK(f.use_and_free(2) == 0);

    CHECK(!alive.expired());
    CHECK(f.core.regions() == 1);
    CHECK(f.engine.rows.rows() == 2);  // the freed one has a pin
    auto d = all_reduce(8);
    d.in.region = 2;
    CHECK(f.ask(5, d) == -101);
    CHECK(f.text(5) == "the input names region 2, which this session has freed");
    d.in.region = 3;
    CHECK(f.ask(5, d) == -101);
    CHECK(f.text(5) == "the input names region 3, which this session has not registered");
    f.engine.ops.clear();
    CHECK(alive.expired());
    CHECK(f.engine.rows.rows() == 1);
    CHECK(f.free_region(2) == -104);
}

TEST_CASE("a freed region is charged while an operation uses it, and until it is unmapped",
          "[local][N1][N2]") {
    Fixture f;
    const TenantRef user = f.tenants.of("", 1000);
    const uint64_t before = user->used(Resource::region_bytes);
    constexpr uint64_t large = 1 << 21;
    const ChargeRef others = *user->charge(
        Resource::region_bytes, user->limits().share(Resource::region_bytes) - 3 * large / 2 - before);
    auto unmapped_with = std::make_shared<std::vector<ChargeRef>>();
    const auto add = [&](uint32_t region, std::shared_ptr<std::vector<ChargeRef>> charges) {
        auto memory = nexar::test::memory_of_test(f.region.data(), large);
        memory.charges = std::move(charges);
        nexar::test::add_region(f.core, 14, ++f.generation, region, large, [&] { return memory; });
        return static_cast<Errc>(f.memory.view().slot(14).result.status);
    };
    REQUIRE(add(2, unmapped_with) == Errc::ok);
    REQUIRE(f.use_and_free(2) == 0);

    CHECK(add(3, {}) == Errc::no_memory);  // the operation pins it
    f.engine.ops.clear();
    CHECK(f.engine.rows.rows() == 1);
    CHECK(add(4, {}) == Errc::no_memory);  // it is not unmapped yet
    CHECK(f.text(14).contains("user_share_percent"));
    unmapped_with.reset();
    CHECK(user->used(Resource::region_bytes) + 3 * large / 2 == user->limits().share(Resource::region_bytes));
    CHECK(add(5, {}) == Errc::ok);
}

TEST_CASE("regions: numbers used once, so many at once, so many bytes", "[local]") {
    Fixture f;
    size_t mapped = 0;  // a region that is refused for a number or a share never is
    const auto add = [&](uint32_t region, uint64_t bytes) {
        nexar::test::add_region(f.core, 14, ++f.generation, region, bytes, [&] {
            ++mapped;
            return nexar::test::memory_of_test(f.region.data(), bytes);
        });
        return static_cast<Errc>(f.memory.view().slot(14).result.status);
    };
    const auto free = [&](uint32_t region) {
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_REGION_FREE;
        d.in.region = region;
        return f.ask(13, d);
    };
    CHECK(add(1, 64) == Errc::invalid_argument);
    CHECK(f.text(14).contains("number is 1;"));
    CHECK(add(0, 64) == Errc::invalid_argument);
    CHECK(add(3, uint64_t{1} << 42) == Errc::no_memory);
    CHECK(add(3, 64) == Errc::invalid_argument);  // used up, although nothing came of it
    CHECK(add(2, 64) == Errc::ok);                // one thread may overtake another
    CHECK(f.core.region_bytes() == 65536 + 64);
    CHECK(free(2) == 0);
    CHECK(add(2, 64) == Errc::invalid_argument);
    CHECK(mapped == 1);
    uint32_t next = 1'000'000'000;  // numbers far beyond the table's length
    while (f.core.regions() < NEXAR_SHM_REGIONS_MAX) REQUIRE(add(next++, 1) == Errc::ok);
    CHECK(add(next++, 1) == Errc::table_full);
    CHECK(free(1'000'000'000) == 0);
    CHECK(add(next++, 1) == Errc::ok);
    CHECK(add(UINT32_MAX, 1) == Errc::table_full);
    CHECK(mapped == NEXAR_SHM_REGIONS_MAX + 1);  // one was freed before
}

TEST_CASE("the numbers that were used are remembered in bounded memory, whatever order they come in",
          "[local]") {
    UsedNumbers used(4);
    for (const uint32_t n : {2u, 1u, 3u}) REQUIRE(used.try_use(n));
    for (const uint32_t n : {0u, 1u, 2u, 3u}) REQUIRE_FALSE(used.try_use(n));
    for (const uint32_t n : {10u, 20u, 30u, 40u}) REQUIRE(used.try_use(n));
    REQUIRE(used.try_use(5));
    REQUIRE_FALSE(used.try_use(4));  // passed over for too long
    REQUIRE(used.try_use(11));
    REQUIRE_FALSE(used.try_use(10));
    REQUIRE(used.try_use(UINT32_MAX));
    REQUIRE_FALSE(used.try_use(UINT32_MAX));
}

TEST_CASE("what a request does not use must be 0, and the answer names the field [S14]", "[local]") {
    Fixture f;
    const auto refused = [&](nexar_shm_descriptor d) {
        const auto status = static_cast<Errc>(f.ask(2, d));
        return std::string(name_of(status)) + " " + f.text(2);
    };
    using D = nexar_shm_descriptor;
    const auto with = [&](uint8_t kind, auto change) {
        D d = kind < NEXAR_OP_KINDS ? all_reduce(8) : D{};
        d.kind = kind;
        if (kind == NEXAR_OP_BARRIER) d.count = 0;
        change(d);
        return refused(d);
    };
    const std::string bad = "INVALID_ARGUMENT ";
    const uint8_t op = NEXAR_OP_ALL_REDUCE;
    CHECK(with(op, [](D& d) { d.priority = 3; }).starts_with(bad + "priority is 3; allowed: 0 (critical)"));
    CHECK(with(op, [](D& d) { d.priority = 254; }).starts_with(bad + "priority is 254"));
    CHECK(with(NEXAR_OP_SEND, [](D& d) {
              d.op = 0, d.out = {}, d.flags = NEXAR_SHM_FLAG_PERSISTENT, d.args.entries = 2;
          }).starts_with(bad + "a message in pieces cannot be persistent"));
    CHECK(with(op, [](D& d) { d.flags = 64; }).starts_with(bad + "flags has the unknown bits 64"));
    CHECK(with(op, [](D& d) {
              d.flags = NEXAR_SHM_FLAG_ANY_TAG;
          }).starts_with(bad + "flags has the bit for any tag"));
    CHECK(with(op, [](D& d) { d.peer = 1; }).starts_with(bad + "peer is 1"));
    CHECK(with(op, [](D& d) { d.tag = 9; }).starts_with(bad + "tag is 9"));
    CHECK(with(op, [](D& d) { d.timeout_ns = -2; }).starts_with(bad + "timeout_ns is -2"));
    CHECK(with(op, [](D& d) { d.in.entries = 1; }).starts_with(bad + "in.entries is 1"));
    CHECK(with(op, [](D& d) { d.out.entries = 1; }).starts_with(bad + "out.entries is 1"));
    CHECK(with(op, [](D& d) { d.args.region = 1; }).starts_with(bad + "args.region is 1"));
    CHECK(with(op, [](D& d) { d.args.entries = 1; }).starts_with(bad + "args.entries is 1"));
    CHECK(with(op, [](D& d) { d.args.offset = 8; }).starts_with(bad + "args.offset is 8"));
    for (size_t i = 0; i < sizeof(D::zero); ++i)
        CHECK(with(op, [&](D& d) { d.zero[i] = 1; }).starts_with(bad + "a reserved byte"));
    CHECK(with(NEXAR_OP_BARRIER, [](D& d) { d.count = 4; }).starts_with(bad + "count is 4"));
    CHECK(with(NEXAR_OP_BARRIER, [](D& d) { d.dtype = 1; }).starts_with(bad + "dtype is 1"));
    CHECK(with(NEXAR_OP_BROADCAST, [](D& d) { d.op = 1; }).starts_with(bad + "op is 1"));
    for (const uint8_t message : {NEXAR_OP_SEND, NEXAR_OP_RECV})
        CHECK(with(message, [](D& d) { d.match_id = 3; }).starts_with(bad + "match_id is 3"));
    CHECK(with(NEXAR_CMD_REGION_FREE, [](D& d) { d.group = 1; }).starts_with(bad + "group is 1"));
    CHECK(with(NEXAR_CMD_GROUP_OPEN, [](D& d) { d.epoch = 1; }).starts_with(bad + "epoch is 1"));
    CHECK(with(NEXAR_CMD_GROUP_OPEN, [](D& d) { d.timeout_ns = -1; }).starts_with(bad + "timeout_ns"));
    CHECK(with(NEXAR_CMD_GROUP_FREE, [](D& d) { d.priority = 255; }).starts_with(bad + "priority"));
    CHECK(with(NEXAR_CMD_GROUP_NODE, [](D& d) { d.count = 1; }).starts_with(bad + "count is 1"));
    CHECK(with(NEXAR_CMD_REGION_ADD, [](D&) {}).starts_with("UNSUPPORTED request kind 67"));
    CHECK(f.engine.ops.empty());
    CHECK(f.core.groups() == 1);

    auto d = all_reduce(8);
    d.epoch = 2;
    CHECK(refused(d) == "GROUP_CHANGED the handle is of epoch 2, the group is in epoch 1");
    CHECK(f.memory.view().slot(2).result.group_epoch == 1);
    CHECK(f.memory.view().slot(2).result.sequence == NEXAR_SHM_NO_SEQUENCE);
    CHECK(f.engine.ops.empty());
    // Who has an old handle may ask and free.
    d = {};
    d.kind = NEXAR_CMD_GROUP_NODE, d.group = 1, d.epoch = 2, d.peer = 3;
    CHECK(f.ask(2, d) == 0);

    d = all_reduce(8);
    d.match_id = 42;
    CHECK(f.ask(2, d) == 1);
    REQUIRE(f.engine.ops.size() == 1);
    CHECK(f.engine.ops[0].descriptor.match_id == 42);
}

TEST_CASE("an open's words are validated, and its time-outs handed on", "[local]") {
    Fixture f;
    nexar_shm_group_open good{};
    good.size = 4, good.rank = 1, good.name_bytes = 3;
    good.timeout_ns = 5'000'000;
    good.collective_timeout_ns = 1'500'001;  // rounded up to whole milliseconds
    good.barrier_timeout_ns = -1;
    good.rpc_timeout_ns = 0;
    good.instance = 7;
    const auto answer = [&](auto change) {
        auto open = good;
        change(open);
        f.memory.view().payload(0).group_open = open;
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_OPEN;
        const auto status = static_cast<Errc>(f.ask(0, d));
        return std::string(name_of(status)) + " " + (status == Errc::ok ? "" : f.text(0));
    };
    using Open = nexar_shm_group_open;
    CHECK(answer([](Open&) {}) == "OK ");
    const auto& asked = f.engine.opens.back();
    CHECK(asked.timeout == Duration(5'000'000));
    CHECK(asked.asked.collective == Duration(2'000'000));
    CHECK(asked.asked.barrier == Duration(-1));
    CHECK(asked.asked.rpc == Duration(0));
    CHECK(asked.instance == 7);
    CHECK(answer([](Open& o) { o.timeout_ns = -1; }).contains("timeout_ns of the opening is -1"));
    CHECK(answer([](Open& o) { o.collective_timeout_ns = -2; }).contains("collective_timeout_ns is -2"));
    CHECK(answer([](Open& o) { o.barrier_timeout_ns = INT64_MIN; }).contains("barrier_timeout_ns is -9"));
    CHECK(answer([](Open& o) { o.rpc_timeout_ns = -7; }).contains("rpc_timeout_ns is -7"));
    CHECK(answer([](Open& o) { o.size = 4097; }).contains("allowed: 1 to 4096"));
    CHECK(answer([](Open& o) { o.name_bytes = 129; }).contains("1 to 128 bytes"));
}

TEST_CASE("an abort's reason is validated, and handed on as one line", "[F22][local]") {
    const auto answer = [](std::string_view reason, auto change) {
        Fixture f;  // rank 2 of 4 is membership 1
        nexar_shm_group_abort asked{};
        asked.reason_bytes = static_cast<uint32_t>(reason.size());
        std::ranges::copy(reason, asked.reason);
        change(asked);
        f.memory.view().payload(3).group_abort = asked;
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_ABORT, d.group = 1, d.epoch = 1;
        const auto status = static_cast<Errc>(f.ask(3, d));
        if (status != Errc::ok) return std::string(name_of(status)) + " " + f.text(3);
        CHECK(f.core.groups() == 0);
        CHECK(f.ask(3, d) == static_cast<int32_t>(Errc::closed));
        REQUIRE(f.engine.aborts.size() == 1);
        CHECK(f.engine.aborts[0].first == 2);
        return f.engine.aborts[0].second;
    };
    using Abort = nexar_shm_group_abort;
    CHECK(answer("", [](Abort&) {}).empty());
    CHECK(answer("ValueError: a\nb\x1b[0m\x7f", [](Abort&) {}) == "ValueError: a b [0m ");
    CHECK(answer("\u00e9\u009b0m\u202e", [](Abort&) {}) == "\u00e9 0m ");
    CHECK(answer("x", [](Abort& a) {
              a.reason_bytes = 385;
          }).starts_with("INVALID_ARGUMENT reason_bytes is 385; allowed: 0 to 384"));
    CHECK(answer("x", [](Abort& a) { a.reserved = 1; }).starts_with("INVALID_ARGUMENT a reserved word"));
}

TEST_CASE("[D3] two ranks of one group in one session are two memberships", "[local]") {
    Fixture f;  // rank 2 of 4 is membership 1
    nexar_shm_group_open open{};
    open.size = 4, open.rank = 0, open.name_bytes = 3;
    f.memory.view().payload(0).group_open = open;
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_OPEN;
    f.engine.groups = 0;  // the same group
    REQUIRE(f.ask(0, d) == 0);
    const uint32_t other = f.memory.view().slot(0).result.group;
    REQUIRE(other == 2);

    d = all_reduce(8);
    f.push(3, d);
    d.group = other;
    f.push(4, d);
    d.kind = NEXAR_OP_BROADCAST;  // root 0: this membership gives, the other takes
    f.push(5, d);
    REQUIRE(f.engine.ops.size() == 3);
    CHECK(f.engine.ops[0].rank == 2);
    CHECK(f.engine.ops[1].rank == 0);
    CHECK(f.engine.ops[0].group == f.engine.ops[1].group);
    CHECK((f.engine.ops[2].in.bytes == 32 && f.engine.ops[2].out.bytes == 0));

    d = {};
    d.kind = NEXAR_CMD_GROUP_FREE, d.group = other;
    CHECK(f.ask(6, d) == 0);
    CHECK(f.engine.freed_ranks == std::vector<uint32_t>{0});
    CHECK(f.core.groups() == 1);
    CHECK(f.ask(6, d) == static_cast<int32_t>(Errc::closed));
    CHECK(f.ask(7, all_reduce(8)) == 1);  // the other one stands
}

TEST_CASE("a result has epoch and sequence number, its detail whom and what it was about", "[local]") {
    Fixture f;
    f.push(3, all_reduce(100));
    engine::Outcome outcome;
    outcome.sequence = 17;
    outcome.epoch = 1;
    outcome.error = {.code = Errc::peer_lost,
                     .text = "gone",
                     .rank = 3,
                     .other_rank = 1,
                     .node = NodeId{{7}}.hex(),
                     .host = "gpu7",
                     .pid = 77,
                     .system_errno = 12};
    for (uint32_t r = 3; r < 43; ++r) outcome.error.lost_ranks.push_back(r);
    f.core.complete(f.engine.ops[0].ticket, outcome);
    const auto& result = f.memory.view().slot(3).result;
    CHECK(result.status == static_cast<int32_t>(Errc::peer_lost));
    CHECK((result.sequence == 17 && result.group_epoch == 1 && result.has_detail == 1));
    const auto& detail = f.memory.view().detail(3);
    CHECK((detail.rank == 3 && detail.other_rank == 1 && detail.pid == 77 && detail.system_errno == 12));
    CHECK((detail.has_node == 1 && detail.node[0] == 7));
    CHECK(detail.lost_count == 40);
    CHECK((detail.lost_ranks[0] == 3 && detail.lost_ranks[31] == 34));
    CHECK(std::string(detail.op) == "all_reduce");
    CHECK(std::string(detail.host) == "gpu7");
    // A command is about no sequence number, and one without a group about no epoch.
    CHECK(f.memory.view().slot(15).result.sequence == NEXAR_SHM_NO_SEQUENCE);
    CHECK(f.memory.view().slot(15).result.group_epoch == 0);
    CHECK(f.memory.view().slot(0).result.group_epoch == 1);
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

TEST_CASE("the same slot submitted twice is taken once", "[local][S2]") {
    Fixture f;
    const uint32_t generation = f.push(3, all_reduce(100));
    REQUIRE(f.producer.try_push({3, generation, NEXAR_ENTRY_SUBMIT}));
    f.core.drain(at);
    CHECK(f.engine.ops.size() == 1);
    CHECK(f.core.in_flight() == 1);
}

TEST_CASE("[S7] a socket need not be read whose client has sent doorbells alone", "[local]") {
    Fixture f;
    auto& header = f.memory.view().header();
    const auto counts = [&](uint32_t begun, uint32_t sent) {
        header.messages_begun = begun, header.messages_sent = sent;
        return f.core.may_have_sent_messages();
    };
    for (int i = 0; i < 2; ++i) CHECK(counts(0, 0));  // it does not count
    CHECK(counts(1, 1));
    CHECK(!counts(1, 1));
    for (int i = 0; i < 2; ++i) CHECK(counts(2, 1));  // it may come after this look
    CHECK(counts(2, 2));
    CHECK(!counts(2, 2));
    CHECK(counts(1, 1));  // nonsense
    CHECK(counts(1, UINT32_MAX));
}
