// The first bytes of a connection: in pieces of any size, broken, too large, and with data before the switch.
#include "connections/opening.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/random.hpp"

using namespace nexar;
using connections::Opening;
using connections::Preamble;
using connections::Purpose;

namespace {

std::vector<std::byte> preamble(uint32_t generation = 7) {
    Preamble p;
    p.purpose = Purpose::bulk;
    p.generation = generation;
    p.shard = 3;
    p.incarnation = {11, 12};
    const auto bytes = to_bytes(p);
    return {bytes.begin(), bytes.end()};
}
std::vector<std::byte> text(std::string_view t) {
    const auto bytes = std::as_bytes(std::span(t));
    return {bytes.begin(), bytes.end()};
}
void append(std::vector<std::byte>& to, const std::vector<std::byte>& more) {
    to.insert(to.end(), more.begin(), more.end());
}
void append_greeting(std::vector<std::byte>& to, std::string_view t) {
    Writer w(to);
    w.put(static_cast<uint32_t>(t.size()));
    append(to, text(t));
}
// Preamble, two greetings, switch, and the link's first bytes.
std::vector<std::byte> whole() {
    auto bytes = preamble();
    append_greeting(bytes, "hello");
    append_greeting(bytes, "and a question");
    append_greeting(bytes, "");
    append(bytes, text("frames"));
    return bytes;
}
void check_whole(Opening& o) {
    REQUIRE(o.preamble());
    CHECK(o.preamble()->generation == 7);
    CHECK(o.preamble()->shard == 3);
    CHECK(o.preamble()->purpose == Purpose::bulk);
    CHECK(o.preamble()->incarnation == Incarnation{11, 12});
    CHECK(o.poll_greeting() == text("hello"));
    CHECK(o.poll_greeting() == text("and a question"));
    CHECK_FALSE(o.poll_greeting());
    CHECK(o.switched());
    CHECK(o.take(Class::control) == text("frames"));
    CHECK(o.take(Class::control).empty());
}

}  // namespace

TEST_CASE("an opening is read whole, byte by byte, and in random pieces alike", "[transport]") {
    const auto bytes = whole();
    Opening at_once;
    REQUIRE(at_once.on_bytes(Class::control, bytes));
    check_whole(at_once);

    Opening one_by_one;
    for (size_t i = 0; i < bytes.size(); ++i) {
        CHECK(one_by_one.preamble().has_value() == (i >= sizeof(Preamble)));
        REQUIRE(one_by_one.on_bytes(Class::control, Bytes(bytes).subspan(i, 1)));
    }
    check_whole(one_by_one);

    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Random random(seed);
        Opening o;
        for (size_t at = 0; at < bytes.size();) {
            const size_t n = std::min(bytes.size() - at, 1 + random.below(40));
            REQUIRE(o.on_bytes(Class::control, Bytes(bytes).subspan(at, n)));
            at += n;
        }
        check_whole(o);
    }
}

TEST_CASE("what does not begin with our preamble is refused as soon as that is known", "[transport]") {
    for (size_t at : {size_t{0}, size_t{5}, size_t{6}}) {  // magic, length, purpose
        auto bytes = preamble();
        bytes[at] ^= std::byte{0x40};
        Opening o;
        CHECK(o.on_bytes(Class::control, Bytes(bytes).first(7)));
        const auto end = o.on_bytes(Class::control, Bytes(bytes).subspan(7, 1));
        REQUIRE_FALSE(end);
        CHECK(end.error().code == Errc::protocol_error);
        CHECK_FALSE(o.preamble());
    }
    Opening http;
    CHECK_FALSE(http.on_bytes(Class::control, text("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")));
}

TEST_CASE("a longer preamble is read as far as it is known, and the rest of it is skipped",
          "[transport][V3]") {
    for (const size_t more : {size_t{1}, size_t{8}, connections::preamble_bytes_max - sizeof(Preamble)}) {
        auto bytes = whole();
        const auto length = static_cast<uint16_t>(sizeof(Preamble) + more);
        std::memcpy(bytes.data() + offsetof(Preamble, bytes), &length, sizeof length);
        bytes.insert(bytes.begin() + sizeof(Preamble), more, std::byte{0xEE});
        Opening at_once, one_by_one;
        REQUIRE(at_once.on_bytes(Class::control, bytes));
        check_whole(at_once);
        for (size_t i = 0; i < bytes.size(); ++i) {
            CHECK(one_by_one.preamble().has_value() == (i >= length));
            REQUIRE(one_by_one.on_bytes(Class::control, Bytes(bytes).subspan(i, 1)));
        }
        check_whole(one_by_one);
    }
}

TEST_CASE("a preamble that is too short or too long is refused", "[transport][V3]") {
    for (const size_t length :
         {size_t{0}, sizeof(Preamble) - 1, size_t{connections::preamble_bytes_max} + 1}) {
        auto bytes = preamble();
        const auto stated = static_cast<uint16_t>(length);
        std::memcpy(bytes.data() + offsetof(Preamble, bytes), &stated, sizeof stated);
        Opening o;
        CHECK_FALSE(o.on_bytes(Class::control, bytes));
    }
}

TEST_CASE("a preamble with a range of versions that holds none is refused", "[transport][V1]") {
    auto bytes = preamble();
    const uint16_t above = Capabilities{}.version_max + 1;
    std::memcpy(bytes.data() + offsetof(Preamble, capabilities) + offsetof(Capabilities, version_min), &above,
                sizeof above);
    Opening o;
    CHECK_FALSE(o.on_bytes(Class::control, bytes));
    CHECK_FALSE(o.preamble());
}

TEST_CASE("the largest greeting passes, one byte more is refused before it arrives", "[transport]") {
    Opening o;
    REQUIRE(o.on_bytes(Class::control, preamble()));
    std::vector<std::byte> large;
    append_greeting(large, std::string(connections::greeting_bytes_max, 'x'));
    REQUIRE(o.on_bytes(Class::control, large));
    CHECK(o.poll_greeting()->size() == connections::greeting_bytes_max);
    std::vector<std::byte> length;
    Writer(length).put(connections::greeting_bytes_max + 1);
    const auto end = o.on_bytes(Class::control, length);
    REQUIRE_FALSE(end);
    CHECK(end.error().code == Errc::protocol_error);
    CHECK(end.error().text.find("262145") != std::string::npos);
}

TEST_CASE("greetings that nobody reads are limited", "[transport]") {
    Opening o;
    REQUIRE(o.on_bytes(Class::control, preamble()));
    size_t taken = 0;
    std::vector<std::byte> one;
    append_greeting(one, "g");
    while (taken < 1000 && o.on_bytes(Class::control, one)) ++taken;
    CHECK(taken == 64);
}

TEST_CASE("data before the switch waits per class and in order; too much of it is refused", "[transport]") {
    Opening o;
    REQUIRE(o.on_bytes(Class::bulk, text("bulk ")));
    REQUIRE(o.on_bytes(Class::small, text("small")));
    REQUIRE(o.on_bytes(Class::bulk, text("first")));
    REQUIRE(o.on_bytes(Class::control, whole()));
    REQUIRE(o.on_bytes(Class::control, text(" go on")));  // after the switch: the link's
    CHECK(o.take(Class::bulk) == text("bulk first"));
    CHECK(o.take(Class::small) == text("small"));
    CHECK(o.take(Class::rpc).empty());
    CHECK(o.take(Class::control) == text("frames go on"));

    Opening flooded;
    const std::vector<std::byte> mib(1 << 20);
    size_t taken = 0;
    while (taken < 100 && flooded.on_bytes(Class::bulk, mib)) ++taken;
    CHECK(taken == 32);
}
