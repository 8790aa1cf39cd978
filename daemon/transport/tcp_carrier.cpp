// See tcp_carrier.hpp.
#include "transport/tcp_carrier.hpp"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tcp/plain_stream.hpp"
#include "tcp/tls_stream.hpp"
#include "transport/tcp_carrier_conn.hpp"

namespace nexar::transport {
namespace {

constexpr uint64_t listener_id = 0;
// Ids of two carriers of one owner differ (connections/carrier.hpp).
constexpr uint64_t id_base = uint64_t{1} << 63;
constexpr const char* not_watched = "the kernel has no room to watch its socket";

constexpr connections::ConnectionId public_id(uint64_t id) {
    return connections::ConnectionId(id_base | id);
}

// CLOCK_MONOTONIC, as it passes in a turn; CLOCK_THREAD_CPUTIME_ID stands still while the thread does.
Duration time_of(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return std::chrono::seconds(t.tv_sec) + Duration{t.tv_nsec};
}

}  // namespace

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
    : options_(std::move(options)),
      verifier_(std::move(verifier)),
      handshakes_(options_.handshake_share, handshake_interval) {
    shared_.self = options_.self;
    shared_.incarnation = options_.incarnation;
    shared_.shard = options_.shard;
    shared_.reads_far = options_.reads_far;
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
    const bool is_newer = entry.keys.add(peer.incarnation, peer.key);
    entry.plain = peer.plain;
    const Conn* dial = find(entry.dial);
    if (is_newer && dial && dial->machine && dial->machine->waits_for_answer())
        overtaken_.emplace_back(now + overtaken_patience, dial->id);
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
    peer->second.dial = conn.id;
    watch(conn);
    return public_id(conn.id);
}

void TcpCarrier::accept(Time now) {
    bool made_room = false;  // and nobody was accepted since: the shortage may be another's
    for (size_t i = 0; i < accepts_per_turn; ++i) {
        auto accepted = listener_->accept();
        // Without a descriptor the kernel does not look whether anybody waits.
        if (!accepted && listener_->is_short() && listener_->has_waiting()) {
            if (std::exchange(made_room, true) || !make_room(now)) return pause_accepting(now);
            continue;
        }
        if (!accepted) break;
        made_room = false;
        if (const auto evicted = half_open_.add(now, next_id_, accepted->remote))
            if (Conn* victim = find(*evicted)) drop(*victim);
        watch(add(std::move(accepted->socket), accepted->remote));
    }
    if (!pause_reported_ || listener_->has_waiting()) return;
    pause_reported_ = false;
    accept_news_ = false;
}

bool TcpCarrier::make_room(Time now) {
    const auto evicted = half_open_.make_room(now);
    if (!evicted) return false;
    if (Conn* victim = find(*evicted)) drop(*victim);
    return true;
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

// False: nothing has come, or it is gone. Who waits for the share has sent something [B5].
bool TcpCarrier::has_first_byte(Conn& conn) {
    if (conn.has_sent) return true;
    const auto first = conn.socket.peek();
    if (first.state == tcp::ByteWire::State::blocked) return false;
    if (first.state != tcp::ByteWire::State::moved) return drop(conn), false;
    half_open_.has_sent(conn.id);
    conn.first = first.byte;
    return conn.has_sent = true;
}

// The first byte distinguishes TLS (0x16) from the plain kind; what is neither fails in either.
void TcpCarrier::begin(Conn& conn) {
    tcp::Mode mode = tcp::Mode::tls;
    if (conn.dialled)
        mode = conn.dialled->mode;
    else if (options_.plain && conn.first == tcp::PlainStream::magic[0])
        mode = tcp::Mode::plain;
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
    std::array<epoll_event, 64> room;
    const int n = ::epoll_wait(epoll_, room.data(), static_cast<int>(room.size()), 0);
    const auto ready = std::span(room).first(static_cast<size_t>(std::max(n, 0)));
    admit_handshakes(now);
    const bool work = !ready.empty() || !unread_.empty();
    reading_.left = options_.turn_bytes;
    // The less often a turn ends, the less is spent on what else is in it.
    quantum_read_ = plan_reads(ready) == 1 ? quantum_alone : quantum;
    const auto unread = std::exchange(unread_, {});
    auto next = unread.begin();
    for (; next != unread.end() && reading_.left > 0; ++next) {
        Conn* conn = find(*next);
        if (!conn) continue;
        conn->is_unread = false;
        read(now, *conn, events);
    }
    unread_.insert(unread_.begin(), next, unread.end());
    for (const epoll_event& event : ready) on_ready(now, event.data.u64, event.events, events);
    on_time(now);
    return work;
}

// One that is in unread_ is read from there only: once in a turn. How many there are to read.
size_t TcpCarrier::plan_reads(std::span<epoll_event> ready) {
    size_t count = unread_.size();
    for (epoll_event& event : ready) {
        const Conn* const conn = find(event.data.u64);
        if (conn && conn->is_unread)
            event.events &= ~static_cast<uint32_t>(EPOLLIN);
        else
            ++count;
    }
    return count;
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
    const bool is_idle = conn->waits || (conn->machine && conn->machine->waits_for_key());
    if (is_idle && (ready & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) return drop(*conn);  // [B10]
    if ((ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || conn->is_unread) return;
    if ((ready & (EPOLLHUP | EPOLLERR)) != 0 && conn->machine && !conn->machine->wants_readable())
        conn->machine->on_broken();
    read(now, *conn, events);
}

// A close arrives only where what the peer has sent is read; one that never attached is owed little of that.
void TcpCarrier::discard(Conn& conn) {
    const auto bytes = conn.socket.discard(std::clamp(reading_.left, discarded_at_least, quantum));
    conn.discarded += bytes.value_or(0);
    reading_.spend(bytes.value_or(0));
    if (!bytes || (!conn.connected && conn.discarded >= discarded_max)) drop(conn);
}

// False: it waits until the share allows more.
bool TcpCarrier::may_shake_hands(Time now, Conn& conn) {
    if (handshakes_.allows(now)) return true;
    if (std::exchange(conn.waits, true)) return false;
    handshakes_wait_.push_back(conn.id);
    watch(conn);
    return false;
}

// Who has begun is first: what was spent on it would be lost if newcomers took the share again and again.
void TcpCarrier::admit_handshakes(Time now) {
    if (handshakes_wait_.empty() || !handshakes_.allows(now)) return;
    const auto waiting = std::exchange(handshakes_wait_, {});
    for (const bool has_begun : {true, false})
        for (const uint64_t id : waiting) {
            Conn* conn = find(id);
            if (!conn || !conn->waits || (conn->machine != nullptr) != has_begun) continue;
            conn->waits = false;
            read_again(*conn);
            touch(*conn);  // it is watched again
        }
}

void TcpCarrier::read(Time now, Conn& conn, connections::CarrierEvents& events) {
    if (conn.connecting || conn.lingers || conn.waits || !conn.failure.empty()) return;
    if (reading_.left == 0) return read_again(conn);
    const bool is_newcomer = !conn.dialled && !conn.connected;
    if (is_newcomer && (!has_first_byte(conn) || !may_shake_hands(now, conn))) return;
    const Duration began = is_newcomer ? time_of(CLOCK_THREAD_CPUTIME_ID) : Duration{};
    if (!conn.machine) begin(conn);
    read_slices(now, conn);
    if (is_newcomer) handshakes_.take(time_of(CLOCK_THREAD_CPUTIME_ID) - began);
    report(conn, now, events);
    touch(conn);
}

// A quantum, and no more than the turn has left.
void TcpCarrier::read_slices(Time now, Conn& conn) {
    Share quantum_of_turn{std::min(quantum_read_, reading_.left)};
    bool has_more = true;
    for (Duration began = time_of(CLOCK_MONOTONIC); has_more && quantum_of_turn.left > 0;) {
        const uint64_t before = conn.machine->read_work();
        has_more = conn.machine->on_readable(now, std::min(slice, quantum_of_turn.left));
        const Duration end = time_of(CLOCK_MONOTONIC);
        const auto taken = static_cast<uint64_t>((end - std::exchange(began, end)).count());
        quantum_of_turn.spend(std::max(conn.machine->read_work() - before, taken));
        reading_.spend(std::max(conn.machine->read_work() - before, taken));
    }
    if (has_more) read_again(conn);
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
    if (accept_at_ != never) accept_at_ = Time{};  // its descriptor is a newcomer's, in the next turn
}

void TcpCarrier::watch(Conn& conn) {
    const bool is_short = conn.is_full && conn.socket.is_short();  // tried again by time
    uint32_t want = 0;
    if (conn.connecting)
        want = EPOLLOUT;
    else if (conn.waits && !conn.lingers)
        want = 0;
    else if (conn.lingers)
        want = EPOLLIN | (conn.machine->has_unsent() && !is_short ? EPOLLOUT : 0u);
    else
        want = (!conn.machine || conn.machine->wants_readable() ? EPOLLIN : 0u) |
               (conn.machine && conn.machine->wants_writable() && !is_short ? EPOLLOUT : 0u);
    // Of a connection that is not read nothing else reports the peer's end, which unread bytes may precede.
    if (!conn.dialled && !conn.connected && !conn.lingers) want |= EPOLLRDHUP;
    if (want == conn.interest) return;
    epoll_event event{want, {.u64 = conn.id}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, conn.socket.fd(), &event) == 0) {
        conn.interest = want;
    } else if (!conn.lingers && conn.failure.empty()) {  // one that lingers goes by its time
        conn.failure = not_watched;
        touch(conn);
    }
}

}  // namespace nexar::transport
