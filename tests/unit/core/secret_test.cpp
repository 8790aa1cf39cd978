// What holds a secret leaves no copy of it in memory that it gave back.
#include "core/secret.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <new>

using namespace nexar;

namespace {

constexpr std::string_view text = "a secret that is longer than what a string keeps in itself";

}  // namespace

TEST_CASE("a secret is its bytes, and a copy is another secret", "[core]") {
    Secret a(text);
    Secret b = a;
    CHECK(a == b);
    CHECK(a.text() == text);
    CHECK(a.text().data() != b.text().data());
    CHECK(a.bytes().size() == text.size());
    a = Secret("other");
    CHECK(a.text() == "other");
    CHECK(b.text() == text);
    const char* where = b.text().data();
    const Secret c = std::move(b);
    CHECK(c.text().data() == where);  // moved, not copied
    CHECK(b.empty());                 // NOLINT(bugprone-use-after-move)
    CHECK(Secret().empty());
    CHECK(Secret() == Secret(""));
}

TEST_CASE("wiping overwrites the bytes in their place", "[core]") {
    Secret secret(text);
    const std::string_view seen = secret.text();
    secret.wipe();
    CHECK(seen == std::string(text.size(), '\0'));
    CHECK(secret.size() == text.size());
}

// The memory is this test's own, so that it may be read after the secret has ended.
TEST_CASE("the bytes of a fixed number are overwritten when they end", "[core]") {
    alignas(SecretBytes<32>) std::byte place[sizeof(SecretBytes<32>)];
    auto* secret = new (place) SecretBytes<32>;
    secret->fill(0x5a);
    CHECK(std::ranges::count(place, std::byte{0x5a}) == 32);
    secret->~SecretBytes();
    CHECK(std::ranges::count(place, std::byte{0}) == 32);
}

TEST_CASE("a text is overwritten up to the end of its buffer", "[core]") {
    std::string from(text);
    from.reserve(500);
    const char* where = from.data();
    wipe(from);
    CHECK(from.empty());
    CHECK(from.data() == where);
    CHECK(std::ranges::count(std::string_view(where, 500), '\0') == 500);

    CHECK(Secret::take(std::string(text)).text() == text);
}
