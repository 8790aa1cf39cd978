// Stream: whole records of the framing (records.hpp), out and in, over a ByteWire: as TLS 1.3 (tls_stream) or
// as they are (plain_stream). Dry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "tcp/byte_wire.hpp"

namespace nexar::tcp {

class Stream {
  public:
    enum class Step : uint8_t { done, blocked, failed };  // failed: why()

    virtual ~Stream() = default;

    // The handshake of the stream itself; `done` at once where it has none.
    virtual Step open() = 0;
    // After open(): who the peer is as the stream proves; nothing: it proves nothing.
    virtual std::optional<NodeId> peer() const = 0;
    virtual std::optional<WallSeconds> peer_valid_until() const { return std::nullopt; }
    // Different for each connection and equal at both ends; zeros where there is no key.
    virtual std::vector<std::byte> binding() const = 0;

    // Fills `into` as far as bytes are there. `done`: it is full, or as many records of the stream's own as
    // one call reads (short_reads_max) did not fill it. `filled` counts from its beginning. Only after
    // `blocked` has all that came been read: until then the wire need not report more.
    virtual Step read(MutableBytes into, size_t& filled) = 0;
    // From now on a read may take a whole short message, which is copied then, for a second read of it.
    virtual void read_further() {}
    static constexpr unsigned short_reads_max = 32;  // more than the bytes of a record's head
    // How many such records there were, and how many bytes were taken off the wire: what a peer may make
    // reading cost, whatever of it is read here [B9]. A record's padding is, and is read by nobody.
    uint64_t short_reads() const { return short_reads_; }
    uint64_t wire_bytes() const { return wire_bytes_; }
    // Of which no more are taken until the next allow(); is_held(): there may be more.
    void allow(uint64_t wire_bytes) { wire_bytes_max_ = wire_bytes_ + wire_bytes; }
    bool is_held() const { return wire_bytes_ >= wire_bytes_max_; }

    // `blocked`: the wire takes no more now; what was written waits here. Beyond that a caller goes on for as
    // long as what Connection::write() got at once is.
    virtual Step write(Bytes record) = 0;
    bool takes_more() const { return unsent() < out_bytes_max; }
    // `done`: all that was written has left for the wire.
    Step flush();
    bool wants_writable() const { return blocked_; }
    size_t buffer_bytes() const { return out_.capacity(); }  // that it holds, full or not
    // Of a peer that ended its direction before it closed, or of a wire that broke.
    const std::string& why() const { return why_; }

  protected:
    static constexpr size_t out_bytes_max = 64 * 1024;

    explicit Stream(ByteWire& wire) : wire_(&wire) {}
    void append(Bytes bytes);
    size_t unsent() const { return out_.size() - sent_; }
    bool has_unsent() const { return unsent() > 0; }
    Step fail(std::string why) {
        if (why_.empty()) why_ = std::move(why);
        return Step::failed;
    }
    ByteWire& wire() { return *wire_; }
    // Sends past `out_`, which is empty; what the wire did not take is appended.
    Step send_directly(Bytes bytes);
    // How many of `bytes` may be taken now.
    size_t allowed(size_t bytes) const {
        return static_cast<size_t>(
            std::min<uint64_t>(bytes, wire_bytes_max_ - std::min(wire_bytes_, wire_bytes_max_)));
    }
    uint64_t short_reads_ = 0;
    uint64_t wire_bytes_ = 0;

  private:
    ByteWire* wire_;
    std::vector<std::byte> out_;  // to be sent from sent_ on
    size_t sent_ = 0;
    uint64_t wire_bytes_max_ = UINT64_MAX;
    bool blocked_ = false;  // the wire took less than it was given
    std::string why_;
};

}  // namespace nexar::tcp
