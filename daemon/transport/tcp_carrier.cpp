// See tcp_carrier.hpp.
#include "transport/tcp_carrier.hpp"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "tcp/plain_stream.hpp"
#include "tcp/tls_stream.hpp"

namespace nexar::transport {
namespace {

constexpr uint64_t listener_id = 0;
// Ids of two carriers of one owner differ (connections/carrier.hpp).
constexpr uint64_t id_base = uint64_t{1} << 63;
constexpr WallSeconds certificate_look_seconds = 3600;
constexpr const char* not_watched = "the kernel has no room to watch its socket";

constexpr connections::ConnectionId public_id(uint64_t id) {
    return connections::ConnectionId(id_base | id);
}

// As it passes in a turn.
Duration time_now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return std::chrono::seconds(t.tv_sec) + Duration{t.tv_nsec};
}

}  // namespace

class TcpCarrier::Conn final : public connections::CarriedConnection, private tcp::ByteReceiver {
  public:
    Conn(TcpCarrier& carrier, uint64_t number, TcpSocket wire, const quic::Address& other)
        : id(number), socket(std::move(wire)), remote(other), carrier_(&carrier) {}

    // ---- The carrier's.
    const uint64_t id;
    TcpSocket socket;
    const quic::Address remote;
    std::unique_ptr<tcp::Connection> machine;  // null: it is being connected, or nothing was read yet
    std::optional<tcp::Connection::Dial> dialled;
    bool connecting = false;
    bool connected = false;  // reported
    bool closed = false;     // reported, or never to be
    bool lingers = false;
    bool is_touched = false, is_unread = false;
    bool is_full = false;      // the kernel took less than it was given, and has not reported room since
    bool was_refused = false;  // room, as the turn's share is spent
    uint32_t interest = 0;
    std::string failure;  // of the dial, or of watching its socket
    Duration round_trip{};
    uint64_t received = 0;  // bytes, when on_received() was reported last
    std::optional<Time> ack_at;
    Time rate_at{};        // when to look at the socket's rate again
    size_t discarded = 0;  // bytes, since it lingers

    // ---- connections::CarriedConnection
    size_t room(Class cls) const override;
    void write(Class cls, std::span<const Bytes> parts) override {
        const uint64_t before = machine->write_work();
        machine->write(cls, parts);
        carrier_->writing_.spend(machine->write_work() - before);
        carrier_->touch(*this);
    }
    connections::Progress progress(Class cls) const override {
        return {machine->written(cls), machine->acknowledged(cls)};
    }
    void close(uint64_t code, const std::string& reason) override {
        machine->close(code, reason);
        carrier_->touch(*this);
    }
    void hold_credit(bool held) override {
        machine->hold_credit(held);
        carrier_->read_again(*this);
    }
    void set_receiver(connections::Receiver* receiver) override {
        receiver_ = receiver;
        machine->set_receiver(receiver ? this : nullptr);
        carrier_->read_again(*this);
    }
    Duration rtt() const override { return round_trip; }
    connections::CarrierKind kind() const override {
        return machine->mode() == tcp::Mode::tls ? connections::CarrierKind::tcp
                                                 : connections::CarrierKind::tcp_plain;
    }

  private:
    void on_bytes(Class cls, Bytes bytes) override {
        if (receiver_) receiver_->on_bytes(cls, bytes);
    }
    MutableBytes place(Class cls) override { return receiver_ ? receiver_->place(cls) : MutableBytes(); }
    void placed(Class cls, size_t bytes) override { receiver_->placed(cls, bytes); }
    TcpCarrier* carrier_;
    connections::Receiver* receiver_ = nullptr;
};

// Nothing but what is short and must not wait leaves beyond the share.
size_t TcpCarrier::Conn::room(Class cls) const {
    if (cls == Class::control || carrier_->writing_.left > 0) return machine->room(cls);
    carrier_->refuse(id);
    return 0;
}

void TcpCarrier::refuse(uint64_t id) {
    Conn& conn = *find(id);
    conn.was_refused = true;
    touch(conn);
}

Result<std::unique_ptr<TcpCarrier>> TcpCarrier::open(Options options, const quic::Identity& identity,
                                                     quic::Verifier verifier) {
    std::unique_ptr<TcpCarrier> out(new TcpCarrier(std::move(options), std::move(verifier)));
    NEXAR_TRY_VOID(out->start(identity));
    return out;
}

TcpCarrier::TcpCarrier(Options options, quic::Verifier verifier)
    : options_(std::move(options)), verifier_(std::move(verifier)) {
    shared_.self = options_.self;
    shared_.incarnation = options_.incarnation;
    shared_.shard = options_.shard;
    shared_.keys = this;
    shared_.random = quic::secure_random();
}

TcpCarrier::~TcpCarrier() {
    conns_.clear();
    if (epoll_ >= 0) ::close(epoll_);
}

Result<> TcpCarrier::start(const quic::Identity& identity) {
    NEXAR_TRY_VOID(set_identity(identity));
    NEXAR_TRY(listener_, TcpListener::open(options_.listen));
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return fail(Errc::io, "epoll: no descriptor is left");
    if (!watch_listener()) return fail(Errc::io, "epoll: the kernel has no room for the listener");
    return {};
}

Result<> TcpCarrier::set_identity(const quic::Identity& identity) {
    quic::Config config;
    config.alpns = {std::string(tcp::alpn_bulk)};
    config.wall_clock = options_.wall_clock;
    NEXAR_TRY(tls_, quic::TlsContext::make(identity, config, verifier_));
    return {};
}

void TcpCarrier::set_peer(Time now, const Peer& peer) {
    PeerEntry& entry = peers_[peer.node];
    entry.keys.add(peer.incarnation, peer.key);
    entry.plain = peer.plain;
    for (const uint64_t id : std::exchange(keyless_, {})) {  // at most as many as may be half open
        Conn* conn = find(id);
        if (!conn || !conn->machine->waits_for_key()) continue;
        conn->machine->on_keys(now);
        if (conn->machine->waits_for_key()) keyless_.insert(id);
        touch(*conn);
        read_again(*conn);
    }
}

void TcpCarrier::forget_peer(const NodeId& node, const Incarnation& incarnation) {
    const auto at = peers_.find(node);
    if (at != peers_.end() && at->second.keys.incarnation == incarnation) peers_.erase(at);
}

const tcp::AttachKeys* TcpCarrier::keys_of(const NodeId& node) const {
    const auto at = peers_.find(node);
    return at == peers_.end() ? nullptr : &at->second.keys;
}

TcpCarrier::Conn* TcpCarrier::find(uint64_t id) const {
    const auto at = conns_.find(id);
    return at == conns_.end() ? nullptr : at->second.get();
}

TcpCarrier::Conn& TcpCarrier::add(TcpSocket socket, const quic::Address& remote) {
    const uint64_t id = next_id_++;
    Conn& conn = *(conns_[id] = std::make_unique<Conn>(*this, id, std::move(socket), remote));
    epoll_event event{0, {.u64 = id}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, conn.socket.fd(), &event) != 0) {
        conn.failure = not_watched;
        touch(conn);
    }
    return conn;
}

void TcpCarrier::touch(Conn& conn) {
    if (!std::exchange(conn.is_touched, true)) touched_.push_back(conn.id);
}

void TcpCarrier::read_again(Conn& conn) {
    if (!std::exchange(conn.is_unread, true)) unread_.push_back(conn.id);
}

// ---- Dialling and accepting

Result<connections::ConnectionId> TcpCarrier::dial(Time now, const std::string& address,
                                                   const std::optional<NodeId>& expected) {
    NEXAR_TRY(const quic::Address remote, quic::Address::parse(address));
    const auto peer = peers_.find(expected.value_or(NodeId{}));
    if (peer == peers_.end()) return nexar::fail(Errc::bad_state, "no control connection to that node");
    NEXAR_TRY(auto socket, TcpSocket::connect(options_.listen, remote));
    Conn& conn = add(std::move(socket), remote);
    conn.dialled = {peer->first, peer->second.plain ? tcp::Mode::plain : tcp::Mode::tls};
    conn.connecting = true;
    dials_.emplace_back(now + dial_patience, conn.id);
    watch(conn);
    return public_id(conn.id);
}

void TcpCarrier::accept(Time now) {
    for (size_t i = 0; i < accepts_per_turn; ++i) {
        auto accepted = listener_->accept();
        if (!accepted && listener_->is_short()) pause_accepting(now);
        if (!accepted) return;
        if (std::exchange(pause_reported_, false)) accept_news_ = false;
        if (const auto evicted = half_open_.add(now, next_id_, accepted->remote))
            if (Conn* victim = find(*evicted)) drop(*victim);
        watch(add(std::move(accepted->socket), accepted->remote));
    }
}

bool TcpCarrier::watch_listener() {
    epoll_event event{EPOLLIN, {.u64 = listener_id}};
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_->fd(), &event) == 0;
}

// The listener stays readable, and must not keep the thread awake. To be watched no more takes no memory, as
// another set of events might.
void TcpCarrier::pause_accepting(Time now) {
    accept_at_ = now + accept_pause;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_->fd(), nullptr);
    if (pause_reported_ || now < report_at_) return;
    report_at_ = now + accept_report_interval;
    pause_reported_ = true;
    accept_news_ = true;
}

// The first byte distinguishes TLS (0x16) from the plain kind; what is neither fails in either.
void TcpCarrier::begin(Conn& conn) {
    tcp::Mode mode = tcp::Mode::tls;
    if (conn.dialled) {
        mode = conn.dialled->mode;
    } else {
        const auto first = conn.socket.peek();
        if (first.state == tcp::ByteWire::State::blocked) return;
        if (first.state != tcp::ByteWire::State::moved) return drop(conn);
        half_open_.has_sent(conn.id);
        if (options_.plain && first.byte == tcp::PlainStream::magic[0]) mode = tcp::Mode::plain;
    }
    std::unique_ptr<tcp::Stream> stream;
    const bool dials = conn.dialled.has_value();
    if (mode == tcp::Mode::plain)
        stream = std::make_unique<tcp::PlainStream>(conn.socket, dials);
    else
        stream = std::make_unique<tcp::TlsStream>(conn.socket, tls_, dials,
                                                  dials ? std::optional(conn.dialled->node) : std::nullopt);
    conn.machine = std::make_unique<tcp::Connection>(shared_, std::move(stream), mode, conn.dialled);
}

// ---- A turn

bool TcpCarrier::receive(Time now, connections::CarrierEvents& events) {
    std::array<epoll_event, 64> ready;
    const int n = ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
    bool work = n > 0 || !unread_.empty();
    reading_.left = options_.turn_bytes;
    const auto unread = std::exchange(unread_, {});
    auto next = unread.begin();
    for (; next != unread.end() && reading_.left > 0; ++next) {
        Conn* conn = find(*next);
        if (!conn) continue;
        conn->is_unread = false;
        read(now, *conn, events);
    }
    unread_.insert(unread_.begin(), next, unread.end());
    for (int i = 0; i < n; ++i)
        on_ready(now, ready[static_cast<size_t>(i)].data.u64, ready[static_cast<size_t>(i)].events, events);
    on_time(now);
    return work;
}

void TcpCarrier::on_ready(Time now, uint64_t id, uint32_t ready, connections::CarrierEvents& events) {
    if (id == listener_id) return accept(now);
    Conn* conn = find(id);
    if (!conn) return;
    if (conn->lingers) {
        if ((ready & EPOLLOUT) != 0) {  // also where more comes without end
            conn->is_full = false;
            touch(*conn);
        }
        if ((ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) discard(*conn);
        return;
    }
    if (conn->connecting) {
        conn->connecting = false;
        if (auto why = conn->socket.connect_error()) {
            conn->failure = std::move(*why);
            return touch(*conn);
        }
        conn->round_trip = conn->socket.rtt();
        ready |= EPOLLIN;  // the dialler speaks first
    }
    if ((ready & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
        conn->is_full = false;
        touch(*conn);
    }
    if ((ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || conn->is_unread) return;
    if ((ready & (EPOLLHUP | EPOLLERR)) != 0 && conn->machine && !conn->machine->wants_readable())
        conn->machine->on_broken();
    read(now, *conn, events);
}

// A close arrives only where what the peer has sent is read; one that never attached is owed little of that.
void TcpCarrier::discard(Conn& conn) {
    if (reading_.left == 0) return;  // epoll reports it again
    const auto bytes = conn.socket.discard(std::min(quantum, reading_.left));
    conn.discarded += bytes.value_or(0);
    reading_.spend(bytes.value_or(0));
    if (!bytes || (!conn.connected && conn.discarded >= discarded_max)) drop(conn);
}

// False: its bytes wait for the next interval, as all of the share is spent.
bool TcpCarrier::may_shake_hands(Time now, Conn& conn) {
    if (handshakes_until_ <= now) {
        handshake_time_ = std::max(Duration{}, handshake_time_ - options_.handshake_share);
        handshakes_until_ = now + handshake_interval;
    }
    if (handshake_time_ < options_.handshake_share) return true;
    if (!std::exchange(conn.is_unread, true)) handshakes_wait_.push_back(conn.id);
    return false;
}

void TcpCarrier::read(Time now, Conn& conn, connections::CarrierEvents& events) {
    if (conn.connecting || conn.lingers || !conn.failure.empty()) return;
    if (reading_.left == 0) return read_again(conn);
    const uint64_t id = conn.id;
    const bool is_counted = options_.handshake_share > Duration{} && !conn.dialled && !conn.connected;
    if (is_counted && !may_shake_hands(now, conn)) return;
    const Duration began = is_counted ? time_now() : Duration{};
    if (!conn.machine) begin(conn);
    if (!find(id) || !conn.machine) return;
    const uint64_t before = conn.machine->read_work();
    const bool has_more = conn.machine->on_readable(now, std::min(quantum, reading_.left));
    reading_.spend(conn.machine->read_work() - before);
    if (is_counted) handshake_time_ += time_now() - began;
    if (has_more) read_again(conn);
    report(conn, now, events);
    touch(conn);
}

// What has changed, for the owner: connected, or received.
void TcpCarrier::report(Conn& conn, Time now, connections::CarrierEvents& events) {
    tcp::Connection& machine = *conn.machine;
    if (machine.is_open() && !machine.ended() && !std::exchange(conn.connected, true)) {
        half_open_.remove(conn.id);
        if (!conn.dialled) conn.round_trip = conn.socket.rtt();
        note_certificate(now, machine);
        events.on_connected(
            now, {public_id(conn.id), machine.peer(), conn.remote.text(), conn.dialled.has_value()}, conn);
    }
    if (conn.connected && machine.received_bytes() != conn.received && !machine.ended()) {
        conn.received = machine.received_bytes();
        events.on_received(public_id(conn.id));
    }
    if (machine.waits_for_key()) keyless_.insert(conn.id);
    note_ack(conn);
}

void TcpCarrier::note_ack(Conn& conn) {
    const Time at = conn.machine->ack_at();
    if (conn.ack_at == at) return;
    if (conn.ack_at) acks_.erase({*conn.ack_at, conn.id});
    conn.ack_at.reset();
    if (at == never) return;
    conn.ack_at = at;
    acks_.emplace(at, conn.id);
}

bool TcpCarrier::flush(Time now, connections::CarrierEvents& events) {
    while (!acks_.empty() && acks_.begin()->first <= now) {
        Conn* conn = find(acks_.begin()->second);
        acks_.erase(acks_.begin());
        if (!conn) continue;
        conn->ack_at.reset();
        touch(*conn);
    }
    bool more = false;
    writing_.left = options_.turn_bytes;
    const auto touched = std::exchange(touched_, {});
    auto next = touched.begin();
    for (; next != touched.end() && writing_.left > 0; ++next) {
        Conn* conn = find(*next);
        if (!conn) continue;
        conn->is_touched = false;
        more |= flush(now, *conn, events);
    }
    touched_.insert(touched_.begin(), next, touched.end());
    return more || next != touched.end();
}

// True: there is more to do at once.
bool TcpCarrier::flush(Time now, Conn& conn, connections::CarrierEvents& events) {
    bool more = false;
    // Full, unless the machine waits for room no more: its handshake flushes by itself.
    if (conn.machine && !conn.connecting && !(conn.is_full && conn.machine->wants_writable())) {
        const bool had = std::exchange(conn.was_refused, false) || conn.machine->has_unsent() ||
                         conn.machine->wrote_directly();
        if (had && conn.rate_at <= now) {
            conn.rate_at = now + rate_interval;
            conn.machine->allow_direct(conn.socket.limit_unsent() >= direct_from);
        }
        const uint64_t before = conn.machine->write_work();
        if (conn.machine->flush(now, std::min(quantum, writing_.left))) {
            touch(conn);
            more = true;
        }
        writing_.spend(conn.machine->write_work() - before);
        conn.is_full = conn.machine->wants_writable();
        if (conn.is_full && conn.socket.is_short()) short_.emplace_back(now + short_pause, conn.id);
        if (conn.connected && !conn.machine->ended() && had) {
            events.on_room(public_id(conn.id));
            more |= !conn.machine->wants_writable();
        }
        note_ack(conn);
    }
    if ((!conn.machine || !conn.machine->ended()) && conn.failure.empty()) {
        watch(conn);
        return more;
    }
    const bool is_news = !conn.closed;
    end(now, conn, events);
    return more || is_news;
}

// Reports the end once; then the connection lingers until the peer has received it, or goes.
void TcpCarrier::end(Time now, Conn& conn, connections::CarrierEvents& events) {
    half_open_.remove(conn.id);
    connections::ClosedBy why{0, conn.failure, {}, false};
    if (conn.failure.empty() && conn.machine && conn.machine->ended()) {
        const tcp::Ended& ended = *conn.machine->ended();
        why = {ended.code, ended.cause, ended.reason, ended.by_peer};
    }
    if (!std::exchange(conn.closed, true) && (conn.connected || conn.dialled))
        events.on_closed(now, public_id(conn.id), why);
    if (!conn.machine || !conn.machine->ended() || !conn.machine->ended()->is_ours) return drop(conn);
    if (!std::exchange(conn.lingers, true)) {
        lingering_.emplace_back(now + linger, conn.id);
        if (lingering_.size() > lingering_max) {
            Conn& displaced = displaced_lingerer();
            const bool is_this = &displaced == &conn;
            drop(displaced);
            if (is_this) return;
        }
    }
    if (conn.machine->is_done()) conn.socket.end_sending();
    watch(conn);
}

// Unidentified peers end connections in any number; that displaces no member's, whose end has a reason.
TcpCarrier::Conn& TcpCarrier::displaced_lingerer() const {
    const auto unidentified =
        std::ranges::find_if(lingering_, [this](const auto& row) { return !find(row.second)->connected; });
    return *find((unidentified != lingering_.end() ? *unidentified : lingering_.front()).second);
}

void TcpCarrier::drop(Conn& conn) {
    const uint64_t id = conn.id;
    half_open_.remove(id);
    keyless_.erase(id);
    if (conn.ack_at) acks_.erase({*conn.ack_at, id});
    std::erase_if(lingering_, [id](const auto& row) { return row.second == id; });
    conns_.erase(id);
}

void TcpCarrier::watch(Conn& conn) {
    const bool is_short = conn.is_full && conn.socket.is_short();  // tried again by time
    uint32_t want = 0;
    if (conn.connecting)
        want = EPOLLOUT;
    else if (conn.lingers)
        want = EPOLLIN | (conn.machine->has_unsent() && !is_short ? EPOLLOUT : 0u);
    else
        want = (!conn.machine || conn.machine->wants_readable() ? EPOLLIN : 0u) |
               (conn.machine && conn.machine->wants_writable() && !is_short ? EPOLLOUT : 0u);
    if (want == conn.interest) return;
    epoll_event event{want, {.u64 = conn.id}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, conn.socket.fd(), &event) == 0) {
        conn.interest = want;
    } else if (!conn.lingers && conn.failure.empty()) {  // one that lingers goes by its time
        conn.failure = not_watched;
        touch(conn);
    }
}

// ---- Time

void TcpCarrier::on_time(Time now) {
    while (const auto id = half_open_.overdue(now))
        if (Conn* conn = find(*id)) {
            if (!conn->machine) {
                drop(*conn);
            } else {
                conn->machine->close(static_cast<uint64_t>(tcp::CloseCode::too_late),
                                     conn->machine->waits_for_key()
                                         ? "this node has no such control connection to you"
                                         : "not attached within 5 s");
                touch(*conn);
            }
        }
    for (; !dials_.empty() && dials_.front().first <= now; dials_.pop_front()) {
        Conn* conn = find(dials_.front().second);
        if (!conn || conn->connected || conn->closed) continue;
        conn->failure = "tcp not answered";
        if (conn->machine)
            conn->machine->close(static_cast<uint64_t>(tcp::CloseCode::too_late), conn->failure);
        conn->connecting = false;
        touch(*conn);
    }
    while (!lingering_.empty() && lingering_.front().first <= now) {
        Conn* conn = find(lingering_.front().second);
        if (conn)
            drop(*conn);
        else
            lingering_.pop_front();
    }
    for (; !short_.empty() && short_.front().first <= now; short_.pop_front())
        if (Conn* conn = find(short_.front().second)) {
            conn->is_full = false;
            touch(*conn);
        }
    if (!handshakes_wait_.empty() && handshakes_until_ <= now)
        for (const uint64_t waiting : std::exchange(handshakes_wait_, {}))
            if (Conn* conn = find(waiting)) {
                conn->is_unread = false;
                read_again(*conn);
            }
    if (accept_at_ <= now) accept_at_ = watch_listener() ? never : now + accept_pause;
    if (certificates_at_ <= now) end_old_certificates(now);
}

void TcpCarrier::note_certificate(Time now, const tcp::Connection& machine) {
    const auto end = machine.peer_valid_until();
    if (!end || !options_.wall_clock) return;
    const WallSeconds left =
        std::clamp<WallSeconds>(*end + 1 - options_.wall_clock(), 1, certificate_look_seconds);
    certificates_at_ = std::min(certificates_at_, now + std::chrono::seconds(left));
}

void TcpCarrier::end_old_certificates(Time now) {
    certificates_at_ = never;
    const WallSeconds wall = options_.wall_clock();
    for (const auto& [id, conn] : conns_) {
        if (!conn->connected || conn->closed) continue;
        if (const auto end = conn->machine->peer_valid_until(); end && *end < wall) {
            conn->machine->close(static_cast<uint64_t>(tcp::CloseCode::certificate_ended),
                                 "the certificate that you showed has ended");
            touch(*conn);
        } else {
            note_certificate(now, *conn->machine);
        }
    }
}

void TcpCarrier::close_all(uint64_t code, const std::string& reason) {
    for (const auto& [id, conn] : conns_) {
        if (conn->machine) conn->machine->close(code, reason);
        touch(*conn);
    }
}

Time TcpCarrier::wake_at() const {
    if (!unread_.empty() || !touched_.empty()) return Time{};
    Time at = std::min({half_open_.wake_at(), certificates_at_, accept_at_});
    if (!handshakes_wait_.empty()) at = std::min(at, handshakes_until_);
    if (!acks_.empty()) at = std::min(at, acks_.begin()->first);
    if (!dials_.empty()) at = std::min(at, dials_.front().first);
    if (!short_.empty()) at = std::min(at, short_.front().first);
    if (!lingering_.empty()) at = std::min(at, lingering_.front().first);
    return at;
}

}  // namespace nexar::transport
