// Overlap of an operation's input and output, judged on regions: docs/protocol/memory.md [M4].
#include <catch2/catch_test_macros.hpp>

#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

// One memfd that a session registered twice: whole, and from byte 4096 on. The addresses have nothing in
// common.
struct Twice {
    Regions regions;
    std::vector<std::byte> mapped = std::vector<std::byte>(16384), again = std::vector<std::byte>(12288);
    RegionPin whole = regions.add(RegionKind::memfd, SessionId(1), {mapped.data(), 16384, {8, 5, 0}, {}});
    RegionPin rest = regions.add(RegionKind::memfd, SessionId(1), {again.data(), 12288, {8, 5, 4096}, {}});
    GroupFacts facts = facts_of({0, 0});

    std::string refusal(OpKind kind, const MemoryRef& in, const MemoryRef& out, Stage stage = {}) const {
        OpRequest request = call_of({kind, Dtype::u8, ReduceOp::sum, 1024, 0});
        request.in = in;
        request.out = out;
        request.stage = stage;
        const Result<void> result = check_request(facts, 1, request);
        return result ? "" : result.error().text;
    }
};

}  // namespace

TEST_CASE("in place is the same memory, by whatever region and mapping it is named", "[M4]") {
    const Twice t;
    const MemoryRef a{t.whole, 4096, 2048}, b{t.rest, 0, 2048};
    CHECK(t.refusal(OpKind::all_reduce, a, a).empty());
    CHECK(t.refusal(OpKind::all_reduce, a, b).empty());
    CHECK(t.refusal(OpKind::all_reduce, b, a).empty());
    // The block of rank 1 in the output.
    CHECK(t.refusal(OpKind::all_gather, {t.rest, 1024, 1024}, {t.whole, 4096, 2048}).empty());
}

TEST_CASE("input and output that overlap in the memfd are refused, although no address is in both", "[M4]") {
    const Twice t;
    const std::string refused = "overlap, and not as in-place allows";
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 4097, 1024}, {t.rest, 0, 1024}).contains(refused));
    CHECK(t.refusal(OpKind::all_reduce, {t.rest, 1023, 1024}, {t.whole, 4096, 1024}).contains(refused));
    CHECK(t.refusal(OpKind::all_gather, {t.rest, 0, 1024}, {t.whole, 4096, 2048}).contains(refused));
    // Side by side.
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 3072, 1024}, {t.rest, 0, 1024}).empty());
    CHECK(t.refusal(OpKind::all_reduce, {t.rest, 1024, 1024}, {t.whole, 4096, 1024}).empty());
}

TEST_CASE("windows are ranges of their region, and overlap as these do", "[M4][S12]") {
    const Twice t;
    Stage both{.windows = 2, .in = true, .out = true, .in_stride = 1024, .out_stride = 1024};
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 4096, 2048}, {t.rest, 0, 2048}, both).empty());
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 2048, 2048}, {t.rest, 0, 2048}, both).empty());
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 5120, 2048}, {t.rest, 0, 2048}, both)
              .contains("windows of input and output overlap"));
    both.out_stride = 2048;
    CHECK(t.refusal(OpKind::all_reduce, {t.whole, 4096, 4096}, {t.rest, 0, 4096}, both)
              .contains("windows of input and output overlap"));
}

}  // namespace nexar::engine
