// One QUIC connection to a peer: four ordered byte streams in each direction, one per class, and a close with
// a reason. Owner: an Endpoint, which also makes it.
//
// On each of its four unidirectional streams a side first sends two bytes, the kind (0x01) and the class. The
// streams last as long as the connection. The sender fills packets by strict priority, except that a class
// which waited for `starving_packets` packets gets one.
//
// Thread: the endpoint's. Nothing here calls back except set_receiver() and, later, the endpoint's
// on_datagram(); from inside a Receiver only write(), room() and close() may be called.
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

  protected:
    ~Receiver() = default;
};

// How a connection ended.
struct CloseInfo {
    enum class Cause : uint8_t {
        closed_here,        // close() was called here
        closed_by_peer,     // the peer's close(): `code` and `reason` are its caller's
        refused_here,       // this side refused the peer's certificate, name or protocol
        refused_by_peer,    // the peer refused this side's
        idle,               // nothing was received for idle_timeout
        handshake_timeout,  // no answer
        reset,              // stateless reset: the peer's endpoint does not know this connection (any more)
        protocol_error,     // one side broke the protocol; by_peer: the peer detected it
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
    size_t udp_payload = 0;  // the largest that the path has carried
    std::string cipher;
};

// What an endpoint shares with its connections. Owner: the endpoint.
struct EndpointShared {
    Config config;
    RandomSource random;
    std::array<std::byte, 32> reset_secret{};
    BlockPool blocks;
    // Connections that may have something to send. They add themselves, the endpoint removes them.
    std::deque<class Connection*> ready;
};

class Connection {
  public:
    static constexpr unsigned starving_packets = 64;
    static constexpr size_t close_reason_bytes_max = 256;

    ~Connection();
    Connection(const Connection&) = delete;

    // ---- For the connection's user.
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
    // Copies all parts. Beyond room() it closes the connection with send_overflow: a peer that does not
    // acknowledge 4 MiB of control has failed. After the end it does nothing.
    void write(Class cls, std::span<const Bytes> parts);
    void write(Class cls, Bytes bytes) { write(cls, std::span(&bytes, 1)); }
    // Bytes of the class since its begin: written, and of those the first ones that the peer has
    // acknowledged.
    uint64_t written(Class cls) const { return out_[index_of(cls)].queue.appended(); }
    uint64_t acknowledged(Class cls) const { return out_[index_of(cls)].queue.acknowledged(); }
    // Received bytes wait, without flow control credit, until there is a receiver; each delivery to it
    // returns their credit. nullptr: they wait again.
    void set_receiver(Receiver* receiver);
    // While held, no credit is returned: the peer can send no more than its windows.
    void hold_credit(bool held);
    // Drops bytes that were written and not sent. Cuts the reason to close_reason_bytes_max.
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
        closing,      // closed here: the close packet answers late packets of the peer (RFC 9000 §10.2.1)
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
        bool may_have_more = true;
    };
    struct Outgoing {
        SendQueue queue;
        int64_t stream = -1;       // ngtcp2's number; -1: not opened
        unsigned passed_over = 0;  // packets sent for other classes while this one had bytes to send
        explicit Outgoing(BlockPool& pool) : queue(pool) {}
    };
    struct Incoming {
        uint8_t preamble = 0;            // its bytes received so far, at most 2
        Class cls = Class::control;      // valid when the preamble is complete
        uint64_t uncredited = 0;         // delivered bytes whose credit is not returned yet
        uint64_t held = 0;               // bytes delivered while credit was held
        std::vector<std::byte> waiting;  // arrived before there was a receiver
    };

    static Key key_of(const uint8_t* data, size_t size);

    // ---- For the endpoint.
    Connection(EndpointShared& shared, ConnId id, std::shared_ptr<TlsContext> tls, std::string alpn,
               std::optional<NodeId> expected, const Address& local, const Address& remote);
    bool start_client(uint64_t ts);
    struct Initial;  // the parts of a first packet that the server needs
    bool start_server(const Initial& initial, uint64_t ts);
    void on_packet(uint64_t ts, Time now, Bytes packet, uint8_t ecn);
    void on_time(uint64_t ts);
    void probe(uint64_t ts);  // ends with CloseCode::unreachable unless a packet is received in time
    Batch poll_send(uint64_t ts, MutableBytes buffer);
    uint64_t expiry() const;
    uint64_t put_off(uint64_t expiry) const;  // to Config::timer_granularity
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
    void count_passed_over(Class served);

    void fail_locally(int library_error);
    void end(CloseInfo info);  // state becomes closing (a close packet is to be sent) or gone
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
    SocketAddress local_socket_, remote_socket_;  // the same, as ngtcp2 needs them
    State state_ = State::handshaking;
    ngtcp2_conn* conn_ = nullptr;                 // null: not started, or released at the end
    std::string alpn_;                            // empty until open
    std::array<Outgoing, class_count> out_;       // by class
    std::array<Incoming, class_count> in_;        // by the peer's stream number
    unsigned classes_seen_ = 0;                   // a bit for each class of the peer's preambles
    uint64_t uncredited_ = 0;                     // delivered bytes whose credit the connection lacks yet
    std::array<uint64_t, class_count> window_{};  // granted to the peer, by class; 0: unidentified
    Receiver* receiver_ = nullptr;                // null: received bytes wait in in_
    bool credit_held_ = false;                    // hold_credit(true)
    Time now_{};                                  // of the endpoint's latest input for this connection
    Time last_received_at_{};                     // of the last packet that was new and authentic
    Time received_event_at_{};                    // the next `received` is raised no earlier
    uint64_t packets_authentic_ = 0;              // ngtcp2's count, when note_received() last looked
    std::optional<CloseInfo> ended_;              // why it ended; nothing: it has not
    bool was_reset_ = false;                      // the last packet was a stateless reset
    bool probe_due_ = false;                      // a PING is to be sent
    bool drained_ = false;                        // the last call for a packet returned none
    uint64_t probe_ends_ = UINT64_MAX;            // a packet must arrive before; UINT64_MAX: no probe
    uint64_t next_probe_ = 0;                     // no earlier: a forger chooses how often ICMP arrives
    std::vector<std::byte> close_packet_;         // with CONNECTION_CLOSE; empty until closing
    bool close_packet_due_ = false;               // it is to be sent, or sent again
    unsigned packets_after_close_ = 0;            // received while closing
    uint64_t gone_at_ = UINT64_MAX;               // end of closing or draining

    // The endpoint's bookkeeping.
    std::vector<Key> keys_;                       // connection ids in the endpoint's by_key_
    std::vector<Key> new_keys_, old_keys_;        // to be added to it, removed from it at the next touch()
    bool ready_ = false;                          // in EndpointShared::ready
    bool has_opened_ = false;                     // the handshake has completed on both sides
    bool announced_ = false;                      // `connected` was raised
    bool end_raised_ = false;                     // the endpoint has seen the end
    bool end_is_event_ = false;                   // and raised `closed` or `refused` for it
    bool end_announced_ = false;                  // and the event was polled
    bool unused_ = false;                         // in the endpoint's unused_: to be deleted
    bool room_event_ = false, room_due_ = false;  // `room` is queued; is to be queued
    bool received_event_ = false, received_due_ = false;  // the same of `received`
    uint64_t expiry_ = UINT64_MAX;  // its entry in the endpoint's timers_; UINT64_MAX: none
    ConnectionStats last_stats_;    // valid when conn_ was released
};

}  // namespace nexar::quic
