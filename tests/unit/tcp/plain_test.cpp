// What leaves directly without TLS (docs/protocol/tcp.md, "Records" [B4] [B7]): its records, what the wire
// takes of them, and memory that its owner changes.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "pair.hpp"
#include "tcp/crc32c.hpp"

using namespace nexar;
using namespace nexar::test;
using tcp::Mode;
using tcp::RecordHead;

namespace {

// Open, and what `a` writes leaves directly.
struct PlainPair : TcpPair {
    explicit PlainPair(bool reads_far = true) {
        b.shared.reads_far = reads_far;
        start(Mode::plain);
        run();
        REQUIRE(open());
        a.machine->allow_direct(true);
    }
    void write(Class cls, Bytes bytes) { a.machine->write(cls, std::span(&bytes, 1)); }
};

struct Seen {
    RecordHead head;
    Bytes payload;
    bool is_right = false;  // its checksum
};

// Of whole records.
std::vector<Seen> records_of(Bytes bytes) {
    std::vector<Seen> out;
    while (!bytes.empty()) {
        Seen& seen = out.emplace_back();
        REQUIRE(bytes.size() >= sizeof(RecordHead));
        std::memcpy(&seen.head, bytes.data(), sizeof seen.head);
        const size_t summed = sizeof(RecordHead) + seen.head.bytes;
        REQUIRE(bytes.size() >= summed + tcp::checksum_bytes);
        seen.payload = bytes.first(summed).subspan(sizeof(RecordHead));
        uint32_t checksum = 0;
        std::memcpy(&checksum, bytes.data() + summed, sizeof checksum);
        seen.is_right = checksum == tcp::crc32c(bytes.first(summed));
        bytes = bytes.subspan(summed + tcp::checksum_bytes);
    }
    return out;
}

constexpr size_t whole = tcp::plain_payload_sent;

}  // namespace

TEST_CASE("without TLS a write leaves at once as full records, and only the last one ends it",
          "[tcp][B4][B7]") {
    for (const size_t size : {tcp::Connection::direct_bytes_min, whole - 1, whole, whole + 1, 65'535uz,
                              65'536uz, 65'537uz, 2 * whole - 1, 2 * whole, 2 * whole + 1, 131'072uz,
                              4 * whole, 262'144uz + 120, tcp::whole_payload_max}) {
        CAPTURE(size);
        PlainPair p;
        const auto chunk = pattern(size, size);
        const Bytes all(chunk);
        const std::array<Bytes, 4> parts = {all.first(120), Bytes{}, all.subspan(120, size / 2),
                                            all.subspan(120 + size / 2)};
        p.a.machine->write(Class::bulk, parts);
        CHECK_FALSE(p.a.machine->has_unsent());  // flush() was not called
        CHECK(p.a.machine->written(Class::bulk) == size);
        std::vector<std::byte> sent;
        const auto records = records_of(p.forth.bytes);
        REQUIRE(records.size() == (size + whole - 1) / whole);
        for (const Seen& seen : records) {
            const bool is_last = &seen == &records.back();
            CHECK(seen.is_right);
            CHECK(seen.head.kind == static_cast<uint8_t>(Class::bulk));
            CHECK(seen.head.flags == (is_last ? tcp::record_ends_write : 0));
            CHECK((is_last || seen.head.bytes == whole));
            sent.insert(sent.end(), seen.payload.begin(), seen.payload.end());
        }
        CHECK((sent == chunk));
        p.run();
        CHECK((p.b.got[Class::bulk] == chunk));
        CHECK_FALSE(p.ended());
    }
}

TEST_CASE("without TLS a record may be longer than those that this end sends", "[tcp][B4][B7]") {
    PlainPair p;
    const auto payload = pattern(tcp::plain_payload_max, 1);
    const RecordHead head{static_cast<uint8_t>(Class::bulk), tcp::record_ends_write, 0,
                          tcp::plain_payload_max};
    const auto put = [&](const auto& value) {
        const auto bytes = std::as_bytes(std::span(&value, 1));
        p.forth.bytes.insert(p.forth.bytes.end(), bytes.begin(), bytes.end());
    };
    put(head);
    p.forth.bytes.insert(p.forth.bytes.end(), payload.begin(), payload.end());
    put(tcp::crc32c(p.forth.bytes));
    p.b.turn(p.now);
    CHECK((p.b.got[Class::bulk] == payload));
    CHECK_FALSE(p.b.machine->ended());
}

TEST_CASE("without TLS a record is read with its checksum and the next header by one call", "[tcp]") {
    const bool reads_far = GENERATE(false, true);
    PlainPair p(reads_far);
    const auto chunk = pattern(8 * whole, 1);
    p.write(Class::bulk, Bytes(chunk).first(4 * whole));
    p.write(Class::bulk, Bytes(chunk).subspan(4 * whole));
    const size_t before = p.b.wire.calls;
    p.b.machine->on_readable(p.now, 1u << 20);
    CHECK((p.b.got[Class::bulk] == chunk));
    // The first header and the records, or 66 KiB with each call; then nothing more.
    CHECK(p.b.wire.calls - before == (reads_far ? 8 : 1 + 8) + 1);
}

TEST_CASE("a message of 64 KiB is read by one call where messages are short", "[tcp]") {
    PlainPair p;
    const auto message = pattern(64 * 1024 + 120, 1);
    p.write(Class::small, message);
    const size_t before = p.b.wire.calls;
    p.b.machine->on_readable(p.now, 1u << 20);
    CHECK((p.b.got[Class::small] == message));
    CHECK(p.b.wire.calls - before == 1 + 1);
}

TEST_CASE("what leaves directly without TLS arrives as it was written, whatever the wire takes of it",
          "[tcp][B7]") {
    for (const size_t piece : {SIZE_MAX, size_t{70'000}, size_t{40'000}, size_t{5000}, size_t{511}})
        for (const size_t room : {size_t{1} << 20, whole + 12, size_t{30'000}}) {
            PlainPair p;
            p.a.wire.piece = p.b.wire.piece = piece;
            p.forth.room = room;
            std::map<Class, std::vector<std::byte>> sent;
            Random random(piece + room);
            for (uint64_t i = 0; i < 60; ++i) {
                const auto cls = random.one_in(3)   ? Class::control
                                 : random.one_in(3) ? Class::small
                                                    : Class::bulk;
                const auto bytes = pattern(1 + random.below(random.one_in(2) ? 300 : 262'264), i);
                const Bytes all(bytes);
                const size_t cut = random.below(bytes.size());
                const std::array<Bytes, 3> parts = {all.first(cut / 2), all.subspan(cut / 2, cut - cut / 2),
                                                    all.subspan(cut)};
                if (p.a.machine->room(cls) >= bytes.size()) {
                    p.a.machine->write(cls, parts);
                    sent[cls].insert(sent[cls].end(), bytes.begin(), bytes.end());
                }
                p.run(random.one_in(2) ? 0 : 12);
            }
            p.run(2000);
            CAPTURE(piece, room);
            CHECK((p.b.got == sent));
            CHECK(sent[Class::bulk].size() > 500'000);
            CHECK_FALSE(p.ended());
        }
}

// The application has its memory again when all was written; until then it must not, and may.
TEST_CASE("memory that its owner changes after it was written changes nothing of what arrives", "[tcp][B7]") {
    const size_t room = GENERATE(size_t{0}, size_t{10}, size_t{1000}, whole + 11, whole + 13, 3 * whole);
    CAPTURE(room);
    PlainPair p;
    p.forth.room = room;
    const auto chunk = pattern(4 * whole + 120, 1);
    auto memory = chunk;
    p.write(Class::bulk, memory);
    CHECK(p.a.machine->wants_writable());
    CHECK(p.a.machine->written(Class::bulk) == chunk.size());
    std::ranges::fill(memory, std::byte{0xee});
    p.run(2);
    p.forth.room = 1u << 20;
    p.run();
    CHECK((p.b.got[Class::bulk] == chunk));
    CHECK_FALSE(p.ended());
}

TEST_CASE("the checksum is of the bytes that were sent, not of the memory that they are from", "[tcp][B7]") {
    PlainPair p;
    auto memory = pattern(4 * whole, 1);
    uint8_t value = 0;
    p.a.wire.on_send = [&] { std::ranges::fill(memory, static_cast<std::byte>(++value)); };
    p.write(Class::bulk, memory);
    p.a.wire.on_send = nullptr;
    const auto records = records_of(p.forth.bytes);
    REQUIRE(records.size() == 4);
    for (const Seen& seen : records) CHECK(seen.is_right);
    CHECK(records[1].payload.front() != records[2].payload.front());
    p.run();
    CHECK(p.b.got[Class::bulk].size() == memory.size());
    CHECK_FALSE(p.ended());
}

TEST_CASE("an application that writes to its memory while it is sent breaks no connection", "[tcp][B7]") {
    PlainPair p;
    std::vector<uint64_t> memory(whole / sizeof(uint64_t));
    std::atomic<bool> is_over = false;
    std::thread owner([&] {
        for (uint64_t n = 1; !is_over; ++n)
            for (uint64_t& word : memory) std::atomic_ref(word).store(n, std::memory_order_relaxed);
    });
    bool all_right = true;
    for (int i = 0; i < 600 && all_right; ++i) {
        p.write(Class::bulk, std::as_bytes(std::span(memory)));
        for (const Seen& seen : records_of(std::exchange(p.forth.bytes, {}))) all_right &= seen.is_right;
        p.a.machine->flush(p.now, 1u << 20);
    }
    is_over = true;
    owner.join();
    CHECK(all_right);
}

TEST_CASE("a wire that breaks in the middle of a record ends the connection, and none of the record arrives",
          "[tcp][B4][B10]") {
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{5000}, whole + 8, whole + 11,
                             whole + 12, whole + 13, whole + 5000, 2 * whole + 24, 4 * whole + 48}) {
        PlainPair p;
        const uint64_t before = p.forth.passed;
        p.forth.room = cut;
        p.a.wire.on_send = [&] { p.a.wire.broken = p.forth.passed - before >= cut; };
        const auto chunk = pattern(4 * whole + 120, cut);
        p.write(Class::bulk, chunk);
        CAPTURE(cut);
        REQUIRE(p.a.machine->ended());
        CHECK(p.a.machine->ended()->cause == "connection lost");
        CHECK(p.a.machine->ended()->reason == "broken for the test");
        CHECK(p.a.machine->room(Class::bulk) == 0);
        CHECK(p.forth.passed - before == cut);
        p.write(Class::bulk, chunk);
        CHECK(p.forth.passed - before == cut);
        p.forth.ended = true;
        for (int i = 0; i < 5; ++i) p.b.turn(p.now);
        CHECK(p.b.machine->ended());
        CHECK(p.b.got.empty());  // its last record did not come
    }
}

TEST_CASE("a broken byte of what left directly ends the connection before the link sees its record",
          "[tcp][B4][B7]") {
    const auto chunk = pattern(2 * whole + 500, 1);
    const size_t size = chunk.size() + 3 * (sizeof(RecordHead) + tcp::checksum_bytes);
    for (size_t at = 0; at < size; at += at < 20 || size - at < 700 ? 1 : 6007) {
        PlainPair p;
        p.write(Class::bulk, chunk);
        REQUIRE(p.forth.bytes.size() == size);
        p.forth.bytes[at] ^= std::byte{0x10};
        p.b.turn(p.now);
        p.forth.ended = true;
        p.b.turn(p.now);
        CAPTURE(at);
        CHECK(p.b.machine->ended());
        CHECK(p.b.got.empty());
    }
}

TEST_CASE("what is more urgent and waits in a queue leaves before what leaves directly", "[tcp][B9]") {
    PlainPair p;
    const auto urgent = pattern(100, 1), chunk = pattern(3 * whole, 2);
    const auto kinds = [&] {
        std::vector<uint8_t> out;
        for (const Seen& seen : records_of(p.forth.bytes)) out.push_back(seen.head.kind);
        return out;
    };
    constexpr auto control = static_cast<uint8_t>(Class::control), bulk = static_cast<uint8_t>(Class::bulk);
    p.write(Class::control, urgent);
    p.write(Class::bulk, chunk);
    CHECK(kinds() == std::vector<uint8_t>{control, bulk, bulk, bulk});

    // While the kernel is full the link keeps its chunks, and what is urgent is next.
    p.b.turn(p.now);
    p.forth.room = whole + 500;
    p.write(Class::bulk, chunk);
    CHECK(p.a.machine->room(Class::bulk) == 0);
    CHECK(p.a.machine->room(Class::control) > 0);
    p.write(Class::control, urgent);
    p.a.turn(p.now);
    CHECK(p.a.machine->room(Class::bulk) == 0);
    p.forth.room = 1u << 20;
    p.a.turn(p.now);
    CHECK(kinds() == std::vector<uint8_t>{bulk, bulk, bulk, control});
    CHECK(p.a.machine->room(Class::bulk) > 0);
    p.run();
    CHECK(p.b.got[Class::bulk].size() == 2 * chunk.size());
    CHECK(p.b.got[Class::control].size() == 2 * urgent.size());
}

TEST_CASE("without leave, and in small pieces, what is written without TLS waits in its queue", "[tcp][B9]") {
    PlainPair p;
    p.write(Class::bulk, pattern(tcp::Connection::direct_bytes_min - 1, 1));
    CHECK(p.forth.bytes.empty());
    p.a.machine->allow_direct(false);
    p.write(Class::bulk, pattern(2 * whole, 1));
    CHECK(p.forth.bytes.empty());
    p.run();
    CHECK(p.b.got[Class::bulk].size() == tcp::Connection::direct_bytes_min - 1 + 2 * whole);
}
