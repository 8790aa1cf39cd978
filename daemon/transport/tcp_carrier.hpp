// TcpCarrier: the TCP connections of one shard as a connections::Carrier: a listener, an epoll instance, and
// a tcp::Connection on each socket. It moves bytes and has no policy.
//
// One turn: receive(), the owner's own work, flush(). A call gives each connection a quantum, so no peer's
// socket keeps the others waiting, and all of them together Options::turn_bytes, so that they do not keep the
// owner from what else it has: who comes too late is first in the next turn. The result says whether to call
// again at once.
//
// Thread: its owner's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "connections/carrier.hpp"
#include "quic/tls.hpp"
#include "tcp/connection.hpp"
#include "tcp/half_open.hpp"
#include "transport/handshake_share.hpp"
#include "transport/tcp_socket.hpp"

struct epoll_event;

namespace nexar::transport {

class TcpCarrier final : public connections::Carrier, private tcp::KeyRing {
  public:
    static constexpr size_t quantum = 512 * 1024;
    static constexpr size_t quantum_alone = 1024 * 1024;  // read of a connection that is the only one to read
    static constexpr size_t slice = 64 * 1024;            // of it, after which the clock is read
    static constexpr size_t accepts_per_turn = 16;
    static constexpr size_t lingering_max = 64;
    static constexpr size_t discarded_at_least = 4 * 1024;  // of one that lingers, in a turn
    static constexpr size_t discarded_max = 64 * 1024;      // of one that never attached, after its end
    static constexpr Duration linger{500'000'000};
    static constexpr Duration accept_pause{200'000'000};  // when there is no descriptor for a newcomer
    static constexpr Duration accept_report_interval{60'000'000'000};
    static constexpr Duration handshake_interval{10'000'000};
    static constexpr Duration short_pause{5'000'000};     // when the kernel has no memory for what is sent
    static constexpr Duration rate_interval{10'000'000};  // between looks at a sender's rate
    static constexpr uint64_t direct_from = 512 * 1024;   // bytes that leave in 5 ms: 100 MB/s
    static constexpr Duration dial_patience{3'000'000'000};
    // A dial whose hello names an older key than the latest: the acceptor may never come to know it [B3].
    static constexpr Duration overtaken_patience{300'000'000};

    struct Options {
        quic::Address listen;
        NodeId self;
        Incarnation incarnation;
        uint16_t shard = 0;
        bool plain = false;  // accepts connections without TLS as well [B7]
        std::function<WallSeconds()> wall_clock;
        // Of each handshake_interval, for connections that have not attached: what their bytes cost is theirs
        // to choose. Zero: no limit.
        Duration handshake_share{};
        // What a turn reads of all connections, and what it encrypts for them, beyond the record that crosses
        // it. What takes longer than a nanosecond for each byte counts by its time: handshakes, small frames.
        size_t turn_bytes = SIZE_MAX;
        bool reads_far = false;  // tcp::Shared
    };
    static Result<std::unique_ptr<TcpCarrier>> open(Options options, const quic::Identity& identity,
                                                    quic::Verifier verifier);
    ~TcpCarrier();
    TcpCarrier(const TcpCarrier&) = delete;

    // Of a peer that has a control connection: what proves that a connection belongs to it.
    struct Peer {
        NodeId node;
        Incarnation incarnation;
        tcp::AttachKey key{};
        bool plain = false;  // both ends' configuration says so
    };
    void set_peer(Time now, const Peer& peer);  // again for every control connection of it
    void forget_peer(const NodeId& node, const Incarnation& incarnation);
    Result<> set_identity(const quic::Identity& identity);  // of later connections

    // Requires: set_peer(*expected).
    Result<connections::ConnectionId> dial(Time now, const std::string& address,
                                           const std::optional<NodeId>& expected) override;

    int fd() const { return epoll_; }
    bool receive(Time now, connections::CarrierEvents& events);
    bool flush(Time now, connections::CarrierEvents& events);
    void close_all(uint64_t code, const std::string& reason);
    // News for the log, at most two in accept_report_interval. True: newcomers wait, as no descriptor is left
    // for them; false: none waits any more.
    std::optional<bool> poll_accept_pause() { return std::exchange(accept_news_, std::nullopt); }
    Time wake_at() const;
    void limit_turn(size_t bytes) {
        options_.turn_bytes = bytes;
        writing_.left = std::min(writing_.left, bytes);  // of what is written before the next flush()
    }
    size_t half_open() const { return half_open_.size(); }  // accepted, and not attached yet
    size_t handshakes_waiting() const { return handshakes_wait_.size(); }

  private:
    class Conn;
    struct Share {
        size_t left = SIZE_MAX;
        void spend(uint64_t bytes) { left -= std::min<uint64_t>(left, bytes); }
    };
    struct PeerEntry {
        tcp::AttachKeys keys;
        bool plain = false;
        uint64_t dial = 0;  // the last one; zero: none
    };
    TcpCarrier(Options options, quic::Verifier verifier);
    Result<> start(const quic::Identity& identity);
    const tcp::AttachKeys* keys_of(const NodeId& node) const override;
    Conn* find(uint64_t id) const;
    Conn& add(TcpSocket socket, const quic::Address& remote);
    void touch(Conn& conn);
    void refuse(uint64_t id);
    void read_again(Conn& conn);
    void accept(Time now);
    bool make_room(Time now);
    bool watch_listener();  // false: the kernel has no memory for it
    void pause_accepting(Time now);
    bool may_shake_hands(Time now, Conn& conn);
    void admit_handshakes(Time now);
    bool has_first_byte(Conn& conn);
    void begin(Conn& conn);
    size_t plan_reads(std::span<epoll_event> ready);
    void on_ready(Time now, uint64_t id, uint32_t ready, connections::CarrierEvents& events);
    void read(Time now, Conn& conn, connections::CarrierEvents& events);
    void read_slices(Time now, Conn& conn);
    void discard(Conn& conn);
    void report(Conn& conn, Time now, connections::CarrierEvents& events);
    void note_ack(Conn& conn);
    bool flush(Time now, Conn& conn, connections::CarrierEvents& events);
    void end(Time now, Conn& conn, connections::CarrierEvents& events);
    Conn& displaced_lingerer() const;
    void drop(Conn& conn);
    void watch(Conn& conn);
    void on_time(Time now);
    void end_unanswered(Time now, std::deque<std::pair<Time, uint64_t>>& dials);
    void note_certificate(Time now, const tcp::Connection& machine);
    void end_old_certificates(Time now);

    Options options_;
    quic::Verifier verifier_;
    tcp::Shared shared_;
    std::shared_ptr<quic::TlsContext> tls_;
    std::map<NodeId, PeerEntry> peers_;
    std::unique_ptr<TcpListener> listener_;
    int epoll_ = -1;
    uint64_t next_id_ = 1;
    std::map<uint64_t, std::unique_ptr<Conn>> conns_;
    tcp::HalfOpen half_open_;
    std::set<uint64_t> keyless_;                       // those that wait for a key
    std::deque<std::pair<Time, uint64_t>> dials_;      // when each has had its time, in order
    std::deque<std::pair<Time, uint64_t>> overtaken_;  // the same of those that a newer key has overtaken
    std::deque<std::pair<Time, uint64_t>> lingering_;  // the same of ended ones
    std::deque<std::pair<Time, uint64_t>> short_;      // when to send again, in order
    std::vector<uint64_t> unread_;   // may have more that the kernel does not report again; in their order
    std::vector<uint64_t> touched_;  // have something to send, or have ended; in their order
    Share reading_, writing_;        // of the turn
    size_t quantum_read_ = quantum;  // of each connection, in this turn
    std::set<std::pair<Time, uint64_t>> acks_;
    HandshakeShare handshakes_;
    std::vector<uint64_t> handshakes_wait_;  // connections that wait for it, and are not watched meanwhile
    Time accept_at_ = never;                 // the listener is not watched until then; never: it is
    bool pause_reported_ = false;            // and the kernel's queue was not found empty since
    Time report_at_{};                       // the next pause is reported from then on
    std::optional<bool> accept_news_;
    Time certificates_at_ = never;  // when the next certificate that a peer showed expires
};

}  // namespace nexar::transport
