// Bulk connections: one per peer, of one shard. The control plane announces each incarnation of a node; a
// connection of that incarnation is used, an older one refused, a newer one waits for its announcement.
// Whether a node has failed is judged on its control connection: a bulk connection that is lost is dialled
// again, and one that is silent while transfers wait is made anew, then counts as cut off.
// (docs/protocol/connections.md [P12] [P13]) Sans-io: it runs over any carrier, in a shard's thread and in
// the simulator.
//
// How it is driven: the carrier reports to events(); then on_time(), once per turn and at wake_at(), and
// poll_event() until there is none.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "connections/bulk_watch.hpp"
#include "connections/channels.hpp"
#include "connections/dial_schedule.hpp"

namespace nexar::connections {

struct BulkConfig {
    NodeId self;
    Incarnation incarnation;
    Capabilities capabilities;
    uint16_t shard = 0;  // the peers' shard of the same number is dialled
    DialConfig dial{.dial_timeout = Duration{3'000'000'000},
                    .backoff_min = Duration{20'000'000},
                    .backoff_max = Duration{1'000'000'000},
                    .dials_max = 64};
    // Over TCP, while QUIC carries: no hurry (docs/protocol/tcp.md [B8]).
    DialConfig tcp_dial{.dial_timeout = Duration{3'000'000'000},
                        .backoff_min = Duration{250'000'000},
                        .backoff_max = Duration{10'000'000'000},
                        .dials_max = 64};
    Duration tcp_patience{200'000'000};  // a dial over TCP has before QUIC is dialled as well
    // With a peer that is to dial, before we do as well [P12]: once its connection has ended, which it may
    // not have noticed; and at the beginning, or after it has refused.
    Duration stand_in_patience{500'000'000};
    Duration first_patience{3'000'000'000};  // at most watch.timeout: operations wait twice that
    Duration young{1'000'000'000};  // a connection that did not last so long is no reason for fast redials
    // A TCP connection that lasted so long and moved so much ends the back-off before it [B8].
    Duration tcp_settled{10'000'000'000};
    uint64_t tcp_settled_bytes = 1 << 20;
    size_t waiting_max = 256;  // connections whose incarnation is not announced yet
    BulkWatchConfig watch;
    uint64_t seed = 0;
};

struct KnownPeer {  // `dial`: it is ours to open the bulk connection
    link::PeerIndex peer;
    NodeId node;
    Incarnation incarnation;
    std::string address;
    bool dial = false;
    std::shared_ptr<link::Traffic> traffic{};  // what this shard exchanges with it is counted here; null: not
    bool tcp = false;                          // both ends carry bulk data over TCP
};

struct BulkState {  // of one peer's bulk connection, for people
    link::PeerIndex peer;
    bool up = false;
    std::string why;
    std::vector<GroupId> cut_off;  // groups whose transfers it cannot carry [P13]; usually none
    bool answers = false;          // what ask_all() sent has been acknowledged
    bool is_new = false;           // the connection has just been made
    CarrierKind carrier = CarrierKind::quic;
    std::string carrier_why{};  // of QUIC: why not TCP ("tcp refused at 10.0.0.2:7655"); of none: why
};

class BulkConnections {
  public:
    // `tcp` null: QUIC only.
    BulkConnections(const BulkConfig& config, Carrier& quic, link::Mesh& mesh, Carrier* tcp = nullptr);

    CarrierEvents& events() { return channels_; }
    void introduce(const KnownPeer& known, Time now);  // again for every control connection of it
    void drop(link::PeerIndex peer);                   // its incarnation is over
    void on_garbage(link::PeerIndex from, const std::string& what);  // what it sent breaks the protocol
    // Every connection in use is replaced by a new one, one after the other: what they show at their
    // handshake has changed. Their transfers go on from their applied-bitmaps.
    void replace_all(Time now);
    // For people: each connection in use is sent what the peer's carrier acknowledges, and its
    // acknowledgement is an event. An idle connection shows in no other way that its path is blocked, and
    // what the peer sends by itself (its own questions) does not show that our way to it is open.
    void ask_all();
    void on_time(Time now);

    std::optional<BulkState> poll_event();
    Time wake_at() const {
        return std::min(
            {channels_.wake_at(), schedule_.wake_at(), tcp_schedule_.wake_at(), watch_.wake_at()});
    }
    std::optional<ConnectionId> conn_of(link::PeerIndex peer) const { return channels_.conn_of(peer); }
    std::vector<link::PeerIndex> peers() const;  // announced, and their incarnation is not over
    void check_invariants() const;

  private:
    struct Peer {
        KnownPeer known;
        std::optional<ConnectionId> dialling;      // the dial that has led to no channel and no failure yet
        std::optional<ConnectionId> tcp_dialling;  // the same over TCP
        bool up = false;
        Time up_since{};
        CarrierKind carrier = CarrierKind::quic;  // of the connection in use, or the last one
        bool quic_waits = false;                  // for the dial over TCP: tcp_patience
        // Where the last dials went, and the connection in use, or the last one: `known` may name another
        // address since.
        std::string dialled_at, tcp_dialled_at, made_at;
        // Of the last failure over TCP since `known` has this address; empty: none since it carried, or,
        // where the other node dials, since QUIC did.
        std::string tcp_why;
        std::string quic_why;  // of the last failure over QUIC; empty while a connection is in use
        // This node's certificate was renewed, and no connection that was dialled here since has been in use:
        // one that was dialled before, or by the peer, may show the old certificate.
        bool to_be_replaced = false;
        bool is_ours() const { return known.dial || !up; }  // to dial: without a connection both do [P12]
        bool over_tcp() const { return up && carrier != CarrierKind::quic; }
    };
    void on_opened(const Opened& opened, Time now);
    void on_closed(const Closed& closed, Time now);
    void lost(const Closed& closed, Time now);
    Duration first_patience() const;
    Duration patience(const Peer& peer, const ClosedBy& why) const;
    void replace(Peer& peer, Time at);
    void dial_due(Time now);
    void look_for_silence(Time now);
    void judge(const BulkWatch::Judged& judged);
    void note_answers();
    void send_what_is_acknowledged(link::PeerIndex peer);
    void dial_failed(Peer& peer, const std::string& why, Time now);
    bool wants_tcp(const Peer& peer) const { return tcp_ && peer.known.tcp && peer.is_ours(); }
    void dial_tcp_due(Time now);
    void tcp_failed(Peer& peer, const std::string& why, Time now);
    void carries(Peer& peer, const Opened& opened, Time now);
    void start_quic(Peer& peer, bool tcp_first, Duration pace, Time now);
    void redial_tcp(Peer& peer, const Closed& closed, Time now, Time from);
    void forget_reasons(Peer& peer);
    std::string carrier_why(const Peer& peer) const;
    std::string not_tcp_why(const Peer& peer) const;
    void push_state(const Peer& peer, std::string why = {});
    void redial(const Peer& peer, Duration rtt, Time now, Time from);
    Peer* find(const NodeId& node);

    BulkConfig config_;
    link::Mesh* mesh_;
    Carrier* tcp_;  // null: QUIC only
    BulkWatch watch_;
    Channels channels_;
    DialSchedule schedule_;      // of the nodes in by_node_
    DialSchedule tcp_schedule_;  // of the same, over TCP
    std::map<link::PeerIndex, Peer> peers_;
    std::map<NodeId, link::PeerIndex> by_node_;  // the incarnation announced last
    std::multimap<NodeId, Opened> waiting_;      // of incarnations that are not announced yet
    // By ask_all(), and not acknowledged yet: the bytes of Class::control written before the question.
    std::map<link::PeerIndex, uint64_t> asked_;
    std::set<ConnectionId> old_dials_;  // that were in flight when this node's certificate was renewed
    std::deque<BulkState> events_;
};

}  // namespace nexar::connections
