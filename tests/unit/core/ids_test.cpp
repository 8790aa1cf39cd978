// Identifiers: hexadecimal forms, parsing, order and hashing; the names of error codes.
#include "core/ids.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "core/result.hpp"

using namespace nexar;

namespace {

NodeId counting_from(uint8_t first) {
    NodeId id;
    for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(first + i * 7);
    return id;
}

}  // namespace

TEST_CASE("a node's id and its 64 digits are one another's inverse", "[core]") {
    const NodeId id = counting_from(0x9c);
    const std::string text = id.hex();
    CHECK(text.size() == 64);
    CHECK(text.starts_with("9ca3aa"));
    CHECK(id.short_hex() == text.substr(0, 12));
    NodeId back;
    REQUIRE(NodeId::parse_hex(text, back));
    CHECK(back == id);
}

TEST_CASE("upper-case digits are read too", "[core]") {
    NodeId lower, upper;
    REQUIRE(NodeId::parse_hex(std::string(32, 'a') + std::string(32, 'f'), lower));
    REQUIRE(NodeId::parse_hex(std::string(32, 'A') + std::string(32, 'F'), upper));
    CHECK(lower == upper);
}

TEST_CASE("what is no id is refused and leaves the target alone", "[core]") {
    const NodeId before = counting_from(1);
    const std::string good = before.hex();
    for (std::string text : {std::string(), good.substr(1), good + "0", " " + good.substr(1),
                             good.substr(0, 63) + "g", good.substr(0, 62) + "0x", std::string(64, '\0')}) {
        NodeId out = before;
        CHECK_FALSE(NodeId::parse_hex(text, out));
        CHECK(out == before);
    }
}

TEST_CASE("zero, prefix and order of node ids", "[core]") {
    CHECK(NodeId{}.is_zero());
    NodeId last_only;
    last_only.bytes[31] = 1;
    CHECK_FALSE(last_only.is_zero());
    CHECK(last_only.prefix() == 0);
    NodeId first;
    first.bytes[0] = 1;
    CHECK(first.prefix() == 1);  // little-endian
    CHECK(last_only < first);    // bytes decide from the first on
}

TEST_CASE("numbers of different kinds do not mix, equal ones hash alike", "[core]") {
    static_assert(!std::is_convertible_v<Rank, SessionId>);
    static_assert(!std::is_convertible_v<uint32_t, Rank>);
    CHECK(Rank(3) < Rank(4));
    CHECK(std::hash<Rank>{}(Rank(7)) == std::hash<Rank>{}(Rank(7)));
}

TEST_CASE("groups of one creator that differ in one bit hash apart", "[core]") {
    std::set<size_t> hashes;
    for (uint64_t counter = 0; counter < 64; ++counter)
        for (uint64_t incarnation = 0; incarnation < 64; ++incarnation)
            hashes.insert(std::hash<GroupId>{}({0xabcdef, incarnation, counter}) % 65536);
    CHECK(hashes.size() > 3500);  // 4096 keys into 65536 cells: about 3970 expected
    const GroupId g{0x1122334455667788, 1, 7};
    CHECK(g.text() == "88776655-7");
}

TEST_CASE("every error code has a name of its own", "[core]") {
    std::set<std::string_view> names;
    size_t named = 0;
    for (int32_t code = -999; code <= 1; ++code) {
        const auto name = name_of(static_cast<Errc>(code));
        if (name == name_of(static_cast<Errc>(-1000))) continue;  // what an unknown one is called
        ++named;
        names.insert(name);
    }
    CHECK(named == 51);
    CHECK(names.size() == named);
}
