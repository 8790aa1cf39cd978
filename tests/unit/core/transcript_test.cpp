#include "core/transcript.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>

using namespace nexar;

namespace {

std::vector<std::byte> of(std::string_view label, std::initializer_list<std::string_view> texts,
                          uint32_t number) {
    Transcript t;
    t.label(label);
    for (const auto text : texts) t.text(text);
    t.put(number);
    return {t.bytes().begin(), t.bytes().end()};
}

}  // namespace

TEST_CASE("a transcript has its label, and each text with its length, so none reads as another", "[core]") {
    CHECK(of("a", {"bc", "d"}, 1) != of("a", {"b", "cd"}, 1));
    CHECK(of("a", {"bc"}, 1) != of("ab", {"c"}, 1));
    CHECK(of("a", {}, 1) != of("a", {}, 2));
    const std::vector<std::byte> bytes = of("a", {"b"}, 0x01020304);
    constexpr unsigned char want[] = {'a', 1, 0, 0, 0, 'b', 4, 3, 2, 1};
    CHECK(std::vector<std::byte>(std::as_bytes(std::span(want)).begin(),
                                 std::as_bytes(std::span(want)).end()) == bytes);
}

TEST_CASE("bytes are equal in constant time only when each is, and there are as many", "[core]") {
    std::array<std::byte, 32> a{}, b{};
    CHECK(equal_in_constant_time(a, b));
    for (std::byte& each : b) {
        each = std::byte{0x80};
        CHECK_FALSE(equal_in_constant_time(a, b));
        each = {};
    }
    CHECK_FALSE(equal_in_constant_time(Bytes(a).first(31), b));
}
