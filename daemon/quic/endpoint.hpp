// All QUIC connections of one UDP port, as client and server (RFC 9000). Dry: datagrams and time go in;
// datagrams, events and a deadline come out. Every loop turn: on_datagram()s, on_time(), poll_event()
// until empty, poll_send() until empty, then sleep until wake_at().
//
// A Connection* from find() is valid until poll_event() has returned its `closed` and the endpoint is called
// again. A connection keeps its peer's address: active migration is disabled, and packets from another
// address are dropped.
//
// With a wall clock (Config), the endpoint closes a connection when a certificate that the peer showed
// expires; a peer with a renewed certificate dials again.
//
// Thread: one at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "quic/connection.hpp"

struct ngtcp2_pkt_hd;
struct ngtcp2_version_cid;

namespace nexar::quic {

struct Event {
    enum class Kind : uint8_t {
        connected,  // both sides accepted each other; comes before anything else about this connection
        closed,     // last about this connection; a dial that failed has only this
        room,       // a class has more room than before
        received,   // an authentic packet arrived (at most one per received_event_interval)
        refused,    // an incoming dial was refused; `remote` and `close` have the address and the reason
    };
    Kind kind;
    ConnId conn;
    NodeId peer;  // zero on the accepting side of alpn_join
    std::string alpn;
    bool we_dialled = false;
    Address remote;
    CloseInfo close;
};

// Datagrams for one peer, of `segment` bytes each except that the last may be shorter.
struct SendBatch {
    Address local, remote;
    size_t bytes = 0;
    size_t segment = 0;
    uint8_t ecn = 0;
};

struct EndpointStats {
    uint64_t datagrams_unknown = 0;  // for no connection here, and no first packet of one
    uint64_t datagrams_wrong_address = 0;
    uint64_t retries_sent = 0, resets_sent = 0, versions_sent = 0, refusals_sent = 0;
    uint64_t replies_suppressed = 0;     // over stateless_replies_per_second
    uint64_t handshakes_refused = 0;     // certificate, name or protocol
    uint64_t handshakes_over_limit = 0;  // half_open_max and the other limits
    size_t connections = 0, half_open = 0;
};

class Endpoint {
  public:
    static constexpr size_t send_buffer_bytes = 64 * 1024;

    // With a persistent `reset_secret`, a restarted node notifies its peers at once that it lost their
    // connections; the default is random.
    static Result<std::unique_ptr<Endpoint>> make(Config config, const Identity& identity, Verifier verifier,
                                                  RandomSource random,
                                                  std::optional<std::array<std::byte, 32>> reset_secret = {});
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;

    // Used by later handshakes; open connections keep the identity that they began with.
    Result<> set_identity(const Identity& identity);

    // `local` may have any host. `connected` or `closed` reports the result.
    Result<ConnId> connect(Time now, const Address& local, const Address& remote, std::string_view alpn,
                           std::optional<NodeId> expected = std::nullopt);
    Connection* find(ConnId id);  // nullptr: no such connection, or its end was polled
    void close_all(uint64_t code, std::string_view reason);

    // Input. `segment`: the size of each datagram in `bytes` but the last (UDP_GRO); 0: it is one.
    void on_datagram(Time now, const Address& local, const Address& remote, Bytes bytes, uint8_t ecn = 0,
                     size_t segment = 0);
    void on_time(Time now);
    // ICMP reports `remote` as unreachable. It can be forged: so it ends only a dial without a handshake, and
    // starts a probe of an open connection, at most once per unreachable_patience.
    void on_unreachable(Time now, const Address& remote);

    // Output. `buffer` has at least send_buffer_bytes.
    std::optional<SendBatch> poll_send(Time now, MutableBytes buffer);
    std::optional<Event> poll_event();
    Time wake_at() const;  // no later than the last call's `now` while something waits to be sent
    EndpointStats stats() const;

  private:
    struct KeyHash {
        uint64_t secret;
        size_t operator()(const Connection::Key& key) const noexcept;
    };
    struct Reply {
        Address local, remote;
        std::vector<std::byte> bytes;
    };
    static constexpr size_t replies_queued_max = 64;
    static constexpr size_t refused_events_max = 16;
    static constexpr size_t reset_candidates_max = 8;

    Endpoint(Config config, RandomSource random);
    uint64_t advance(Time now);
    void route(uint64_t ts, const Address& local, const Address& remote, Bytes packet, uint8_t ecn);
    Connection* find_key(const Connection::Key& key);
    bool is_reset(uint64_t ts, const Address& remote, Bytes packet);
    void accept(uint64_t ts, const Address& local, const Address& remote, Bytes packet, uint8_t ecn);
    bool make_space_for(const Address& remote);
    bool evict_for(const Address& newcomer, const std::vector<Connection*>& from, const char* what);
    Connection& add(const Address& local, const Address& remote, std::string alpn,
                    std::optional<NodeId> expected);
    void touch(Connection& c);
    void announce(Connection& c);
    void announce_end(Connection& c);
    void set_timer(Connection& c);
    void leave_half_open(Connection& c);
    void forget_remote(Connection& c);
    void end_expired();
    void look_at_certificate(const Connection& c);
    void reap();
    static Event event_of(Event::Kind kind, const Connection& c);

    // stateless.cpp: replies that need no connection.
    void reply(const Address& local, const Address& remote, std::vector<std::byte> bytes, uint64_t& counter);
    bool may_reply();
    void send_versions(const Address& local, const Address& remote, const ngtcp2_version_cid& packet);
    void send_retry(uint64_t ts, const Address& local, const Address& remote, const ngtcp2_pkt_hd& packet);
    void send_refusal(const Address& local, const Address& remote, const ngtcp2_pkt_hd& packet,
                      uint64_t code);
    void send_reset(const Address& local, const Address& remote, Bytes packet);
    enum class Token : uint8_t { none, valid, invalid };
    Token check_token(uint64_t ts, const Address& remote, const ngtcp2_pkt_hd& packet,
                      Connection::Initial& out);

    EndpointShared shared_;
    Verifier verifier_;
    std::shared_ptr<TlsContext> tls_;           // of handshakes from now on
    std::array<std::byte, 32> token_secret_{};  // of Retry tokens; new at each start
    Time now_{};                                // of the latest call; never goes backwards
    uint64_t next_id_ = 1;
    std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;  // by ConnId
    std::unordered_map<Connection::Key, Connection*, KeyHash> by_key_;       // by QUIC connection id
    Connection::Key last_key_;                        // of last_: a cache, as packets come in bursts
    Connection* last_ = nullptr;                      // found by the latest packet; null: no such cache
    std::multimap<Address, Connection*> by_remote_;   // by the peer's address
    std::set<std::pair<uint64_t, uint64_t>> timers_;  // (expiry, connection)
    std::vector<Connection*> half_open_;              // accepted, no handshake yet; the oldest first
    std::vector<Connection*> joining_;                // accepted with alpn_join, not ended; the oldest first
    std::vector<uint64_t> unused_;                    // gone and their ends polled: deleted by reap()
    Time certificates_at_ = never;                    // when to look for expired certificates
    std::deque<Event> events_;                        // bounded: four per connection and refused_events_max
    size_t refused_events_ = 0;                       // `refused` in events_
    std::deque<Reply> replies_;                       // stateless replies to send; at most replies_queued_max
    Time reply_second_{};                             // begin of the second that is counted
    size_t replies_this_second_ = 0;                  // replies in that second
    EndpointStats stats_;
};

}  // namespace nexar::quic
