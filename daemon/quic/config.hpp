// An endpoint's configuration: limits, timeouts, the identity, the verifier of certificates, randomness.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "core/class.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/secret.hpp"
#include "core/time.hpp"

namespace nexar::quic {

// First byte of a stream. A stream of another kind closes the connection.
constexpr uint8_t stream_kind_framed = 0x01;

// Application codes of CONNECTION_CLOSE below 16 belong to this module; callers use 16 and above.
enum class CloseCode : uint64_t {
    none = 0,
    bad_stream = 1,         // unknown kind or class, a class twice, or a class stream that ended
    send_overflow = 2,      // more was written to a class than its buffer may hold
    shutting_down = 3,      // the endpoint goes away
    certificate_ended = 4,  // the certificate that the peer showed at the beginning has expired
    unreachable = 5,        // ICMP reported the port as unreachable, and no probe was answered
    first_of_callers = 16,
};

constexpr std::string_view alpn_nexar = "nexar/2";
constexpr std::string_view alpn_join = "nexar-join";  // the dialler has no certificate yet

// Certificate chain (leaf first), private key, trust anchors: PEM, or DER for a single certificate or key.
// Chain and key may both be empty: then the endpoint can only dial with alpn_join.
struct Identity {
    std::string certificate_chain;
    Secret private_key;
    std::string trust_anchors;
    // What is shown to a dialler with alpn_join instead: an issuer's certificate. Empty: the same as to all.
    std::string join_certificate_chain{};
    Secret join_private_key{};
};

// The peer's certificates, DER, leaf first. For alpn_join as it was presented; otherwise verified to an
// anchor.
using PeerChain = std::vector<std::vector<std::byte>>;

// Verifies a peer during its handshake: returns its node id, or why it is refused. Requires: it does not call
// the endpoint.
using Verifier = std::function<Result<NodeId>(const PeerChain& chain, std::string_view alpn)>;

// Fills memory with random bytes. Connection ids, tokens' secrets, packet number skips come from here, so
// that a simulation is repeatable; TLS has its own source.
using RandomSource = std::function<void(MutableBytes)>;

enum class CongestionControl : uint8_t { cubic, reno, bbr };

struct Config {
    bool listen = true;                                          // false: incoming connections are ignored
    std::vector<std::string> alpns = {std::string(alpn_nexar)};  // with certificates on both sides
    bool accept_join = false;                                    // answer alpn_join

    // Limits. A handshake that has not finished is half open.
    size_t connections_max = 4096;
    size_t half_open_max = 256;
    size_t half_open_per_host_max = 64;
    size_t retry_after_half_open = 32;  // from here on, a new dialler must prove its address first (Retry)
    size_t join_connections_max = 64;   // accepted ones with alpn_join: their peers are not authenticated
    size_t stateless_replies_per_second = 200;
    Duration handshake_timeout = std::chrono::seconds(5);
    Duration idle_timeout = std::chrono::seconds(30);
    // How long a peer that ICMP reports as unreachable has to answer a probe. ICMP can be forged, but a
    // forger cannot suppress the answer; only a peer that does not run for this long loses its connection to
    // one.
    Duration unreachable_patience = std::chrono::milliseconds(250);

    // Per class. How much write() may have unacknowledged, and how much a peer may have in flight to this
    // side. More than 2 MiB of bulk leaves the cache before it is encrypted: 8 MiB took a fifth more CPU and
    // gained nothing.
    std::array<size_t, class_count> send_buffer_max = {4u << 20, 1u << 20, 2u << 20, 2u << 20};
    std::array<size_t, class_count> receive_window = {1u << 20, 1u << 20, 2u << 20, 4u << 20};

    // The largest UDP payload; the path is probed up to it (RFC 8899). 65507 is IPv4's hard limit.
    size_t udp_payload_max = 65507;
    // Small, for a data centre: it only times the handshake's first repetition (3 x initial_rtt).
    Duration initial_rtt = std::chrono::milliseconds(10);
    Duration max_ack_delay = std::chrono::milliseconds(5);
    // Deadlines of an open connection that is not paced are put off to a multiple of this; 0: they are not.
    // RFC 9002, section 6.1.2 has 1 ms (kGranularity). The last packet is acknowledged after an eighth of the
    // round trip, which is 10 us in a data centre: too soon for the next message to take that along.
    Duration timer_granularity{};
    // cubic (RFC 9438) by default. Pacing needs a timer that is precise to tens of microseconds and costs
    // about 5 % on loopback; without it, only the congestion window limits a burst.
    CongestionControl congestion_control = CongestionControl::cubic;
    bool pacing = false;

    // A connection raises `received` at most this often.
    Duration received_event_interval = std::chrono::milliseconds(10);

    // Wall clock for the certificates' validity. Empty: the TLS library's own, and connections outlive the
    // certificates that they began with.
    std::function<WallSeconds()> wall_clock;

    // Tests only: faults that the peer must detect.
    struct Sabotage {
        std::array<std::byte, 2> control_preamble = {std::byte{stream_kind_framed}, std::byte{0}};
        bool dial_without_certificate = false;
    } sabotage;
};

}  // namespace nexar::quic
