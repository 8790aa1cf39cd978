// Distinct types for every identifier, so that two integers never sit side by side in a signature.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace nexar {

// A node's identity: SHA-256 of its public key (SubjectPublicKeyInfo, DER). Never chosen, always derived.
struct NodeId {
    std::array<uint8_t, 32> bytes{};

    auto operator<=>(const NodeId&) const = default;
    bool is_zero() const { return *this == NodeId{}; }
    std::string hex() const;        // all 64 digits
    std::string short_hex() const;  // the first 12: for people
    uint64_t prefix() const {
        uint64_t v;
        std::memcpy(&v, bytes.data(), sizeof v);
        return v;
    }
    static bool parse_hex(std::string_view text, NodeId& out);
};

// One membership of a daemon under its NodeId: a persisted counter and a random nonce, both new at every
// start.
struct Incarnation {
    uint64_t counter = 0;
    uint64_t nonce = 0;
    auto operator<=>(const Incarnation&) const = default;
};

// A number with a name. Comparable, hashable, no arithmetic.
template <class Tag, class Int>
struct Id {
    Int value{};
    constexpr Id() = default;
    constexpr explicit Id(Int v) : value(v) {}
    auto operator<=>(const Id&) const = default;
};

using Rank = Id<struct RankTag, uint32_t>;          // position in a group
using SessionId = Id<struct SessionTag, uint64_t>;  // one local process connected to its daemon; never reused
using PeerIndex =
    Id<struct PeerIndexTag, uint32_t>;  // one incarnation of a peer, in this daemon's table; never reused
using GroupEpoch = Id<struct GroupEpochTag, uint32_t>;

// The daemon that creates a group allots its id: (creator, the creator's incarnation, a counter). Never a
// hash.
struct GroupId {
    uint64_t creator = 0;      // NodeId::prefix() of the creating node
    uint64_t incarnation = 0;  // its incarnation nonce
    uint64_t counter = 0;
    auto operator<=>(const GroupId&) const = default;
    std::string text() const;  // "3f2a…-7"
};

}  // namespace nexar

template <>
struct std::hash<nexar::NodeId> {
    size_t operator()(const nexar::NodeId& id) const noexcept { return static_cast<size_t>(id.prefix()); }
};
template <>
struct std::hash<nexar::GroupId> {
    size_t operator()(const nexar::GroupId& id) const noexcept {
        // splitmix64's finaliser: counters and nonces differ in few bits.
        uint64_t x = id.creator ^ (id.incarnation * 0x9e3779b97f4a7c15u) ^ (id.counter + 0x632be59bd9b4e019u);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return static_cast<size_t>(x ^ (x >> 31));
    }
};
template <class Tag, class Int>
struct std::hash<nexar::Id<Tag, Int>> {
    size_t operator()(nexar::Id<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
