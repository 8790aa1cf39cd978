// What a daemon states of itself to its peers: the versions of the protocol that it speaks, and a bit for
// each feature that nexar/2 did not have from the beginning. Two nodes use the highest version and the
// features that both have; a group uses the features of all its nodes. (docs/protocol/wire.md, "Versions and
// features")
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

#include "core/operations.hpp"
#include "core/partials.hpp"
#include "core/types.hpp"

namespace nexar {

constexpr uint16_t protocol_version_min = 2;  // nexar/1 was another protocol
constexpr uint16_t protocol_version_max = 2;  // and the N of ALPN nexar/N

// The latest of the functions that cut operations into plans. The first one has no bit.
constexpr uint32_t plan_version_max = 3;
// The latest that goes by size alone: of groups whose maker has no cost model (docs/protocol/planning.md).
constexpr uint32_t plan_version_by_size = 2;
// What plan functions 1 and 2 do with a group's doubling_bytes_max is the same on all its hosts; this is how
// its maker sets it: between two hosts recursive doubling sends as many bytes as a ring, in half of the
// steps.
constexpr uint64_t doubling_of_two_hosts = 2;
constexpr uint64_t doubling_bytes_among(size_t hosts, uint64_t doubling_bytes_max, uint64_t small_bytes_max) {
    return hosts == 2 ? std::min(doubling_of_two_hosts * doubling_bytes_max, small_bytes_max)
                      : doubling_bytes_max;
}
// The operations below this number have no bit: every daemon of nexar/2 carries them out.
constexpr uint64_t base_operations = 8;
// And the element types and reductions below these.
constexpr uint64_t base_types = 12, base_reductions = 5;

// The first bit of each kind of feature.
enum class FeatureRange : unsigned {
    carriers = 0,
    codecs = 8,
    plans = 16,
    operations = 24,
    options = 40,  // what a call of an operation may ask for
    more_operations = 48,
    types = 56,
    end = 64
};

constexpr uint64_t feature_bit(FeatureRange range, uint64_t index) {
    return uint64_t{1} << (static_cast<uint64_t>(range) + index);
}
// Operations from this number on have the second range of bits.
constexpr uint64_t more_operations_from = base_operations + static_cast<uint64_t>(FeatureRange::options) -
                                          static_cast<uint64_t>(FeatureRange::operations);
// 0: every peer has it, or need not have it: of messages the other node sees offers only.
constexpr uint64_t feature_of(OpKind kind) {
    const auto number = static_cast<uint64_t>(kind);
    const OpRow* row = find_operation(number);
    const bool is_message = row != nullptr && !row->collective;
    if (number < base_operations || is_message) return 0;
    return number < more_operations_from
               ? feature_bit(FeatureRange::operations, number - base_operations)
               : feature_bit(FeatureRange::more_operations, number - more_operations_from);
}
constexpr uint64_t feature_of(Partials partials) {
    if (partials == Partials::native) return 0;
    return feature_bit(FeatureRange::options, partials == Partials::tree ? 0 : 1);
}
// All types and reductions of one release have one bit; those of the first came with this one.
constexpr uint64_t feature_of_types(uint64_t type, uint64_t reduction) {
    return type < base_types && reduction < base_reductions ? 0 : feature_bit(FeatureRange::types, 0);
}
constexpr uint64_t feature_of_plan(uint32_t version) {
    return version <= 1 ? 0 : feature_bit(FeatureRange::plans, version - 2);
}
static_assert(operation_count - more_operations_from <=
              static_cast<uint64_t>(FeatureRange::types) -
                  static_cast<uint64_t>(FeatureRange::more_operations));
// wire::CreateQuery and CreateAnswer: what a call of nexar_group_create learns before its deadline.
constexpr uint64_t feature_of_create_query = feature_bit(FeatureRange::options, 2);

// A daemon that carries bulk data over TCP as well, and one that does so without encryption where the other
// end wants that too. Both are its configuration's, so known_features() has neither. (docs/protocol/tcp.md
// [B6] [B7])
constexpr uint64_t feature_of_tcp_bulk = feature_bit(FeatureRange::carriers, 0);
constexpr uint64_t feature_of_plain_bulk = feature_bit(FeatureRange::carriers, 1);

// Of this daemon.
constexpr uint64_t known_features() {
    uint64_t out = feature_of_types(type_count - 1, reduction_count - 1) | feature_of_create_query;
    for (const OpRow& row : operation_table::rows) out |= feature_of(row.kind);
    out |= feature_of(Partials::tree) | feature_of(Partials::wide);
    for (uint32_t version = 1; version <= plan_version_max; ++version) out |= feature_of_plan(version);
    return out;
}
// The latest plan function that has its bit in there, also one that this daemon does not know.
constexpr uint32_t plan_version_of(uint64_t features) {
    constexpr uint64_t plan_bits = feature_bit(FeatureRange::operations, 0) - feature_of_plan(2);
    const uint64_t plans = (features & plan_bits) >> static_cast<unsigned>(FeatureRange::plans);
    return 1 + static_cast<uint32_t>(std::bit_width(plans));
}

// As it lies in the preamble of a connection.
struct Capabilities {
    uint16_t version_min = protocol_version_min;
    uint16_t version_max = protocol_version_max;
    uint32_t reserved = 0;
    uint64_t features = known_features();

    std::string versions() const;  // "nexar/2 to nexar/3"
};
static_assert(sizeof(Capabilities) == 16);

// What both ends of a connection have.
struct Agreed {
    uint16_t version = 0;
    uint64_t features = 0;
    bool operator==(const Agreed&) const = default;
};
// None: no version is in both ranges [V1].
std::optional<Agreed> agreed(const Capabilities& ours, const Capabilities& theirs);

}  // namespace nexar
