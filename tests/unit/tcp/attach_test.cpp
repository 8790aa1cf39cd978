// The attach proof: every part of its terms counts.
#include "tcp/attach.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

using namespace nexar;
using namespace nexar::tcp;

TEST_CASE("a proof is of one side, one key and exactly its terms", "[tcp][B2]") {
    AttachKey key;
    key.fill(std::byte{3});
    AttachTerms terms;
    terms.dialler.bytes[0] = 1;
    terms.acceptor.bytes[0] = 2;
    const Proof proof = prove(key, terms, Side::dialler);
    CHECK(proves(key, terms, Side::dialler, proof));
    CHECK_FALSE(proves(key, terms, Side::acceptor, proof));
    AttachKey other = key;
    other[31] ^= std::byte{1};
    CHECK_FALSE(proves(other, terms, Side::dialler, proof));
    Proof changed = proof;
    changed[31] ^= std::byte{1};
    CHECK_FALSE(proves(key, terms, Side::dialler, changed));
    std::vector<AttachTerms> different(10, terms);
    different[0].mode = Mode::plain;
    different[1].shard = 1;
    different[2].dialler.bytes[31] = 1;
    different[3].acceptor.bytes[31] = 1;
    different[4].dialler_incarnation.counter = 1;
    different[5].acceptor_incarnation.nonce = 1;
    different[6].dialler_nonce[0] = std::byte{1};
    different[7].acceptor_nonce[31] = std::byte{1};
    different[8].binding[0] = std::byte{1};
    different[9].dialler_incarnation.nonce = 1;
    for (const AttachTerms& t : different) CHECK_FALSE(proves(key, t, Side::dialler, proof));
}

TEST_CASE("messages of a wrong size, magic or version are refused", "[tcp][B4]") {
    Hello hello;
    const auto bytes = std::as_bytes(std::span(&hello, 1));
    CHECK(read_hello(bytes));
    CHECK_FALSE(read_hello(bytes.first(bytes.size() - 1)));
    hello.version = 2;
    CHECK_FALSE(read_hello(bytes));
    hello.version = 1;
    hello.magic = 0;
    CHECK_FALSE(read_hello(bytes));
    const std::vector<std::byte> none;
    CHECK_FALSE(read_answer(none));
    CHECK_FALSE(read_proof(none));
}

TEST_CASE("a key's name shows nothing of it, and differs", "[tcp][B3]") {
    AttachKey a{}, b{};
    b[0] = std::byte{1};
    CHECK(id_of(a) != id_of(b));
    AttachKeys keys;
    keys.add({1, 1}, a);
    keys.add({1, 1}, b);
    CHECK(keys.find(id_of(a)));
    CHECK(keys.find(id_of(b)));
    keys.add({2, 1}, b);  // another incarnation: no key of the one before
    CHECK_FALSE(keys.find(id_of(a)));
}

TEST_CASE("keys of another incarnation are overwritten", "[tcp][B3]") {
    AttachKeys keys;
    AttachKey first, second, third;
    first.fill(std::byte{0xa5});
    second.fill(std::byte{0x5a});
    third.fill(std::byte{0x33});
    keys.add({1, 1}, first);
    keys.add({1, 1}, second);
    const AttachKeyId older = id_of(first);
    REQUIRE(keys.find(older) != nullptr);
    keys.add({1, 2}, third);
    CHECK(keys.find(older) == nullptr);
    const auto bytes = std::as_bytes(std::span(&keys, 1));
    CHECK(std::ranges::search(bytes, first).empty());
    CHECK(std::ranges::search(bytes, second).empty());
    CHECK_FALSE(std::ranges::search(bytes, third).empty());
}
