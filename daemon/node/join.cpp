// See join.hpp.
#include "node/join.hpp"

#include <algorithm>
#include <cstring>

namespace nexar::node {
namespace {

using namespace admission;

constexpr Duration request_timeout{3'000'000'000};
constexpr Duration join_timeout{30'000'000'000};
constexpr Duration redial_pause{200'000'000};
constexpr std::string_view exporter_label = "EXPORTER-nexar-join";
constexpr size_t exporter_bytes = 32;
constexpr uint64_t close_done = 32, close_bad_request = 33;

}  // namespace

void JoinStream::on_bytes(Class cls, Bytes bytes) {
    if (cls != Class::control || in_.size() + bytes.size() > join_message_bytes_max + sizeof(uint32_t))
        broken_ = true;
    else
        in_.insert(in_.end(), bytes.begin(), bytes.end());
}

std::optional<std::vector<std::byte>> JoinStream::poll() {
    if (broken_ || in_.size() < sizeof(uint32_t)) return std::nullopt;
    uint32_t bytes = 0;
    std::memcpy(&bytes, in_.data(), sizeof bytes);
    if (bytes > join_message_bytes_max) broken_ = true;
    if (broken_ || in_.size() < sizeof bytes + bytes) return std::nullopt;
    const auto begin = in_.begin() + sizeof bytes;
    std::vector<std::byte> out(begin, begin + static_cast<ptrdiff_t>(bytes));
    in_.erase(in_.begin(), begin + static_cast<ptrdiff_t>(bytes));
    return out;
}

void JoinStream::write(quic::Connection& conn, Bytes message) {
    const auto bytes = static_cast<uint32_t>(message.size());
    conn.write(Class::control, std::as_bytes(std::span(&bytes, 1)));
    conn.write(Class::control, message);
}

void JoinServer::on_event(Time now, const quic::Event& event, quic::Endpoint& endpoint) {
    if (event.kind == quic::Event::Kind::closed) {
        connections_.erase(event.conn);
        return;
    }
    if (event.kind != quic::Event::Kind::connected) return;
    auto* conn = endpoint.find(event.conn);
    if (!conn) return;
    Joining& joining = connections_[event.conn];
    joining.remote = event.remote;
    joining.until = now + request_timeout;
    conn->set_receiver(&joining.stream);
}

void JoinServer::step(Time now, quic::Endpoint& endpoint) {
    for (auto& [id, joining] : connections_) {
        auto* conn = endpoint.find(id);
        if (!conn) continue;  // closed: its event follows
        if (joining.use) {
            if (const auto* outcome = joining.use->outcome()) answer(now, *conn, joining, outcome->result);
        } else if (auto request = joining.stream.poll(); request && !joining.asked)
            on_request(now, *conn, joining, *request);
        else if (joining.stream.broken())
            conn->close(close_bad_request, "not a join request");
        else if (now >= joining.until)
            conn->close(close_bad_request, "no join request within 3 s");
    }
}

Time JoinServer::wake_at() const {
    Time at = never;
    for (const auto& [id, joining] : connections_)
        if (!joining.use) at = std::min(at, joining.until);
    return at;
}

// The use is saved before the certificate is signed [A5].
void JoinServer::on_request(Time now, quic::Connection& conn, Joining& joining, Bytes request) {
    joining.asked = true;
    auto use = use_token(conn, joining, request);
    if (!use) return answer(now, conn, joining, fail(use.error()));
    joining.use = std::move(*use);
    if (const auto* outcome = joining.use->outcome()) answer(now, conn, joining, outcome->result);
}

Result<storage::Saving> JoinServer::use_token(quic::Connection& conn, Joining& joining, Bytes bytes) {
    NEXAR_TRY(JoinRequest request, decode_join_request(bytes));
    NEXAR_TRY(auto exporter, conn.export_keying_material(exporter_label, {}, exporter_bytes));
    joining.csr = request.csr;
    return tokens_->change(
        [this, request = std::move(request), exporter = std::move(exporter)](auto& tokens) {
            return tokens.admit(request, exporter, identity_->root_key_hash, wall_());
        });
}

Result<JoinReply> JoinServer::admit(const std::string& csr) {
    const Issuer& issuer = *identity_->issuer;
    JoinReply reply;
    NEXAR_TRY(reply.certificate,
              sign_leaf(issuer.key, issuer.certificate, csr, wall_(), issuer.leaf_lifetime));
    reply.issuer_certificate = issuer.certificate;
    reply.root_certificate = identity_->root_certificate;
    return reply;
}

void JoinServer::answer(Time now, quic::Connection& conn, Joining& joining, Result<void> used) {
    joining.use.reset();
    joining.until = now + request_timeout;
    auto reply = used ? admit(joining.csr) : fail(used.error());
    if (reply) {
        const auto node = node_id_of_certificate(reply->certificate);
        log_->info("node_admitted",
                   {field("node", node ? *node : NodeId{}), field("remote", joining.remote.text())});
    } else {
        log_->warn("join_refused",
                   {field("remote", joining.remote.text()), field("why", reply.error().text)});
        reply = JoinReply{reply.error(), {}, {}, {}};
    }
    JoinStream::write(conn, encode(*reply));  // the joiner closes the connection, or the deadline does
}

Joiner::Joiner(const Token& token, std::string hostname, std::function<WallSeconds()> wall, Time now)
    : token_(token),
      hostname_(std::move(hostname)),
      wall_(std::move(wall)),
      until_(now + join_timeout),
      redial_at_(now) {}

Result<std::unique_ptr<Joiner>> Joiner::start(const Token& token, const Secret& node_key,
                                              const std::string& hostname, std::function<WallSeconds()> wall,
                                              Time now) {
    if (const WallSeconds today = wall(); today > token.expires)
        return fail(
            Errc::bad_token,
            "the token has expired, " + std::to_string(today - token.expires) +
                " s ago by this host's clock; if that is right, make another: nexarctl token create on "
                "the node that made the cluster");
    if (token.issuer_addresses.empty()) return fail(Errc::bad_token, "the token names no issuer address");
    const auto first = quic::Address::parse(token.issuer_addresses[0]);
    if (!first) return fail(Errc::bad_token, "the token is damaged: " + first.error().text);
    std::unique_ptr<Joiner> joiner(new Joiner(token, hostname, std::move(wall), now));
    joiner->key_ = node_key;
    NEXAR_TRY(joiner->csr_, make_csr(joiner->key_));
    transport::QuicPort::Options options;
    options.listen = quic::Address::any(first->family, 0);
    options.quic.listen = false;
    auto judge = [hash = token.root_key_hash, wall = joiner->wall_](const quic::PeerChain& chain,
                                                                    std::string_view) {
        return verify_issuer(chain, hash, wall());
    };
    NEXAR_TRY(joiner->port_, transport::QuicPort::open(std::move(options), quic::Identity{}, judge));
    return joiner;
}

void Joiner::dial(Time now) {
    address_ = token_.issuer_addresses[next_address_++ % token_.issuer_addresses.size()];
    redial_at_ = now + redial_pause;
    stream_ = JoinStream();
    const auto address = quic::Address::parse(address_);
    if (!address) {
        last_failure_ = address.error().text;
        return schedule_redial(now);
    }
    dialled_ = *address;
    connected_ = false;
    const auto conn = port_->connect(now, *address, quic::alpn_join);
    if (conn)
        conn_ = *conn;
    else
        last_failure_ = conn.error().text;
    if (!conn) schedule_redial(now);
}

// The next address is dialled at once; after the last one there is a pause.
void Joiner::schedule_redial(Time now) {
    const bool round_over = next_address_ % token_.issuer_addresses.size() == 0;
    redial_at_ = round_over ? now + redial_pause : now;
}

// Dials the next address without waiting for the handshake's time-out. A forged ICMP message does no more
// than that: this address is dialled again in the next round.
void Joiner::on_unreachable(Time now, const quic::Address& address) {
    if (!conn_ || connected_ || address != dialled_) return;
    last_failure_ = "no process listens there (ICMP: unreachable)";
    if (auto* conn = port_->endpoint().find(*std::exchange(conn_, {})))
        conn->close(close_done, last_failure_);
    schedule_redial(now);
}

void Joiner::ask(quic::Connection& conn) {
    conn.set_receiver(&stream_);
    const auto exporter = conn.export_keying_material(exporter_label, {}, exporter_bytes);
    if (!exporter) return;
    JoinRequest request{token_.id, csr_,
                        join_mac(token_.secret, *exporter, token_.id, token_.root_key_hash, csr_), hostname_};
    JoinStream::write(conn, encode(request));
}

std::optional<Result<Identity>> Joiner::step(Time now) {
    port_->on_readable(now);
    port_->on_time(now);
    while (const auto address = port_->poll_unreachable()) on_unreachable(now, *address);
    while (auto event = port_->poll_event()) {
        if (event->kind == quic::Event::Kind::connected) {
            connected_ = connected_ || conn_ == event->conn;
            if (auto* conn = port_->endpoint().find(event->conn)) ask(*conn);
        } else if (event->kind == quic::Event::Kind::closed && conn_ == event->conn) {
            conn_.reset();
            redial_at_ = now + redial_pause;
            if (!event->close.reason.empty()) last_failure_ = event->close.reason;
        }
    }
    if (auto bytes = stream_.poll()) {
        auto reply = decode_join_reply(*bytes);
        if (!reply) return fail(reply.error());
        port_->endpoint().close_all(close_done, "joined");
        port_->flush(now);
        return accept_join(key_, *reply, token_.root_key_hash, wall_());
    }
    if (now >= until_)
        return fail(
            Errc::timed_out,
            "no issuer answered within 30 s; the last tried was " + address_ + ": " + last_failure_ +
                "; if that is not the issuer's address the token is damaged: copy the whole line; else start "
                "nexard there and open the port");
    if (!conn_ && now >= redial_at_) dial(now);
    port_->flush(now);
    return std::nullopt;
}

Time Joiner::wake_at() const {
    return std::min({until_, conn_ ? never : redial_at_, port_->wake_at()});
}

}  // namespace nexar::node
