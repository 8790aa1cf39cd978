// Endpoint: replies that need no connection: Version Negotiation, Retry, refusals, stateless resets (RFC 9000
// §6, §8.1, §10.3). No reply is larger than its cause, and replies per second are limited.
#include <ngtcp2/ngtcp2_crypto.h>

#include <algorithm>

#include "quic/endpoint.hpp"
#include "quic/initial.hpp"

namespace nexar::quic {

namespace {

constexpr uint64_t token_lifetime_ns = 10ull * 1'000'000'000;
// A reset looks like a packet with a short header, is shorter than its cause (so that two endpoints cannot
// answer each other for ever), and is not too short to hide among packets.
constexpr size_t reset_bytes_min = 41;
constexpr size_t reset_bytes_max = 64;

}  // namespace

bool Endpoint::may_reply() {
    if (now_ - reply_second_ >= std::chrono::seconds(1)) {
        reply_second_ = now_;
        replies_this_second_ = 0;
    }
    if (replies_this_second_ < shared_.config.stateless_replies_per_second &&
        replies_.size() < replies_queued_max) {
        ++replies_this_second_;
        return true;
    }
    ++stats_.replies_suppressed;
    return false;
}

void Endpoint::reply(const Address& local, const Address& remote, std::vector<std::byte> bytes,
                     uint64_t& counter) {
    ++counter;
    replies_.push_back({local, remote, std::move(bytes)});
}

void Endpoint::send_versions(const Address& local, const Address& remote, const ngtcp2_version_cid& packet) {
    if (!may_reply()) return;
    std::vector<std::byte> out(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
    const uint32_t versions[] = {NGTCP2_PROTO_VER_V1};
    std::byte unused{};
    shared_.random({&unused, 1});
    const ngtcp2_ssize n = ngtcp2_pkt_write_version_negotiation(
        data_of(MutableBytes(out)), out.size(), std::to_integer<uint8_t>(unused), packet.scid, packet.scidlen,
        packet.dcid, packet.dcidlen, versions, std::size(versions));
    if (n <= 0) return;
    out.resize(static_cast<size_t>(n));
    reply(local, remote, std::move(out), stats_.versions_sent);
}

void Endpoint::send_retry(uint64_t ts, const Address& local, const Address& remote,
                          const ngtcp2_pkt_hd& packet) {
    if (!may_reply()) return;
    ngtcp2_cid scid{};
    scid.datalen = connection_id_bytes;
    shared_.random({reinterpret_cast<std::byte*>(scid.data), connection_id_bytes});
    const SocketAddress address(remote);
    uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN2];
    const ngtcp2_ssize token_size = ngtcp2_crypto_generate_retry_token2(
        token, data_of(Bytes(token_secret_)), token_secret_.size(), packet.version, &address.base,
        address.size, &scid, &packet.dcid, ts);
    if (token_size < 0) return;
    std::vector<std::byte> out(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
    const ngtcp2_ssize n =
        ngtcp2_crypto_write_retry(data_of(MutableBytes(out)), out.size(), packet.version, &packet.scid, &scid,
                                  &packet.dcid, token, static_cast<size_t>(token_size));
    if (n <= 0) return;
    out.resize(static_cast<size_t>(n));
    reply(local, remote, std::move(out), stats_.retries_sent);
}

Endpoint::Token Endpoint::check_token(uint64_t ts, const Address& remote, const ngtcp2_pkt_hd& packet,
                                      Connection::Initial& out) {
    // A token of another kind is not from this endpoint and counts as none: a dialler can send any bytes.
    if (packet.tokenlen == 0 || packet.token[0] != NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY2) return Token::none;
    const SocketAddress address(remote);
    if (ngtcp2_crypto_verify_retry_token2(&out.original_dcid, packet.token, packet.tokenlen,
                                          data_of(Bytes(token_secret_)), token_secret_.size(), packet.version,
                                          &address.base, address.size, &packet.dcid, token_lifetime_ns,
                                          ts) != 0)
        return Token::invalid;
    out.after_retry = true;
    out.token = packet.token;
    out.token_size = packet.tokenlen;
    return Token::valid;
}

void Endpoint::send_refusal(const Address& local, const Address& remote, const ngtcp2_pkt_hd& packet,
                            uint64_t code) {
    if (!may_reply()) return;
    std::vector<std::byte> out(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
    const ngtcp2_ssize n = ngtcp2_crypto_write_connection_close(
        data_of(MutableBytes(out)), out.size(), packet.version, &packet.scid, &packet.dcid, code, nullptr, 0);
    if (n <= 0) return;
    out.resize(static_cast<size_t>(n));
    reply(local, remote, std::move(out), stats_.refusals_sent);
}

void Endpoint::send_reset(const Address& local, const Address& remote, Bytes packet) {
    ++stats_.datagrams_unknown;
    if (packet.size() <= reset_bytes_min || !may_reply()) return;
    ngtcp2_cid cid;
    ngtcp2_cid_init(&cid, data_of(packet) + 1, connection_id_bytes);
    ngtcp2_stateless_reset_token token;
    if (ngtcp2_crypto_generate_stateless_reset_token(token.data, data_of(Bytes(shared_.reset_secret)),
                                                     shared_.reset_secret.size(), &cid) != 0)
        return;
    const size_t size = std::clamp(packet.size() - 1, reset_bytes_min, reset_bytes_max);
    std::vector<std::byte> noise(size - NGTCP2_STATELESS_RESET_TOKENLEN);
    shared_.random(noise);
    std::vector<std::byte> out(size);
    const ngtcp2_ssize n = ngtcp2_pkt_write_stateless_reset2(data_of(MutableBytes(out)), out.size(), &token,
                                                             data_of(Bytes(noise)), noise.size());
    if (n <= 0) return;
    out.resize(static_cast<size_t>(n));
    reply(local, remote, std::move(out), stats_.resets_sent);
}

}  // namespace nexar::quic
