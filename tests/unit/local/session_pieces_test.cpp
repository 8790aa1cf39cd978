// Messages in pieces, probes, and messages that are set apart, as descriptors of a client
// (docs/protocol/messages.md).
#include <cstring>

#include "core_fixture.hpp"

namespace nexar::test {
namespace {

nexar_shm_descriptor message(uint8_t kind, uint64_t count) {
    nexar_shm_descriptor d{};
    d.kind = kind;
    d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
    d.group = 1;
    d.epoch = 1;
    d.count = count;
    d.tag = 9;
    return d;
}

// The list lies at 32768.
nexar_shm_descriptor in_pieces(Fixture& f, uint8_t kind, uint64_t count,
                               std::vector<nexar_shm_piece> pieces) {
    nexar_shm_descriptor d = message(kind, count);
    d.args = {1, static_cast<uint32_t>(pieces.size()), 32768};
    std::memcpy(f.region.data() + 32768, pieces.data(), pieces.size() * sizeof pieces[0]);
    return d;
}

std::string refused(Fixture& f, const nexar_shm_descriptor& d) {
    const int32_t status = f.ask(2, d);
    return std::to_string(status) + " " + (status < 0 ? f.text(2) : "");
}

}  // namespace

TEST_CASE("the pieces of a message are its memory, and charged while the daemon keeps them",
          "[local][X8][S3][N2]") {
    Fixture f;
    uint32_t slot = 2;
    for (const uint8_t kind : {NEXAR_OP_SEND, NEXAR_OP_RECV, NEXAR_OP_MRECV}) {
        REQUIRE(f.ask(slot++, in_pieces(f, kind, 12, {{1, 16, 8}, {1, 4096, 4}, {1, 8, 36}})) == 1);
        const auto& op = f.engine.ops.back();
        REQUIRE(op.pieces->size() == 3);
        CHECK((*op.pieces)[1].offset == 4096);
        CHECK((*op.pieces)[2].bytes == 36);
        CHECK((op.in.bytes == 0 && op.out.bytes == 0));
        CHECK(f.tenants.of("", 1000)->used(Resource::scratch_bytes) == 3 * sizeof(MemoryRef));
        f.engine.ops.clear();
        CHECK(f.tenants.of("", 1000)->used(Resource::scratch_bytes) == 0);
    }
}

TEST_CASE("a list of pieces is validated, and the answer names what is wrong", "[local][X8][S14]") {
    Fixture f;
    const auto wrong = [&](std::vector<nexar_shm_piece> pieces, uint8_t kind = NEXAR_OP_SEND) {
        return refused(f, in_pieces(f, kind, 3, std::move(pieces)));
    };
    CHECK(wrong({{1, 0, 8}, {1, 8, 0}}) ==
          "-101 piece 1 has 0 bytes in region 1; allowed: whole elements, at least one");
    CHECK(wrong({{1, 0, 6}, {1, 8, 6}}).starts_with("-101 piece 0 has 6 bytes"));
    CHECK(wrong({{1, 0, 8}, {uint64_t{1} << 32 | 1, 8, 4}})
              .starts_with("-101 piece 1 has 4 bytes in region 42949"));
    CHECK(wrong({{1, 0, 8}, {0, 8, 4}}) ==
          "-101 the piece 1 names region 0, which this session has not registered");
    CHECK(wrong({{1, 0, 8}, {7, 8, 4}}) ==
          "-101 the piece 1 names region 7, which this session has not registered");
    CHECK(wrong({{1, 0, 8}, {1, 65536, 4}}) == "-101 the piece 1 ends beyond its region 1 of 65536 bytes");
    CHECK(wrong({{1, UINT64_MAX - 3, 8}, {1, 8, 4}}) ==
          "-101 the piece 0 ends beyond its region 1 of 65536 bytes");
    CHECK(wrong({{1, 2, 8}, {1, 8, 4}}) == "-101 the piece 0 in region 1 is not aligned to its elements");
    CHECK(wrong({{1, 0, 8}, {1, 8, 8}}) == "-101 the pieces have 16 bytes together, the message 12");
    CHECK(wrong({{1, 0, 8}}, NEXAR_OP_RECV) == "-101 the pieces have 8 bytes together, the message 12");
    auto d = in_pieces(f, NEXAR_OP_SEND, 257, std::vector<nexar_shm_piece>(257, {1, 0, 4}));
    CHECK(refused(f, d) == "-101 args.entries is 257; allowed: 0 to 256 pieces");
    d = in_pieces(f, NEXAR_OP_SEND, 3, {{1, 0, 8}, {1, 8, 4}});
    CHECK((d.args.offset = 65536 - 24, refused(f, d)) ==
          "-101 the list of pieces ends beyond its region 1 of 65536 bytes");
    d.args.offset = 32768;
    CHECK((d.args.entries = 0, refused(f, d)) == "-101 args names memory, and args.entries is 0");
    CHECK(f.engine.ops.empty());
    CHECK(f.tenants.of("", 1000)->used(Resource::scratch_bytes) == 0);
    CHECK_FALSE(f.core.broken());
}

TEST_CASE("of a probe, and of a message that is set apart, what is not used must be 0", "[local][S14]") {
    Fixture f;
    uint32_t slot = 3;
    for (const uint8_t kind : {NEXAR_OP_PROBE, NEXAR_OP_MPROBE}) {
        auto d = message(kind, 0);
        d.peer = NEXAR_SHM_ANY_RANK;
        d.flags = NEXAR_SHM_FLAG_ANY_TAG;
        REQUIRE(f.ask(slot++, d) == 1);
        CHECK(f.engine.ops.back().any_tag);
        const std::string none = std::string(kind == NEXAR_OP_PROBE ? "probe" : "mprobe") + " has none";
        CHECK((d.count = 1, refused(f, d)) == "-101 count is 1; allowed: 0, " + none);
        d.count = 0;
        CHECK((d.dtype = 1, refused(f, d)) == "-101 dtype is 1; allowed: 0, " + none);
        d.dtype = 0;
        CHECK((d.args.entries = 1, refused(f, d)) == "-101 args.entries is 1; allowed: 0, " + none);
        d.args.entries = 0;
        CHECK((d.peer = 4, refused(f, d)) == "-101 rank 4 is not in a group of 4");
    }
    for (const uint8_t kind : {NEXAR_OP_MRECV, NEXAR_OP_MESSAGE_FREE}) {
        auto d = message(kind, 0);
        REQUIRE(f.ask(slot++, d) == 1);
        CHECK(f.engine.ops.back().tag == 9);
        CHECK((d.peer = 1, refused(f, d)).starts_with("-101 peer is 1; allowed: 0, m"));
        d.peer = 0;
        CHECK((d.flags = NEXAR_SHM_FLAG_ANY_TAG, refused(f, d))
                  .starts_with("-101 flags has the bit for any tag"));
    }
}

}  // namespace nexar::test
