// The first bytes on a new connection's control stream, both ways, before it becomes a link's channel: a
// preamble, any number of greetings (messages with their length before them), and the switch to the link's
// frames. (docs/protocol/connections.md, "The opening")
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/features.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "link/transfer.hpp"

namespace nexar::connections {

enum class Purpose : uint16_t { control = 0, bulk = 1 };

struct Preamble {
    static constexpr uint32_t magic_value = 0x3152584e;  // "NXR1"
    uint32_t magic = magic_value;
    // Of the whole preamble: what a later version has behind these fields is skipped [V3].
    uint16_t bytes = 48;
    Purpose purpose = Purpose::control;
    uint32_t generation = 0;
    uint16_t shard = 0;
    uint16_t reserved = 0;
    Capabilities capabilities;
    Incarnation incarnation;
};
static_assert(sizeof(Preamble) == 48);
constexpr uint16_t preamble_bytes_max = 1024;

std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble);

constexpr uint32_t greeting_bytes_max = 256 * 1024;

// Reads what the peer sends until it switched and we adopted the connection. What arrives for the link before
// that waits here, at most what the flow control windows let through.
class Opening {
  public:
    Result<void> on_bytes(Class cls, Bytes bytes);  // protocol_error names what broke the rules
    const std::optional<Preamble>& preamble() const { return preamble_; }
    std::optional<std::vector<std::byte>> poll_greeting();
    bool switched() const { return switched_; }
    // What came too early for the link, per class, in order.
    std::vector<std::byte> take(Class cls);

  private:
    Result<void> on_control(Bytes bytes);
    Result<void> read_head();

    std::vector<std::byte> head_;
    std::optional<Preamble> preamble_;
    bool switched_ = false;
    std::deque<std::vector<std::byte>> greetings_;
    std::array<std::vector<std::byte>, class_count> early_;
    size_t early_bytes_ = 0;
    static constexpr size_t early_bytes_max = 32u << 20;
    static constexpr size_t greetings_max = 64;
};

}  // namespace nexar::connections
