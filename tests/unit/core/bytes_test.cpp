// Reader and Writer: what is written is read back; a read over the end fails for good and touches nothing.
#include "core/bytes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace nexar;

TEST_CASE("what was written is read back, little-endian", "[core]") {
    std::vector<std::byte> bytes;
    Writer w(bytes);
    w.put(uint8_t{0x01});
    w.put(uint16_t{0x0302});
    w.put(uint64_t{0x0b0a090807060504});
    w.put(int32_t{-2});
    w.put_bytes(std::as_bytes(std::span("xyz", 3)));
    REQUIRE(bytes.size() == 1 + 2 + 8 + 4 + 3);
    for (size_t i = 0; i < 11; ++i) CHECK(bytes[i] == static_cast<std::byte>(i + 1));

    Reader r(bytes);
    CHECK(r.get<uint8_t>() == 0x01);
    CHECK(r.get<uint16_t>() == 0x0302);
    CHECK(r.get<uint64_t>() == 0x0b0a090807060504);
    CHECK(r.get<int32_t>() == -2);
    CHECK(r.left() == 3);
    CHECK_FALSE(r.finished());
    const Bytes text = r.take(3);
    CHECK(text.data() == bytes.data() + 15);  // a view, not a copy
    CHECK(r.finished());
    CHECK_FALSE(r.failed());
}

TEST_CASE("a read over the end gives zero, and the reader stays failed", "[core]") {
    // Exactly sized on the heap: the address sanitizer sees a byte too many.
    const std::vector<std::byte> bytes(7, std::byte{0xff});
    Reader r(bytes);
    CHECK(r.get<uint32_t>() == 0xffffffff);
    CHECK(r.get<uint32_t>() == 0);  // three bytes are left
    CHECK(r.failed());
    CHECK(r.left() == 0);
    CHECK(r.get<uint8_t>() == 0);  // also what would have fitted
    CHECK_FALSE(r.finished());
}

TEST_CASE("taking more than there is gives nothing, whatever the number", "[core]") {
    const std::vector<std::byte> bytes(4);
    for (const size_t n : {size_t{5}, size_t{1} << 40, std::numeric_limits<size_t>::max()}) {
        Reader r(bytes);
        CHECK(r.take(n).empty());
        CHECK(r.failed());
        CHECK_FALSE(r.finished());
    }
    Reader r(bytes);
    CHECK(r.take(0).empty());
    CHECK_FALSE(r.failed());
    CHECK(r.take(4).size() == 4);
    CHECK(r.finished());
}

TEST_CASE("an empty input is finished before it is read, and failed after", "[core]") {
    Reader r{Bytes{}};
    CHECK(r.finished());
    CHECK(r.get<uint8_t>() == 0);
    CHECK_FALSE(r.finished());
}
