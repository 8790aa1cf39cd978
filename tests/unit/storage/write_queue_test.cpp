// What waits for the disk: its order, what takes whose place, and its bounds.
#include "storage/write_queue.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using namespace nexar::storage;

namespace {

Batch one(const std::string& file, std::string_view content) {
    return {{file, Secret(content)}};
}

// What a batch would write, as text.
std::string text_of(const Batch* batch) {
    std::string out;
    if (!batch) return "nothing";
    for (const Change& change : *batch)
        out += change.file + "=" + (change.content ? std::string(change.content->text()) : "gone") + ";";
    return out;
}

Outcome success(const Batch& batch) {
    return {{}, batch.size()};
}

std::string carry_out_next(WriteQueue& queue) {
    const Batch* batch = queue.begin();
    const std::string text = text_of(batch);
    if (batch) queue.end(success(*batch));
    return text;
}

}  // namespace

TEST_CASE("batches are carried out one after the other, and each learns its own outcome [K3]", "[storage]") {
    WriteQueue queue;
    const Saving a = queue.push(one("a", "1")), b = queue.push({{"b", Secret("2")}, {"c", std::nullopt}});
    CHECK_FALSE(a.outcome());
    const Batch* first = queue.begin();
    CHECK(text_of(first) == "a=1;");
    CHECK(text_of(queue.begin()) == "nothing");  // one at a time
    queue.end({fail(Errc::io, "no room"), 0});
    REQUIRE(a.outcome());
    CHECK(a.outcome()->result.error().text == "no room");
    CHECK_FALSE(b.outcome());
    CHECK(carry_out_next(queue) == "b=2;c=gone;");
    REQUIRE(b.outcome());
    CHECK(b.outcome()->result);
    CHECK(b.outcome()->applied == 2);
    CHECK(queue.empty());
}

TEST_CASE("a newer content takes the place of a waiting one, and one write settles both [K3]", "[storage]") {
    WriteQueue queue;
    const Saving running = queue.push(one("roster", "0"));
    REQUIRE(queue.begin());
    const Saving old = queue.push(one("roster", "1")), other = queue.push(one("tokens", "x")),
                 newest = queue.push(one("roster", "2"));
    queue.end({{}, 1});  // what is in progress was not changed
    CHECK(running.outcome());
    CHECK_FALSE(old.outcome());
    CHECK(text_of(queue.begin()) == "roster=2;");
    queue.end({fail(Errc::io, "no room"), 0});
    REQUIRE(old.outcome());
    REQUIRE(newest.outcome());
    CHECK_FALSE(old.outcome()->result);
    CHECK_FALSE(newest.outcome()->result);
    CHECK_FALSE(other.outcome());
    CHECK(carry_out_next(queue) == "tokens=x;");
    CHECK(queue.empty());
}

TEST_CASE("a batch of several files is neither changed nor overtaken in its files [K3]", "[storage]") {
    WriteQueue queue;
    queue.push(one("a", "1"));
    queue.push({{"a", Secret("2")}, {"b", Secret("2")}});
    queue.push(one("a", "3"));
    queue.push(one("a", "4"));
    queue.push({{"b", std::nullopt}, {"a", std::nullopt}});
    CHECK(carry_out_next(queue) == "a=1;");
    CHECK(carry_out_next(queue) == "a=2;b=2;");
    CHECK(carry_out_next(queue) == "a=4;");
    CHECK(carry_out_next(queue) == "b=gone;a=gone;");
    CHECK(carry_out_next(queue) == "nothing");
}

TEST_CASE("what waits is bounded: more is refused at once, and taking a waiting one's place is not more [K5]",
          "[storage]") {
    WriteQueue queue;
    for (size_t i = 0; i < WriteQueue::batches_max; ++i)
        CHECK_FALSE(queue.push(one("file" + std::to_string(i), "x")).outcome());
    const Saving refused = queue.push(one("one more", "x"));
    REQUIRE(refused.outcome());
    CHECK(refused.outcome()->result.error().code == Errc::table_full);
    CHECK(refused.outcome()->applied == 0);
    CHECK_FALSE(queue.push(one("file3", "y")).outcome());
    for (size_t i = 0; i < WriteQueue::batches_max; ++i)
        CHECK(carry_out_next(queue) == "file" + std::to_string(i) + (i == 3 ? "=y;" : "=x;"));
    CHECK(queue.empty());

    const std::string half(WriteQueue::bytes_max / 2, 'x');
    CHECK_FALSE(queue.push(one("a", half)).outcome());
    CHECK_FALSE(queue.push(one("b", half)).outcome());
    CHECK(queue.push(one("c", "x")).outcome());
    CHECK_FALSE(queue.push(one("b", half)).outcome());
    for (size_t i = 1; i < WriteQueue::merged_max; ++i) {
        const bool full = queue.push(one("a", "small")).outcome();
        CHECK_FALSE(full);
    }
    CHECK(queue.push(one("a", "small")).outcome());
}
