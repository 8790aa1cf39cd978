// Windows of staged operations, against a daemon that is a loop: it works segment by segment on what stands
// in the windows, and forgets nothing that the rules of [S12] do not let it forget.
#include "staging.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "shm_layout.h"

using namespace nexar::c;

namespace {

constexpr uint64_t element = 4;
using Words = std::vector<uint32_t>;

std::byte* bytes(uint32_t* words) {
    return reinterpret_cast<std::byte*>(words);
}

// A daemon for a group of one real rank: `work` gets a segment's input and output, packed as the windows are.
struct LoopDaemon {
    Cut cut;
    StagedSide in, out;
    uint32_t done = 0;

    template <class Work>
    bool step(const Stage& stage, Work work) {
        if (done == cut.segments) return false;
        if (in && stage.filled() <= done) return false;
        if (out && done >= stage.taken() + cut.windows) return false;
        const uint64_t elements = nexar_shm_segment_begin(cut.count, cut.segments, done + 1) -
                                  nexar_shm_segment_begin(cut.count, cut.segments, done);
        work(window(in), window(out), elements);
        // What the client may fill or has taken is garbage from here on.
        if (in && in.windows != out.windows) std::memset(window(in), 0xee, in.window_bytes(cut));
        ++done;
        return true;
    }
    uint32_t* window(const StagedSide& side) const {
        return side ? reinterpret_cast<uint32_t*>(side.windows + done % cut.windows * side.window_bytes(cut))
                    : nullptr;
    }
};

struct Shape {
    uint64_t count;
    uint32_t segments, windows;
};
constexpr Shape shapes[] = {{1, 1, 1},   {7, 1, 1},  {7, 7, 1},  {7, 3, 2},
                            {100, 9, 4}, {64, 8, 8}, {65, 8, 4}, {1000, 13, 3}};

// Client and daemon take turns in an order that depends on `salt`; both must get to the end.
template <class Work>
void run(Stage& stage, LoopDaemon& daemon, uint32_t salt, Work work) {
    for (uint32_t idle = 0, turn = salt; idle < 3; ++turn) {
        bool any = false;
        switch (turn % 3) {
            case 0:
                any = daemon.step(stage, work);
                break;
            case 1:
                stage.on_done(daemon.done);
                for (uint32_t i = 0; i <= salt % 3 && stage.can_fill(); ++i)
                    any = stage.fill_next() != 0 || any;
                break;
            default:
                stage.on_done(daemon.done);
                // At the end, sometimes, the rest is left to take_rest.
                while (stage.can_take() && !(salt % 2 && daemon.done == daemon.cut.segments)) {
                    stage.take_next();
                    any = true;
                }
        }
        idle = any ? 0 : idle + 1;
    }
    REQUIRE(daemon.done == daemon.cut.segments);
    stage.take_rest();
    CHECK_FALSE(stage.can_take());
    CHECK_FALSE(stage.can_fill());
}

struct Made {
    Words in_windows, out_windows;
    LoopDaemon daemon;
    Stage stage;
    Made(const Shape& shape, uint32_t* in, uint64_t in_blocks, uint32_t* out, uint64_t out_blocks,
         bool shared = false) {
        const Cut cut{shape.count, element, shape.segments, shape.windows};
        StagedSide from{in ? bytes(in) : nullptr, nullptr, in_blocks};
        StagedSide to{out ? bytes(out) : nullptr, nullptr, out_blocks};
        in_windows.resize(shape.windows * from.window_bytes(cut) / element, 0xdddddddd);
        out_windows.resize(shape.windows * to.window_bytes(cut) / element, 0xdddddddd);
        from.windows = bytes(in_windows.data());
        to.windows = shared ? from.windows : bytes(out_windows.data());
        daemon = {cut, from, to, 0};
        stage = Stage(cut, from, to);
    }
};

Words numbers(uint64_t count, uint32_t salt) {
    Words out(count);
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(i * 1009 + salt);
    return out;
}

}  // namespace

TEST_CASE("a staged operation on one block gives every element, apart and in place", "[library]") {
    for (const Shape& shape : shapes)
        for (uint32_t salt = 0; salt < 12; ++salt)
            for (const auto [in_place, shared] :
                 {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
                Words in = numbers(shape.count, salt), out(shape.count, 77);
                const Words before = in;
                Words want = in;
                for (uint32_t& x : want) x = x * 3 + 1;
                Made made(shape, in.data(), 1, in_place ? in.data() : out.data(), 1, shared);
                run(made.stage, made.daemon, salt, [](const uint32_t* from, uint32_t* to, uint64_t n) {
                    for (uint64_t i = 0; i < n; ++i) to[i] = from[i] * 3 + 1;
                });
                CAPTURE(shape.count, shape.segments, shape.windows, salt, in_place, shared);
                CHECK((in_place ? in : out) == want);
                if (!in_place) CHECK(in == before);
            }
}

TEST_CASE("a staged all_gather gives every block, also where the own block stands in the output",
          "[library]") {
    constexpr uint32_t ranks = 3, rank = 1;
    for (const Shape& shape : shapes)
        for (uint32_t salt = 0; salt < 12; ++salt)
            for (const bool in_place : {false, true}) {
                Words in = numbers(shape.count, salt), out(shape.count * ranks, 77), want;
                for (uint32_t r = 0; r < ranks; ++r)
                    for (const uint32_t x : in) want.push_back(x + r - rank);
                uint32_t* own = out.data() + rank * shape.count;
                if (in_place) std::copy(in.begin(), in.end(), own);
                Made made(shape, in_place ? own : in.data(), 1, out.data(), ranks);
                run(made.stage, made.daemon, salt, [&](const uint32_t* from, uint32_t* to, uint64_t n) {
                    for (uint32_t r = 0; r < ranks; ++r)
                        for (uint64_t i = 0; i < n; ++i) to[r * n + i] = from[i] + r - rank;
                });
                CAPTURE(shape.count, shape.segments, shape.windows, salt, in_place);
                CHECK(out == want);
            }
}

TEST_CASE("a staged reduce_scatter reads every block, also where the result replaces one", "[library]") {
    constexpr uint32_t ranks = 3, rank = 2;
    for (const Shape& shape : shapes)
        for (uint32_t salt = 0; salt < 12; ++salt)
            for (const bool in_place : {false, true}) {
                Words in = numbers(shape.count * ranks, salt), out(shape.count, 77), want(shape.count);
                for (uint64_t i = 0; i < shape.count; ++i)
                    for (uint32_t r = 0; r < ranks; ++r) want[i] += in[r * shape.count + i] * (r + 1);
                uint32_t* own = in.data() + rank * shape.count;
                Made made(shape, in.data(), ranks, in_place ? own : out.data(), 1);
                run(made.stage, made.daemon, salt, [](const uint32_t* from, uint32_t* to, uint64_t n) {
                    for (uint64_t i = 0; i < n; ++i) {
                        to[i] = 0;
                        for (uint32_t r = 0; r < ranks; ++r) to[i] += from[r * n + i] * (r + 1);
                    }
                });
                CAPTURE(shape.count, shape.segments, shape.windows, salt, in_place);
                CHECK(Words(in_place ? own : out.data(), (in_place ? own : out.data()) + shape.count) ==
                      want);
            }
}

TEST_CASE("a side in a region stays in place: only the other moves", "[library]") {
    const Shape shape{100, 9, 4};
    Words in = numbers(100, 5), out(100, 77);
    Made only_in(shape, in.data(), 1, nullptr, 1);
    Words seen;
    run(only_in.stage, only_in.daemon, 1, [&](const uint32_t* from, uint32_t* to, uint64_t n) {
        CHECK(to == nullptr);
        seen.insert(seen.end(), from, from + n);
    });
    CHECK(seen == in);
    Made only_out(shape, nullptr, 1, out.data(), 1);
    uint32_t next = 0;
    run(only_out.stage, only_out.daemon, 1, [&](const uint32_t* from, uint32_t* to, uint64_t n) {
        CHECK(from == nullptr);
        for (uint64_t i = 0; i < n; ++i) to[i] = next++;
    });
    Words want(100);
    for (uint32_t i = 0; i < 100; ++i) want[i] = i;
    CHECK(out == want);
}

TEST_CASE("the daemon's count never shrinks, and never exceeds the segments", "[library]") {
    Words in = numbers(9, 0), out(9, 77);
    Made made({9, 9, 2}, in.data(), 1, out.data(), 1);
    made.stage.on_done(4'000'000'000);
    while (made.stage.can_fill()) made.stage.fill_next();
    while (made.stage.can_take()) made.stage.take_next();
    CHECK(made.stage.filled() == 9);
    CHECK(made.stage.taken() == 9);
    made.stage.on_done(0);
    CHECK_FALSE(made.stage.can_fill());
    CHECK_FALSE(Stage());
}

TEST_CASE("a rank's block of a packed side is filled in where the segment's run has it", "[library][S12]") {
    for (const Shape& shape : shapes)
        for (uint64_t first = 0; first <= shape.count; first += 1 + shape.count / 20)
            for (uint64_t end = first; end <= shape.count; end += 1 + shape.count / 23) {
                Words own(end - first), windows;
                for (uint64_t i = first; i < end; ++i) own[i - first] = static_cast<uint32_t>(1000 + i);
                Cut cut{shape.count, element, shape.segments, shape.windows};
                StagedSide in{bytes(own.data()), nullptr, 1, first, end};
                windows.resize(shape.windows * in.window_bytes(cut) / element, 7);
                in.windows = bytes(windows.data());
                if (own.empty()) in.user = in.windows;  // nothing is read there
                Stage stage(cut, in, {});
                for (uint32_t segment = 0; segment < shape.segments; ++segment) {
                    const uint64_t begin = nexar_shm_segment_begin(cut.count, cut.segments, segment);
                    const uint64_t stop = nexar_shm_segment_begin(cut.count, cut.segments, segment + 1);
                    std::ranges::fill(windows, 7u);
                    REQUIRE(stage.can_fill());
                    stage.fill_next();
                    const uint32_t* at =
                        windows.data() + segment % cut.windows * in.window_bytes(cut) / element;
                    for (uint64_t i = std::max(begin, first); i < std::min(stop, end); ++i)
                        REQUIRE(*at++ == 1000 + i);
                    REQUIRE(
                        std::ranges::count(windows, 7u) + (at - windows.data()) -
                            static_cast<ptrdiff_t>(segment % cut.windows * in.window_bytes(cut) / element) ==
                        static_cast<ptrdiff_t>(windows.size()));
                    stage.on_done(segment + 1);
                }
            }
}
