// Endpoint: routes packets to connections, accepts and dials, turns changes of connections into events.
#include "quic/endpoint.hpp"

#include <ngtcp2/ngtcp2.h>

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "quic/initial.hpp"

namespace nexar::quic {

namespace {

// ngtcp2 subtracts durations from timestamps: an offset keeps them above zero, where a simulation begins.
constexpr uint64_t ts_offset = 3600ull * 1'000'000'000;
constexpr WallSeconds certificate_look_seconds = 3600;

size_t connections_of_site(const std::vector<Connection*>& list, const Address& remote) {
    return static_cast<size_t>(std::count_if(
        list.begin(), list.end(), [&](const Connection* c) { return c->remote().same_site(remote); }));
}

}  // namespace

size_t Endpoint::KeyHash::operator()(const Connection::Key& key) const noexcept {
    // A dialler chooses its first id: without the secret it could choose collisions.
    uint64_t words[3] = {};
    std::memcpy(words, key.bytes.data(), key.bytes.size());
    uint64_t x = secret + key.size;
    for (uint64_t w : words) {
        x = (x ^ w) * 0xbf58476d1ce4e5b9u;
        x ^= x >> 29;
    }
    return static_cast<size_t>(x * 0x94d049bb133111ebu);
}

Result<std::unique_ptr<Endpoint>> Endpoint::make(Config config, const Identity& identity, Verifier verifier,
                                                 RandomSource random,
                                                 std::optional<std::array<std::byte, 32>> reset_secret) {
    std::unique_ptr<Endpoint> out(new Endpoint(std::move(config), std::move(random)));
    out->verifier_ = std::move(verifier);
    if (reset_secret) out->shared_.reset_secret = *reset_secret;
    NEXAR_TRY_VOID(out->set_identity(identity));
    return out;
}

Endpoint::Endpoint(Config config, RandomSource random)
    : shared_{std::move(config), std::move(random), {}, BlockPool{}, {}}, by_key_(16, KeyHash{0}) {
    uint64_t hash_secret = 0;
    shared_.random(std::as_writable_bytes(std::span(&hash_secret, 1)));
    by_key_ = decltype(by_key_)(64, KeyHash{hash_secret});
    shared_.random(shared_.reset_secret);
    shared_.random(token_secret_);
}

Endpoint::~Endpoint() = default;

Result<> Endpoint::set_identity(const Identity& identity) {
    NEXAR_TRY(tls_, TlsContext::make(identity, shared_.config, verifier_));
    return {};
}

// Ensures: time never goes backwards for a connection. ngtcp2 aborts otherwise.
uint64_t Endpoint::advance(Time now) {
    now_ = std::max(now_, now);
    return static_cast<uint64_t>(now_.time_since_epoch().count()) + ts_offset;
}

Connection& Endpoint::add(const Address& local, const Address& remote, std::string alpn,
                          std::optional<NodeId> expected) {
    const uint64_t id = next_id_++;
    auto made = std::unique_ptr<Connection>(
        new Connection(shared_, ConnId(id), tls_, std::move(alpn), expected, local, remote));
    made->now_ = made->last_received_at_ = now_;
    by_remote_.emplace(remote, made.get());
    return *(connections_[id] = std::move(made));
}

Result<ConnId> Endpoint::connect(Time now, const Address& local, const Address& remote, std::string_view alpn,
                                 std::optional<NodeId> expected) {
    const uint64_t ts = advance(now);
    reap();
    if (remote.family == 0 || remote.port == 0 || local.family != remote.family)
        return fail(Errc::invalid_argument, "cannot dial " + remote.text() + " from " + local.text() +
                                                ": both must be IPv4 or both IPv6, with a port");
    if (alpn.empty() || alpn.size() > 255)
        return fail(Errc::invalid_argument,
                    "protocol name: " + std::to_string(alpn.size()) + " bytes; allowed are 1 to 255");
    if (alpn != alpn_join && !tls_->has_certificate() && !shared_.config.sabotage.dial_without_certificate)
        return fail(Errc::bad_certificate, "this node has no certificate yet: it can only dial to join");
    if (connections_.size() >= shared_.config.connections_max)
        return fail(Errc::table_full,
                    std::to_string(shared_.config.connections_max) + " connections exist already");
    Connection& c = add(local, remote, std::string(alpn), expected);
    const ConnId id = c.id();
    if (!c.start_client(ts)) {
        c.state_ = Connection::State::gone;
        touch(c);
        return fail(Errc::no_memory, "the QUIC library cannot begin a connection");
    }
    touch(c);
    return id;
}

Connection* Endpoint::find(ConnId id) {
    const auto found = connections_.find(id.value);
    return found == connections_.end() || found->second->end_announced_ ? nullptr : found->second.get();
}

void Endpoint::close_all(uint64_t code, std::string_view reason) {
    for (auto& [id, c] : connections_) {
        c->close(code, reason);
        touch(*c);
    }
}

// ---- Input.

void Endpoint::on_datagram(Time now, const Address& local, const Address& remote, Bytes bytes, uint8_t ecn,
                           size_t segment) {
    const uint64_t ts = advance(now);
    reap();
    if (segment == 0) segment = bytes.size();
    while (!bytes.empty()) {
        const Bytes packet = bytes.first(std::min(segment, bytes.size()));
        route(ts, local, remote, packet, ecn);
        bytes = bytes.subspan(packet.size());
    }
}

void Endpoint::route(uint64_t ts, const Address& local, const Address& remote, Bytes packet, uint8_t ecn) {
    ngtcp2_version_cid parts;
    const int failed =
        ngtcp2_pkt_decode_version_cid(&parts, data_of(packet), packet.size(), connection_id_bytes);
    if (failed == NGTCP2_ERR_VERSION_NEGOTIATION) {
        if (shared_.config.listen && packet.size() >= NGTCP2_MAX_UDP_PAYLOAD_SIZE)
            send_versions(local, remote, parts);
        return;
    }
    if (failed != 0 || parts.dcidlen > NGTCP2_MAX_CIDLEN) {
        ++stats_.datagrams_unknown;
        return;
    }
    Connection* c = find_key(Connection::key_of(parts.dcid, parts.dcidlen));
    if (!c) {
        if (std::to_integer<unsigned>(packet[0]) & 0x80u)
            accept(ts, local, remote, packet, ecn);
        else if (!is_reset(ts, remote, packet))
            send_reset(local, remote, packet);
        return;
    }
    if (c->remote_ != remote) {
        ++stats_.datagrams_wrong_address;
        return;
    }
    c->on_packet(ts, now_, packet, ecn);
    touch(*c);
}

Connection* Endpoint::find_key(const Connection::Key& key) {
    if (last_ && key == last_key_) return last_;
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    last_key_ = key;
    return last_ = found->second;
}

// A stateless reset has a random connection id: only the token at its end names the connection (RFC 9000
// §10.3.1), and ngtcp2 compares the tokens. The connections with this peer are few.
bool Endpoint::is_reset(uint64_t ts, const Address& remote, Bytes packet) {
    auto [at, end] = by_remote_.equal_range(remote);
    for (size_t tried = 0; at != end && tried < reset_candidates_max; ++at, ++tried) {
        Connection& c = *at->second;
        if (!c.conn_ || c.ended_) continue;
        c.on_packet(ts, now_, packet, 0);
        touch(c);
        if (c.was_reset_) return true;
    }
    return false;
}

void Endpoint::forget_remote(Connection& c) {
    for (auto [at, end] = by_remote_.equal_range(c.remote_); at != end; ++at) {
        if (at->second != &c) continue;
        by_remote_.erase(at);
        return;
    }
}

bool Endpoint::make_space_for(const Address& remote) {
    const Config& config = shared_.config;
    if (connections_.size() >= config.connections_max) return false;
    if (connections_of_site(half_open_, remote) >= config.half_open_per_host_max) return false;
    return half_open_.size() < config.half_open_max || evict_for(remote, half_open_, "handshakes");
}

// Makes a place for an unidentified connection: the site that holds most of the places loses its oldest one
// to a newcomer whose site holds fewer. So a few addresses cannot exclude all others.
bool Endpoint::evict_for(const Address& newcomer, const std::vector<Connection*>& from, const char* what) {
    Connection* evicted = nullptr;
    size_t most = connections_of_site(from, newcomer);
    for (Connection* c : from) {
        const size_t held = connections_of_site(from, c->remote_);
        if (held <= most) continue;
        most = held;
        evicted = c;
    }
    if (!evicted) return false;
    evicted->end(
        {CloseInfo::Cause::refused_here, false, false, NGTCP2_CONNECTION_REFUSED,
         "too many unfinished " + std::string(what) + " from this address: another one's comes first"});
    touch(*evicted);
    return true;
}

void Endpoint::accept(uint64_t ts, const Address& local, const Address& remote, Bytes packet, uint8_t ecn) {
    ngtcp2_pkt_hd header;
    if (!shared_.config.listen || ngtcp2_accept(&header, data_of(packet), packet.size()) != 0) {
        ++stats_.datagrams_unknown;
        return;
    }
    Connection::Initial initial;
    initial.client_dcid = header.dcid;
    initial.client_scid = header.scid;
    initial.version = header.version;
    const Token token = check_token(ts, remote, header, initial);
    if (token == Token::invalid) {
        send_refusal(local, remote, header, NGTCP2_INVALID_TOKEN);
        return;
    }
    // A Retry needs no memory and proves the dialler's address; it comes before any limit that forged packets
    // could fill.
    if (token == Token::none && half_open_.size() >= shared_.config.retry_after_half_open) {
        send_retry(ts, local, remote, header);
        return;
    }
    if (!make_space_for(remote)) {
        ++stats_.handshakes_over_limit;
        send_refusal(local, remote, header, NGTCP2_CONNECTION_REFUSED);
        return;
    }
    Connection& c = add(local, remote, "", std::nullopt);
    half_open_.push_back(&c);
    if (!c.start_server(initial, ts)) {
        c.state_ = Connection::State::gone;
        touch(c);
        return;
    }
    c.on_packet(ts, now_, packet, ecn);
    touch(c);
}

void Endpoint::on_time(Time now) {
    const uint64_t ts = advance(now);
    reap();
    if (now_ >= certificates_at_) end_expired();
    while (!timers_.empty() && timers_.begin()->first <= ts) {
        Connection& c = *connections_.at(timers_.begin()->second);
        timers_.erase(timers_.begin());
        c.expiry_ = UINT64_MAX;
        c.now_ = now_;
        c.on_time(ts);
        // Some deadlines move only when a packet is written: the timer stays off until poll_send() has run.
        const bool still_due = c.expiry() <= ts;
        touch(c);
        if (still_due && c.expiry_ != UINT64_MAX) {
            timers_.erase({c.expiry_, c.id_.value});
            c.expiry_ = UINT64_MAX;
        }
    }
}

void Endpoint::on_unreachable(Time now, const Address& remote) {
    const uint64_t ts = advance(now);
    for (auto [at, end] = by_remote_.equal_range(remote); at != end; ++at) {
        Connection& c = *at->second;
        if (c.state_ == Connection::State::handshaking && c.we_dialled())
            c.close(static_cast<uint64_t>(CloseCode::unreachable), "port unreachable (ICMP)");
        c.probe(ts);
        touch(c);
    }
}

// ---- Changes of connections.

void Endpoint::touch(Connection& c) {
    for (const Connection::Key& key : c.new_keys_)
        if (by_key_.emplace(key, &c).second) c.keys_.push_back(key);
    for (const Connection::Key& key : c.old_keys_)
        if (std::erase(c.keys_, key) > 0) by_key_.erase(key), last_ = nullptr;
    c.new_keys_.clear();
    c.old_keys_.clear();

    if (c.is_open() && !c.announced_) announce(c);
    if (c.received_due_ && !c.received_event_ && c.announced_) {
        c.received_event_ = true;
        c.received_event_at_ = now_ + shared_.config.received_event_interval;
        events_.push_back(event_of(Event::Kind::received, c));
    }
    c.received_due_ = false;
    if (c.room_due_ && !c.room_event_ && c.is_open()) {
        c.room_event_ = true;
        events_.push_back(event_of(Event::Kind::room, c));
    }
    c.room_due_ = false;
    if (c.ended_ && !c.end_raised_) announce_end(c);
    set_timer(c);
    if (c.state_ == Connection::State::gone && (c.end_announced_ || !c.end_raised_ || !c.end_is_event_) &&
        !c.unused_) {
        c.unused_ = true;
        unused_.push_back(c.id_.value);
    }
}

void Endpoint::announce(Connection& c) {
    const bool joiner = !c.we_dialled() && c.alpn() == alpn_join;
    if (joiner && joining_.size() >= shared_.config.join_connections_max &&
        !evict_for(c.remote_, joining_, "joins")) {
        ++stats_.handshakes_over_limit;
        c.end({CloseInfo::Cause::refused_here, false, false, NGTCP2_CONNECTION_REFUSED,
               "too many nodes are joining; at most " + std::to_string(shared_.config.join_connections_max)});
        return;
    }
    leave_half_open(c);
    c.announced_ = true;
    if (joiner) joining_.push_back(&c);
    look_at_certificate(c);
    events_.push_back(event_of(Event::Kind::connected, c));
}

// The wall clock can be set, so the next look comes after certificate_look_seconds at the latest.
void Endpoint::look_at_certificate(const Connection& c) {
    const auto wall = tls_->wall_seconds();
    const auto end = c.peer_valid_until();
    if (!wall || !end || !c.is_open()) return;
    const WallSeconds left = std::clamp<WallSeconds>(*end + 1 - *wall, 1, certificate_look_seconds);
    certificates_at_ = std::min(certificates_at_, now_ + std::chrono::seconds(left));
}

void Endpoint::end_expired() {
    certificates_at_ = never;
    const auto wall = tls_->wall_seconds();
    for (auto& [id, c] : connections_) {
        const auto end = c->peer_valid_until();
        if (!wall || !end || !c->is_open()) continue;
        if (*wall > *end) {
            c->close(static_cast<uint64_t>(CloseCode::certificate_ended),
                     "the certificate that the peer showed on this connection has ended");
            touch(*c);
        } else {
            look_at_certificate(*c);
        }
    }
}

void Endpoint::announce_end(Connection& c) {
    c.end_raised_ = true;
    leave_half_open(c);
    std::erase(joining_, &c);
    if (c.ended_->cause == CloseInfo::Cause::refused_here) ++stats_.handshakes_refused;
    c.end_is_event_ = c.announced_ || c.we_dialled();
    if (c.end_is_event_) {
        events_.push_back(event_of(Event::Kind::closed, c));
    } else if (refused_events_ < refused_events_max) {
        ++refused_events_;
        events_.push_back(event_of(Event::Kind::refused, c));
    }
}

Event Endpoint::event_of(Event::Kind kind, const Connection& c) {
    Event e;
    e.kind = kind;
    e.conn = c.id_;
    e.we_dialled = c.we_dialled();
    e.peer = c.peer();
    e.remote = c.remote_;
    if (kind == Event::Kind::connected) e.alpn = c.alpn_;
    if (c.ended_) e.close = *c.ended_;
    return e;
}

void Endpoint::set_timer(Connection& c) {
    const uint64_t expiry = c.expiry();
    if (expiry == c.expiry_) return;
    if (c.expiry_ != UINT64_MAX) timers_.erase({c.expiry_, c.id_.value});
    if (expiry != UINT64_MAX) timers_.emplace(expiry, c.id_.value);
    c.expiry_ = expiry;
}

void Endpoint::leave_half_open(Connection& c) {
    std::erase(half_open_, &c);
}

void Endpoint::reap() {
    if (!unused_.empty()) last_ = nullptr;
    for (uint64_t id : unused_) {
        const auto found = connections_.find(id);
        Connection& c = *found->second;
        leave_half_open(c);
        forget_remote(c);
        std::erase(joining_, &c);
        for (const Connection::Key& key : c.keys_) by_key_.erase(key);
        if (c.expiry_ != UINT64_MAX) timers_.erase({c.expiry_, id});
        if (c.ready_) std::erase(shared_.ready, &c);
        connections_.erase(found);
    }
    unused_.clear();
}

// ---- Output.

std::optional<SendBatch> Endpoint::poll_send(Time now, MutableBytes buffer) {
    NEXAR_CHECK(buffer.size() >= send_buffer_bytes);
    const uint64_t ts = advance(now);
    reap();
    if (!replies_.empty()) {
        const Reply r = std::move(replies_.front());
        replies_.pop_front();
        std::copy(r.bytes.begin(), r.bytes.end(), buffer.begin());
        return SendBatch{r.local, r.remote, r.bytes.size(), r.bytes.size(), 0};
    }
    while (!shared_.ready.empty()) {
        Connection& c = *shared_.ready.front();
        shared_.ready.pop_front();
        c.ready_ = false;
        const Connection::Batch batch = c.poll_send(ts, buffer.first(send_buffer_bytes));
        if (batch.bytes > 0 && batch.may_have_more) c.mark_ready();  // after all other connections
        touch(c);
        if (batch.bytes > 0) return SendBatch{c.local_, c.remote_, batch.bytes, batch.segment, batch.ecn};
    }
    return std::nullopt;
}

std::optional<Event> Endpoint::poll_event() {
    reap();
    if (events_.empty()) {
        // The user called close() or write(): no other input of the connection would call touch().
        for (Connection* c : shared_.ready)
            if (c->ended_ && !c->end_raised_) touch(*c);
        if (events_.empty()) return std::nullopt;
    }
    Event e = std::move(events_.front());
    events_.pop_front();
    if (e.kind == Event::Kind::refused) {
        --refused_events_;
        return e;
    }
    Connection& c = *connections_.at(e.conn.value);
    if (e.kind == Event::Kind::room) c.room_event_ = false;
    if (e.kind == Event::Kind::received) c.received_event_ = false;
    if (e.kind == Event::Kind::closed) {
        c.end_announced_ = true;
        c.receiver_ = nullptr;
        touch(c);
    }
    return e;
}

Time Endpoint::wake_at() const {
    if (!replies_.empty() || !shared_.ready.empty() || !events_.empty()) return now_;
    if (timers_.empty()) return certificates_at_;
    const uint64_t expiry = timers_.begin()->first;
    return std::min(certificates_at_,
                    Time(Duration(static_cast<int64_t>(expiry - std::min(expiry, ts_offset)))));
}

EndpointStats Endpoint::stats() const {
    EndpointStats out = stats_;
    out.connections = connections_.size();
    out.half_open = half_open_.size();
    return out;
}

}  // namespace nexar::quic
