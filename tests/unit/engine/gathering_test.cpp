// Gathering: who calls a collective, with which words, and by when.
#include "engine/gathering.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string_view>

#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

using collectives::NodeIndex;
using namespace std::chrono_literals;

const OpDescriptor reduce_8{OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 8, 0};
const OpDescriptor reduce_9{OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 9, 0};
constexpr Time start = Time(Duration{5'000'000'000});

struct Scene {
    GroupFacts facts = facts_of({0, 1, 0, 2});  // ranks 0 and 2 are here
    Gathering gathering{facts, 4};

    wire::OpAnnounce announced(uint32_t rank, const OpDescriptor& d) const {
        return {facts.id, 1,      4,    uint8_t(d.kind),  uint8_t(d.dtype), uint8_t(d.op),
                d.count,  d.root, rank, facts.table_hash, d.match_id};
    }
};

}  // namespace

TEST_CASE("a collective is gathered when every rank of this node has posted the same") {
    Scene s;
    CHECK(!s.gathering.any_posted());
    CHECK(!s.gathering.post(0, call_of(reduce_8), start));
    CHECK(s.gathering.any_posted());
    CHECK(!s.gathering.all_posted());
    CHECK((s.gathering.has_posted(0) && !s.gathering.has_posted(2) && !s.gathering.has_posted(1)));
    CHECK(!s.gathering.post(1, call_of(reduce_8, 2), start + 1s));
    CHECK(s.gathering.all_posted());
    CHECK(s.gathering.first_posted() == start);

    const wire::OpAnnounce words = s.gathering.announcement();
    CHECK((words.first_rank == 0 && words.seq == 4 && words.count == 8));
    CHECK(!s.gathering.on_announce(NodeIndex(1), s.announced(1, reduce_8)));
    CHECK(s.gathering.has_posted(1));
}

TEST_CASE("descriptors that differ are a mismatch that names both ranks, the lower one first") {
    Scene s;
    const auto names = [](const std::optional<Error>& error, int64_t rank, int64_t other) {
        return error && error->code == Errc::mismatch && error->rank == rank && error->other_rank == other;
    };
    const auto says = [](const std::optional<Error>& error, std::string_view first, std::string_view second) {
        const size_t at = error ? error->text.find(first) : std::string::npos;
        return at != std::string::npos && error->text.find(second, at) != std::string::npos &&
               error->text.ends_with(". Either may be the wrong one: all ranks must call the same");
    };
    SECTION("on this node") {
        CHECK(!s.gathering.post(1, call_of(reduce_8), start));
        const auto error = s.gathering.post(0, call_of(reduce_9, 2), start);
        CHECK(names(error, 2, 0));
        CHECK(says(error, "rank 0", "rank 2"));
    }
    SECTION("announced after the post") {
        CHECK(!s.gathering.post(1, call_of(reduce_8), start));
        const auto error = s.gathering.on_announce(NodeIndex(1), s.announced(1, reduce_9));
        CHECK(names(error, 2, 1));
        CHECK(says(error, "rank 1", "rank 2"));
    }
    SECTION("announced before the post") {
        CHECK(!s.gathering.on_announce(NodeIndex(1), s.announced(1, reduce_9)));
        CHECK(names(s.gathering.post(0, call_of(reduce_8), start), 1, 0));
    }
    SECTION("of two other nodes") {
        CHECK(!s.gathering.on_announce(NodeIndex(1), s.announced(1, reduce_9)));
        CHECK(names(s.gathering.on_announce(NodeIndex(2), s.announced(3, reduce_8)), 3, 1));
    }
    SECTION("not known here") {
        wire::OpAnnounce words = s.announced(1, reduce_8);
        words.kind = 250;
        words.dtype = 63;
        CHECK(names(s.gathering.on_announce(NodeIndex(1), words), 1, -1));
    }
}

TEST_CASE("a mismatch says which arguments differ") {
    Scene s;
    const auto differ = [&](const OpDescriptor& other) {
        Gathering gathering{s.facts, 4};
        CHECK(!gathering.post(0, call_of(reduce_8), start));
        const auto error = gathering.post(1, call_of(other, 2), start);
        return error ? error->text.substr(0, error->text.find(':')) : "nothing";
    };
    OpDescriptor other = reduce_8;
    other.dtype = Dtype::f64;
    other.op = ReduceOp::max;
    CHECK(differ(other) == "the calls of collective 4 differ in type, reduction");
    other = reduce_9;
    other.match_id = 5;
    CHECK(differ(other) == "the calls of collective 4 differ in count, match_id");
    other = reduce_8;
    other.root = 1;
    CHECK(differ(other) == "the calls of collective 4 differ in root");
    other.partials = Partials::wide;
    CHECK(differ(other) ==
          "the calls of collective 4 differ in root, flags (of the calls or of their groups)");
    other.kind = OpKind::broadcast;  // whose other arguments mean something else
    CHECK(differ(other) == "the calls of collective 4 differ in operation");
}

TEST_CASE("a mismatch of lists of counts says where they differ, or what of them is known here") {
    Scene s;
    const auto listed = [](std::vector<uint64_t> list, uint64_t ticket) {
        const auto counts = std::make_shared<const Counts>(*Counts::of(list));
        OpRequest call = call_of(
            {OpKind::all_gatherv, Dtype::f32, ReduceOp::sum, counts->sum(), 0, 0, counts->digest()}, ticket);
        call.counts = counts;
        return call;
    };
    const auto here = [&](std::vector<uint64_t> of_2, std::vector<uint64_t> of_0) {
        Gathering gathering{s.facts, 4};
        CHECK(!gathering.post(1, listed(of_2, 2), start));
        const auto error = gathering.post(0, listed(of_0, 1), start);
        return error ? error->text.substr(0, error->text.find(':')) : "nothing";
    };
    CHECK(here({1, 1, 6, 8}, {1, 1, 5, 9}) ==
          "the calls of collective 4 differ in counts (counts[2] is 5 of rank 0, 6 of rank 2)");
    CHECK(here({1, 1, 6, 8}, {1, 1, 6, 8}) == "nothing");

    const auto elsewhere = [&](std::vector<uint64_t> of_1) {
        Gathering gathering{s.facts, 4};
        CHECK(!gathering.post(0, listed({1, 1, 5, 9}, 1), start));
        const auto error = gathering.on_announce(NodeIndex(1), [&] {
            wire::OpAnnounce words = s.announced(1, listed(of_1, 2).descriptor);
            words.counts_digest = listed(of_1, 2).descriptor.counts;
            return words;
        }());
        return error ? error->text.substr(0, error->text.find(':')) : "nothing";
    };
    CHECK(elsewhere({1, 1, 6, 9}) ==
          "the calls of collective 4 differ in counts (their sums are 16 of rank 0, 17 of rank 1)");
    CHECK(elsewhere({1, 1, 6, 8}) == "the calls of collective 4 differ in counts (with one sum, 16)");
}

TEST_CASE("a mismatch states each thing once, and no digest of counts") {
    Scene s;
    const auto counts = std::make_shared<const Counts>(*Counts::of(std::vector<uint64_t>{1, 1, 5, 9}));
    const auto text = [&](OpDescriptor first, const OpDescriptor& second) {
        Gathering gathering{s.facts, 4};
        OpRequest call = call_of(first);
        if (first.counts != 0) call.counts = counts;
        CHECK(!gathering.post(0, call, start));
        wire::OpAnnounce words = s.announced(1, second);
        words.counts_digest = second.counts;
        const auto error = gathering.on_announce(NodeIndex(1), words);
        return error ? error->text : "nothing";
    };
    const auto times = [](const std::string& text, std::string_view part) {
        size_t found = 0;
        for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
        return found;
    };
    const OpDescriptor listed{OpKind::all_gatherv, Dtype::f32, ReduceOp::sum, 16, 0, 0, counts->digest()};
    OpDescriptor others = listed;
    ++others.counts;
    const std::string same_sum = text(listed, others);
    CAPTURE(same_sum);
    CHECK(times(same_sum, "all_gatherv f32 count 16") == 1);
    CHECK((times(same_sum, "rank 0 (") == 1 && times(same_sum, "rank 1 (") == 1));
    CHECK(times(same_sum, "digest") == 0);

    OpDescriptor reduced = listed;
    reduced.kind = OpKind::reduce_scatterv;
    const std::string another = text(listed, reduced);
    CAPTURE(another);
    CHECK((times(another, "all_gatherv f32 count 16") == 1 &&
           times(another, "reduce_scatterv f32 sum count 16") == 1));
    CHECK(times(another, "digest") == 0);
}

TEST_CASE("the earliest deadline of this node's ranks counts, and names its rank") {
    Scene s;
    CHECK(!s.gathering.post(0, call_of(reduce_8), start));  // what the group agreed on
    CHECK(s.gathering.deadline() == start + 30s);
    CHECK(!s.gathering.post(1, call_of(reduce_8, 2, 3s), start + 1s));
    CHECK(s.gathering.deadline() == start + 4s);
    CHECK((s.gathering.timeout() == 3s && s.gathering.timeout_rank() == 2));

    const Error late{Errc::aborted, "late", 1, -1, {}};
    const auto& posts = s.gathering.posts();
    CHECK(Gathering::error_of(posts[0], late, start + 4s).code == Errc::aborted);
    CHECK(Gathering::error_of(posts[1], late, start + 4s).code == Errc::timed_out);
    CHECK(Gathering::error_of(posts[1], late, never).code == Errc::aborted);
}

TEST_CASE("a barrier has the barrier's time-out, and 0 is none") {
    Scene s;
    const OpDescriptor barrier{OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0};
    CHECK(!s.gathering.post(0, call_of(barrier, 1, Duration{0}), start));
    CHECK(s.gathering.deadline() == never);
    CHECK(!s.gathering.post(1, call_of(barrier, 2), start));
    CHECK(s.gathering.deadline() == start + 20s);
}

TEST_CASE("one rank cancels or leaves: it ends so, and all others with ABORTED that names it") {
    Scene s;
    CHECK(!s.gathering.post(0, call_of(reduce_8, 1), start));
    CHECK(!s.gathering.post(1, call_of(reduce_8, 2), start));
    CHECK(!s.gathering.cancel(SessionId(1), 9));
    CHECK(!s.gathering.close(1, {}, "it left"));
    auto& posts = s.gathering.posts();

    const auto cancelled = s.gathering.cancel(SessionId(2), 2);
    REQUIRE(cancelled);
    CHECK((cancelled->code == Errc::aborted && cancelled->rank == 2));
    CHECK(Gathering::error_of(posts[1], *cancelled, never).code == Errc::cancelled);
    CHECK(Gathering::error_of(posts[0], *cancelled, never).code == Errc::aborted);

    const auto left = s.gathering.close(0, {Errc::closed, "freed", -1, -1, {}}, "it freed the group");
    REQUIRE(left);
    CHECK((left->code == Errc::aborted && left->rank == 0));
    CHECK(Gathering::error_of(posts[0], *left, never).code == Errc::closed);

    posts[1].reported = true;
    CHECK(!s.gathering.cancel(SessionId(2), 2));
}

}  // namespace nexar::engine
