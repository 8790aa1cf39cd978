// The first bytes on a new connection's control stream, both ways, before it becomes a link's channel: which life of
// the node speaks, what the connection is for, and which generation of that channel this is. The dialler numbers
// generations; the acceptor adopts its number, so both ends of a channel always agree on it [W6].
// (docs/protocol/wire.md, "Opening a channel".)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "link/transfer.hpp"

namespace nexar::transport {

enum class Purpose : uint16_t { control = 0, bulk = 1 };

struct Preamble {
    static constexpr uint32_t magic_value = 0x3152584e;  // "NXR1"
    uint32_t magic = magic_value;
    uint16_t version = 1;
    Purpose purpose = Purpose::control;
    uint32_t generation = 0;  // of the dialler's choice; the acceptor's own field repeats it or is 0
    uint16_t shard = 0;
    uint16_t reserved = 0;
    Incarnation incarnation;
};
static_assert(sizeof(Preamble) == 32);

std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble);

// Collects the peer's preamble. What arrives on any stream before the channel is attached waits here, at most
// what the flow control windows let through.
class Opening {
public:
    // protocol_error: not a preamble. After the preamble, or on another class, bytes are kept for take().
    Result<void> on_bytes(link::Class cls, Bytes bytes);
    const std::optional<Preamble>& preamble() const { return preamble_; }
    // What came too early for the link, per class, in order.
    std::vector<std::byte> take(link::Class cls);

private:
    std::vector<std::byte> head_;
    std::optional<Preamble> preamble_;
    std::array<std::vector<std::byte>, link::class_count> early_;
    size_t early_bytes_ = 0;
    static constexpr size_t early_bytes_max = 32u << 20;
};

}  // namespace nexar::transport
