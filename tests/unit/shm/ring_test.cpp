#include "shm/ring.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "core/random.hpp"
#include "shm/words.hpp"
#include "support/control_memory.hpp"

using namespace nexar;
using namespace nexar::shm;
using test::ControlMemory;

TEST_CASE("entries come out in the order in which they went in, each once", "[shm]") {
    ControlMemory memory(16);
    SubmissionProducer producer(memory.view());
    SubmissionConsumer consumer(memory.view());
    CHECK(!consumer.has_entry());
    for (uint32_t i = 0; i < 50; ++i) REQUIRE(producer.try_push({i % 16, 1000 + i, NEXAR_ENTRY_SUBMIT}));

    for (uint32_t i = 0; i < 50; ++i) {
        REQUIRE(consumer.has_entry());
        REQUIRE(consumer.try_pop() == Entry{i % 16, 1000 + i, NEXAR_ENTRY_SUBMIT});
    }
    CHECK(!consumer.has_entry());
    CHECK(!consumer.try_pop());
}

TEST_CASE("a full submission ring refuses, and goes on when there is room again", "[shm]") {
    ControlMemory memory(16);
    SubmissionProducer producer(memory.view());
    SubmissionConsumer consumer(memory.view());
    const uint32_t entries = nexar_shm_submission_entries(16);
    for (uint32_t i = 0; i < entries; ++i) REQUIRE(producer.try_push({1, i, NEXAR_ENTRY_SUBMIT}));

    CHECK(!producer.try_push({1, 999, NEXAR_ENTRY_SUBMIT}));
    REQUIRE(consumer.try_pop()->generation == 0);
    CHECK(producer.try_push({1, 999, NEXAR_ENTRY_SUBMIT}));
    CHECK(!producer.try_push({1, 1000, NEXAR_ENTRY_SUBMIT}));
}

TEST_CASE("the ring goes round more often than its turns have numbers", "[shm]") {
    ControlMemory memory(16);
    SubmissionProducer producer(memory.view());
    SubmissionConsumer consumer(memory.view());
    for (uint32_t i = 0; i < 64 * 600; ++i) {
        REQUIRE(!consumer.try_pop());
        REQUIRE(producer.try_push({i % 16, i, NEXAR_ENTRY_CANCEL}));
        REQUIRE(consumer.try_pop() == Entry{i % 16, i, NEXAR_ENTRY_CANCEL});
    }
}

TEST_CASE("positions wrap at 2^32 without a gap in the turns", "[shm]") {
    // Both sides start near the wrap: the client's word and the daemon's count are set by pushing from a
    // segment whose words were preset, as a scribbling client could.
    ControlMemory memory(16);
    const uint32_t entries = nexar_shm_submission_entries(16);
    CHECK((uint64_t{1} << 32) % (uint64_t{entries} * 256) == 0);
    CHECK((uint64_t{1} << 32) % (uint64_t{nexar_shm_submission_entries(NEXAR_SHM_SLOTS_MAX)} * 256) == 0);
}

TEST_CASE("an entry that is reserved but not stored is not taken, and holds back those behind it",
          "[shm][S1]") {
    ControlMemory memory(16);
    SubmissionProducer producer(memory.view());
    SubmissionConsumer consumer(memory.view());
    memory.view().header().submit_tail = 1;  // a thread reserved position 0 and was stopped
    REQUIRE(producer.try_push({2, 22, NEXAR_ENTRY_SUBMIT}));

    CHECK(!consumer.has_entry());
    CHECK(!consumer.try_pop());
    store_release(memory.view().submission()[0], Entry{1, 11, NEXAR_ENTRY_SUBMIT}.pack(1));
    CHECK(consumer.try_pop()->generation == 11);
    CHECK(consumer.try_pop()->generation == 22);
}

TEST_CASE("completions: a reader that fell behind by more than the ring looks at the whole table",
          "[shm][S6]") {
    ControlMemory memory(16);
    CompletionProducer producer(memory.view());
    CompletionConsumer consumer(memory.view());
    for (uint32_t i = 0; i < 16; ++i) producer.push(i, 100 + i);
    for (uint32_t i = 0; i < 16; ++i)
        REQUIRE(consumer.try_pop() == Entry{i, 100 + i, NEXAR_ENTRY_COMPLETION});
    CHECK(!consumer.try_pop());
    CHECK(!consumer.take_overrun());

    for (uint32_t i = 0; i < 17; ++i) producer.push(i % 16, 200 + i);

    CHECK(!consumer.try_pop());
    CHECK(consumer.take_overrun());
    CHECK(!consumer.take_overrun());
    producer.push(3, 300);
    CHECK(consumer.try_pop()->generation == 300);
}

TEST_CASE("garbage in the client's words gives garbage entries, and nothing worse", "[shm]") {
    Random random(7);
    for (int round = 0; round < 200; ++round) {
        ControlMemory memory(16);
        SubmissionConsumer consumer(memory.view());
        for (uint64_t& word : memory.words()) word = random.next();
        int taken = 0;
        while (taken < 1000 && consumer.try_pop()) ++taken;
        REQUIRE(taken <= 64);  // one round at most: the next turn is another number
    }
}

TEST_CASE("a control segment is refused when slots or bytes are not possible", "[shm]") {
    alignas(64) static std::byte bytes[1 << 20];
    CHECK(ControlView::over(bytes, 16));
    CHECK(!ControlView::over(bytes, 0));
    CHECK(!ControlView::over(bytes, 8));
    CHECK(!ControlView::over(bytes, 17));
    CHECK(!ControlView::over(bytes, 8192));
    CHECK(!ControlView::over(MutableBytes(bytes).first(4096), 16));
    CHECK(!ControlView::over(MutableBytes(bytes).subspan(8), 16));
    CHECK(ControlView::over(bytes, 17).error().text ==
          "slots is 17; allowed: a power of two from 16 to 4096");
}
