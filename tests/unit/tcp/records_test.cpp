// Records and their checksum.
#include "tcp/records.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "tcp/crc32c.hpp"

using namespace nexar;
using namespace nexar::tcp;

TEST_CASE("CRC-32C has the values of RFC 3720", "[tcp][B7]") {
    std::vector<std::byte> zeros(32), ones(32, std::byte{0xff}), rising(32);
    for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<std::byte>(i);
    CHECK(crc32c(zeros) == 0x8a9136aa);
    CHECK(crc32c(ones) == 0x62a8ab43);
    CHECK(crc32c(rising) == 0x46dd794e);
    CHECK(crc32c(Bytes(rising).subspan(5), crc32c(Bytes(rising).first(5))) == 0x46dd794e);
}

TEST_CASE("CRC-32C of any length and in any parts is that of its definition, in each way", "[tcp][B7]") {
    std::mt19937 random(1);
    std::vector<std::byte> bytes(70'000);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    uint32_t c = ~0u;  // bit by bit
    size_t done = 0;
    for (const size_t size :
         {1uz,   7uz,    8uz,    255uz,  256uz,  257uz,  511uz,   512uz,   575uz,   576uz,
          583uz, 2048uz, 6143uz, 6144uz, 6145uz, 6151uz, 12288uz, 65536uz, 69999uz, 70000uz}) {
        for (; done < size; ++done) {
            c ^= static_cast<uint32_t>(bytes[done]);
            for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78 : 0);
        }
        const Bytes all = Bytes(bytes).first(size);
        CAPTURE(size);
        CHECK(crc32c(all) == ~c);
        for (int i = 0; i < 20; ++i) {
            const size_t cut = random() % (size + 1);
            CHECK(crc32c(all.subspan(cut), crc32c(all.first(cut))) == ~c);
            for (const Crc32c way : crc32c_ways())
                CHECK(way(all.subspan(cut), way(all.first(cut), ~0u)) == c);
        }
    }
}

TEST_CASE("copied bytes have the checksum that is returned, at any place, by each way", "[tcp]") {
    std::mt19937 random(11);
    std::vector<std::byte> from(70'000), to(from.size() + 64);
    for (std::byte& b : from) b = static_cast<std::byte>(random());
    for (const size_t size :
         {0uz, 1uz, 63uz, 64uz, 255uz, 256uz, 257uz, 511uz, 512uz, 6143uz, 6145uz, 61'428uz, 65'000uz})
        for (const Crc32cCopy way : crc32c_copy_ways()) {
            const size_t begin = random() % 64, at = random() % 64;
            const Bytes bytes = Bytes(from).subspan(begin, size);
            std::ranges::fill(to, std::byte{0xee});
            CHECK(way(to.data() + at, bytes, ~0u) == ~crc32c(bytes));
            CHECK(std::ranges::equal(Bytes(to).subspan(at, size), bytes));
            CHECK(std::ranges::count(to, std::byte{0xee}) >= static_cast<ptrdiff_t>(to.size() - size));
            CHECK(to[at + size] == std::byte{0xee});
        }
    CHECK(crc32c_copy(to.data(), Bytes(from).subspan(5), crc32c(Bytes(from).first(5))) == crc32c(from));
}

TEST_CASE("the checksum is of the copy where the memory changes meanwhile", "[tcp][B4]") {
    std::vector<std::byte> from(61'428), to(from.size());
    std::atomic<bool> ends{false};
    std::atomic<int> rounds{0};
    std::thread owner([&] {
        volatile std::byte* const bytes = from.data();
        for (uint32_t n = 0; !ends; ++n, ++rounds)
            for (size_t i = 0; i < from.size(); i += 61) bytes[i] = static_cast<std::byte>(n + i);
    });
    while (rounds < 2) std::this_thread::yield();
    size_t wrong = 0;
    for (const Crc32cCopy way : crc32c_copy_ways())
        for (int i = 0; i < 300; ++i) wrong += way(to.data(), from, ~0u) != ~crc32c(to);
    ends = true;
    owner.join();
    CHECK(wrong == 0);
}

TEST_CASE("a header that breaks a rule is named", "[tcp][B4]") {
    CHECK(broken_rule({0, 0, 0, 1}, whole_payload_max) == nullptr);
    CHECK(broken_rule({3, 1, 0, whole_payload_max}, whole_payload_max) == nullptr);
    CHECK(broken_rule({8, 1, 0, 32}, whole_payload_max) == nullptr);
    for (const RecordHead bad :
         {RecordHead{4, 0, 0, 1}, RecordHead{10, 0, 0, 1}, RecordHead{19, 0, 0, 1}, RecordHead{255, 0, 0, 1},
          RecordHead{0, 2, 0, 1}, RecordHead{0, 0, 1, 1}, RecordHead{0, 0, 0, 0},
          RecordHead{3, 0, 0, whole_payload_max + 1}, RecordHead{8, 0, 0, control_payload_max + 1},
          RecordHead{0, 0, 0, UINT32_MAX}})
        CHECK(broken_rule(bad, whole_payload_max) != nullptr);
    CHECK(broken_rule({3, 0, 0, plain_payload_max}, plain_payload_max) == nullptr);
    CHECK(broken_rule({3, 0, 0, plain_payload_max + 1}, plain_payload_max) != nullptr);
}

TEST_CASE("small writes share a record, so a queue's memory follows its bytes", "[tcp][B9]") {
    RecordPool pool;
    RecordQueue queue;
    const std::vector<std::byte> bytes(100);
    const Bytes part(bytes);
    for (int i = 0; i < 1000; ++i) queue.append(0, std::span(&part, 1), tls_payload_max, pool);
    CHECK(queue.bytes() == 100'000);
    size_t records = 0, payload = 0;
    for (; !queue.empty(); ++records) payload += queue.take().payload().size();
    CHECK(payload == 100'000);
    CHECK(records <= 7);
}
