// One QUIC connection to a peer: four ordered byte streams in each direction, one per class, small unreliable
// datagrams for heartbeats, and a close with a reason. Made and owned by an Endpoint.
//
// On each of its four unidirectional streams a side first sends two bytes, the kind (0x01) and the class. The
// streams live as long as the connection. The sender fills packets by strict priority, except that a class
// which waited for `starving_packets` packets gets one.
//
// Thread: the endpoint's. Nothing here calls back except set_receiver() and, later, the endpoint's
// on_datagram(); from inside a Receiver only write(), room(), send_datagram() and close() may be called.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/time.hpp"
#include "quic/address.hpp"
#include "quic/config.hpp"
#include "quic/send_queue.hpp"
#include "quic/tls.hpp"

struct ngtcp2_conn;
struct ngtcp2_pkt_info;
struct ngtcp2_callbacks;

namespace nexar::quic {

using ConnId = Id<struct ConnIdTag, uint64_t>;  // never reused by an endpoint

class Receiver {
  public:
    virtual void on_bytes(Class cls, Bytes bytes) = 0;  // valid during the call
    virtual void on_datagram(Bytes) {}

  protected:
    ~Receiver() = default;
};

// How a connection ended.
struct CloseInfo {
    enum class Cause : uint8_t {
        closed_here,        // close() was called here
        closed_by_peer,     // the peer's close(): `code` and `reason` are its application's
        refused_here,       // we refused the peer's certificate, name or protocol
        refused_by_peer,    // it refused ours
        idle,               // nothing was heard for idle_timeout
        handshake_timeout,  // no answer
        reset,              // stateless reset: the peer's endpoint does not know this connection (any more)
        protocol_error,     // one side broke the protocol; by_peer says which side noticed
    };
    Cause cause = Cause::closed_here;
    bool by_peer = false;      // the peer ended it
    bool application = false;  // `code` is a CloseCode or the caller's, not RFC 9000's
    uint64_t code = 0;
    std::string reason;
};

struct ConnectionStats {
    uint64_t bytes_sent = 0, bytes_received = 0, packets_sent = 0, packets_received = 0;
    uint64_t packets_lost = 0, packets_discarded = 0;
    Duration rtt{}, rtt_min{};
    uint64_t congestion_window = 0;
    size_t udp_payload = 0;  // what the path is known to carry
    std::string cipher;
};

// What an endpoint lends to its connections.
struct EndpointShared {
    Config config;
    RandomSource random;
    std::array<std::byte, 32> reset_secret{};
    BlockPool blocks;
    // Filled by connections, emptied by the endpoint.
    std::deque<class Connection*> ready;  // have something to send, or may have
};

class Connection {
  public:
    static constexpr unsigned starving_packets = 64;
    static constexpr size_t datagram_bytes_max = 256;
    static constexpr size_t datagrams_queued_max = 16;
    static constexpr size_t close_reason_bytes_max = 256;

    ~Connection();
    Connection(const Connection&) = delete;

    // ---- For whoever uses the connection.
    ConnId id() const { return id_; }
    const Address& remote() const { return remote_; }
    bool we_dialled() const { return tls_.we_dialled(); }
    bool is_open() const { return state_ == State::open; }
    std::string_view alpn() const { return alpn_; }
    const NodeId& peer() const { return tls_.peer(); }
    const PeerChain& peer_chain() const { return tls_.peer_chain(); }
    std::optional<WallSeconds> peer_valid_until() const { return tls_.peer_valid_until(); }
    Time last_received_at() const {
        return last_received_at_;
    }  // of the last packet that was new and authentic

    // Bytes write() takes now for this class; 0 when closed.
    size_t room(Class cls) const;
    // Copies all parts. Beyond room() the connection is closed with send_overflow: a peer that does not
    // acknowledge 4 MiB of control is no peer. After the end it does nothing.
    void write(Class cls, std::span<const Bytes> parts);
    void write(Class cls, Bytes bytes) { write(cls, std::span(&bytes, 1)); }
    // Received bytes wait, without flow control credit, until there is a receiver; then credit is returned as
    // soon as they were delivered. nullptr: wait again.
    void set_receiver(Receiver* receiver);
    // While held, no credit goes back: the peer can send no more than its windows.
    void hold_credit(bool held);
    // Unreliable, at most datagram_bytes_max; the oldest waiting one is dropped for it.
    void send_datagram(Bytes bytes);
    // What was written and not sent yet is dropped. The reason is cut to close_reason_bytes_max.
    void close(uint64_t code, std::string_view reason);
    // RFC 8446 §7.5; equal on both ends, and different for each connection.
    Result<std::vector<std::byte>> export_keying_material(std::string_view label, Bytes context,
                                                          size_t bytes) const;
    ConnectionStats stats() const;

  private:
    friend class Endpoint;
    friend struct Callbacks;

    enum class State : uint8_t {
        handshaking,  // -> open, closing, gone
        open,         // -> closing, gone
        closing,      // we closed: the farewell is repeated to whoever still sends (RFC 9000 §10.2.1)
        gone,         // nothing is sent any more
    };
    struct Key {
        uint8_t size = 0;
        std::array<uint8_t, 20> bytes{};
        bool operator==(const Key&) const = default;
    };
    struct Batch {
        size_t bytes = 0, segment = 0;
        uint8_t ecn = 0;
    };
    struct Outgoing {
        SendQueue queue;
        int64_t stream = -1;
        unsigned passed_over = 0;  // packets sent for others while this had something to send
        explicit Outgoing(BlockPool& pool) : queue(pool) {}
    };
    struct Incoming {
        uint8_t preamble = 0;  // bytes of it seen
        Class cls = Class::control;
        uint64_t uncredited = 0;
        uint64_t held = 0;               // delivered while credit was held
        std::vector<std::byte> waiting;  // arrived before there was a receiver
    };

    static Key key_of(const uint8_t* data, size_t size);

    // ---- For the endpoint.
    Connection(EndpointShared& shared, ConnId id, std::shared_ptr<TlsContext> tls, std::string alpn,
               std::optional<NodeId> expected, const Address& local, const Address& remote);
    bool start_client(uint64_t ts);
    struct Initial;  // what the server takes from a first packet
    bool start_server(const Initial& initial, uint64_t ts);
    void on_packet(uint64_t ts, Time now, Bytes packet, uint8_t ecn);
    void on_time(uint64_t ts);
    void probe(uint64_t ts);  // ends with CloseCode::unreachable unless the peer is heard in time
    Batch poll_send(uint64_t ts, MutableBytes buffer);
    uint64_t expiry() const;
    bool half_open() const { return !announced_ && !we_dialled(); }

    void on_handshake_done();
    bool open_streams();
    void open_windows();
    void note_received(Bytes packet);
    void on_stream_data(int64_t stream, Bytes bytes);
    void on_acked(int64_t stream, uint64_t up_to);
    bool on_preamble(Incoming& in, int64_t stream, std::byte byte);
    void deliver(Incoming& in, int64_t stream, Bytes bytes);
    void credit(Incoming& in, int64_t stream, size_t bytes);
    int64_t stream_of_peer(size_t number) const;
    bool pick(unsigned blocked, Class& out) const;
    ptrdiff_t write_packet(ngtcp2_pkt_info* info, uint8_t* into, size_t size, uint64_t ts);
    ptrdiff_t write_datagrams(ngtcp2_pkt_info* info, uint8_t* into, size_t size, uint64_t ts);
    void count_passed_over(Class served);

    void fail_locally(int library_error);
    void end(CloseInfo info);  // state becomes closing (a farewell is owed) or gone
    void end_bad_stream(std::string what);
    void on_peer_close(uint64_t ts);
    void make_close_packet(uint64_t ts);
    Batch send_close_packet(MutableBytes buffer);
    void mark_ready();
    void release();

    EndpointShared& shared_;
    ConnId id_;
    TlsSession tls_;
    Address local_, remote_;
    SocketAddress local_socket_, remote_socket_;
    State state_ = State::handshaking;
    ngtcp2_conn* conn_ = nullptr;
    std::string alpn_;

    std::array<Outgoing, class_count> out_;
    std::array<Incoming, class_count> in_;  // by the peer's stream number
    unsigned classes_seen_ = 0;
    uint64_t uncredited_ = 0;  // connection level
    std::array<uint64_t, class_count> window_{};
    Receiver* receiver_ = nullptr;
    bool credit_held_ = false;
    std::deque<std::vector<std::byte>> datagrams_;

    Time now_{};
    Time last_received_at_{};
    Time received_event_at_{};
    uint64_t packets_authentic_ = 0;
    std::optional<CloseInfo> ended_;
    bool was_reset_ = false;
    bool probe_due_ = false;               // a PING is to be sent
    uint64_t probe_ends_ = UINT64_MAX;     // the peer must be heard before; UINT64_MAX: it is not asked
    uint64_t next_probe_ = 0;              // no earlier: ICMP comes as often as a forger likes
    std::vector<std::byte> close_packet_;  // the packet with CONNECTION_CLOSE
    bool close_packet_due_ = false;
    unsigned packets_after_close_ = 0;
    uint64_t gone_at_ = UINT64_MAX;  // end of closing

    // Bookkeeping of the endpoint.
    std::vector<Key> keys_;  // connection ids under which it is known here
    std::vector<Key> new_keys_, old_keys_;
    bool ready_ = false;
    bool has_opened_ = false;     // the handshake ended well and the endpoint has not seen it yet
    bool announced_ = false;      // `connected` was raised
    bool end_raised_ = false;     // the endpoint has seen the end
    bool end_is_event_ = false;   // and raised `closed` for it
    bool end_announced_ = false;  // which was polled
    bool unused_ = false;         // waits to be deleted
    bool room_event_ = false, room_due_ = false;
    bool received_event_ = false, received_due_ = false;
    uint64_t expiry_ = UINT64_MAX;  // as the endpoint has it in its timers
    ConnectionStats last_stats_;
};

}  // namespace nexar::quic
