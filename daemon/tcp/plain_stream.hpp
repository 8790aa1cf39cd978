// PlainStream: records as they are, for nodes whose configurations both say so [B7]. The attach proof shows
// who dialled; a checksum of each record finds what a broken path did, and nothing hides or protects the
// bytes.
#pragma once

#include <array>
#include <vector>

#include "tcp/stream.hpp"

namespace nexar::tcp {

class PlainStream final : public Stream {
  public:
    // The first bytes of a dialler: TLS begins with 0x16 (RFC 8446 §5.1).
    static constexpr std::array<std::byte, 8> magic = {std::byte{'N'}, std::byte{'X'}, std::byte{'R'},
                                                       std::byte{'P'}, std::byte{'L'}, std::byte{'A'},
                                                       std::byte{'I'}, std::byte{'2'}};

    PlainStream(ByteWire& wire, bool dials) : Stream(wire), dials_(dials) {}

    Step open() override;
    std::optional<NodeId> peer() const override { return std::nullopt; }
    std::vector<std::byte> binding() const override { return std::vector<std::byte>(32); }
    Step read(MutableBytes into, size_t& filled) override;
    Step write(Bytes record) override;
    void read_further() override { ahead_.resize(further_bytes); }

  private:
    static constexpr size_t further_bytes = 66 * 1024;  // a message of 64 KiB, with what frames it

    bool dials_;
    bool opened_ = false;  // the magic was sent, or read
    std::array<std::byte, magic.size()> theirs_{};
    size_t theirs_bytes_ = 0;
    // Each read takes what follows as well, so a record with its checksum takes one; its payload goes where
    // it belongs.
    std::vector<std::byte> ahead_ = std::vector<std::byte>(512);
    size_t ahead_from_ = 0, ahead_to_ = 0;
};

}  // namespace nexar::tcp
