// Connection: how it begins, on either side, until both have accepted each other.
#include <ngtcp2/ngtcp2_crypto.h>

#include <algorithm>

#include "quic/initial.hpp"

namespace nexar::quic {

namespace {

// Sizes to probe (RFC 8899), in ngtcp2's order: it continues from the first that fails.
constexpr uint16_t path_probes[] = {1452, 4000, 8952, 16000, 32700, 65507};

ngtcp2_settings settings_for(EndpointShared& shared, uint64_t ts) {
    const Config& config = shared.config;
    ngtcp2_settings s;
    ngtcp2_settings_default(&s);
    s.initial_ts = ts;
    s.initial_rtt = static_cast<uint64_t>(config.initial_rtt.count());
    s.handshake_timeout = static_cast<uint64_t>(config.handshake_timeout.count());
    s.max_tx_udp_payload_size =
        std::clamp<size_t>(config.udp_payload_max, NGTCP2_MAX_UDP_PAYLOAD_SIZE, 65507);
    s.pmtud_probes = path_probes;
    s.pmtud_probeslen = std::size(path_probes);
    s.no_pmtud = config.udp_payload_max <= NGTCP2_MAX_UDP_PAYLOAD_SIZE;
    s.rand_ctx.native_handle = &shared.random;
    s.cc_algo = config.congestion_control == CongestionControl::cubic  ? NGTCP2_CC_ALGO_CUBIC
                : config.congestion_control == CongestionControl::reno ? NGTCP2_CC_ALGO_RENO
                                                                       : NGTCP2_CC_ALGO_BBR;
    return s;
}

ngtcp2_transport_params params_for(const Config& config) {
    ngtcp2_transport_params p;
    ngtcp2_transport_params_default(&p);
    p.initial_max_streams_uni = class_count;
    p.initial_max_streams_bidi = 0;
    p.initial_max_stream_data_uni = unidentified_stream_window;
    p.initial_max_data = unidentified_window;
    p.max_idle_timeout = static_cast<uint64_t>(config.idle_timeout.count());
    p.max_ack_delay = static_cast<uint64_t>(config.max_ack_delay.count());
    p.disable_active_migration = 1;
    p.active_connection_id_limit = 2;
    return p;
}

ngtcp2_cid random_cid(const RandomSource& random, size_t size) {
    ngtcp2_cid cid{};
    cid.datalen = size;
    random({reinterpret_cast<std::byte*>(cid.data), size});
    return cid;
}

}  // namespace

Connection::Connection(EndpointShared& shared, ConnId id, std::shared_ptr<TlsContext> tls, std::string alpn,
                       std::optional<NodeId> expected, const Address& local, const Address& remote)
    : shared_(shared),
      id_(id),
      tls_(std::move(tls), std::move(alpn), expected),
      local_(local),
      remote_(remote),
      local_socket_(local),
      remote_socket_(remote),
      out_{Outgoing(shared.blocks), Outgoing(shared.blocks), Outgoing(shared.blocks),
           Outgoing(shared.blocks)} {}

bool Connection::start_client(uint64_t ts) {
    if (!tls_.ok()) return false;
    const ngtcp2_settings settings = settings_for(shared_, ts);
    const ngtcp2_transport_params params = params_for(shared_.config);
    const ngtcp2_cid dcid = random_cid(shared_.random, 18);  // unguessable: nothing else protects the Initial
    const ngtcp2_cid scid = random_cid(shared_.random, connection_id_bytes);
    ngtcp2_path path{
        {&local_socket_.base, local_socket_.size}, {&remote_socket_.base, remote_socket_.size}, nullptr};
    if (ngtcp2_conn_client_new(&conn_, &dcid, &scid, &path, NGTCP2_PROTO_VER_V1, &connection_callbacks(),
                               &settings, &params, nullptr, this) != 0)
        return false;
    new_keys_.push_back(key_of(scid.data, scid.datalen));
    tls_.attach(conn_);
    ngtcp2_conn_set_tls_native_handle(conn_, tls_.native_handle());
    mark_ready();
    return true;
}

bool Connection::start_server(const Initial& initial, uint64_t ts) {
    if (!tls_.ok()) return false;
    ngtcp2_settings settings = settings_for(shared_, ts);
    ngtcp2_transport_params params = params_for(shared_.config);
    const ngtcp2_cid scid = random_cid(shared_.random, connection_id_bytes);
    params.original_dcid = initial.after_retry ? initial.original_dcid : initial.client_dcid;
    params.original_dcid_present = 1;
    if (initial.after_retry) {
        params.retry_scid = initial.client_dcid;
        params.retry_scid_present = 1;
        settings.token = initial.token;
        settings.tokenlen = initial.token_size;
        settings.token_type = NGTCP2_TOKEN_TYPE_RETRY;
    }
    if (ngtcp2_crypto_generate_stateless_reset_token(params.stateless_reset_token,
                                                     data_of(Bytes(shared_.reset_secret)),
                                                     shared_.reset_secret.size(), &scid) == 0)
        params.stateless_reset_token_present = 1;
    ngtcp2_path path{
        {&local_socket_.base, local_socket_.size}, {&remote_socket_.base, remote_socket_.size}, nullptr};
    if (ngtcp2_conn_server_new(&conn_, &initial.client_scid, &scid, &path, initial.version,
                               &connection_callbacks(), &settings, &params, nullptr, this) != 0)
        return false;
    new_keys_.push_back(key_of(scid.data, scid.datalen));
    new_keys_.push_back(key_of(initial.client_dcid.data, initial.client_dcid.datalen));
    tls_.attach(conn_);
    ngtcp2_conn_set_tls_native_handle(conn_, tls_.native_handle());
    return true;
}

Connection::Key Connection::key_of(const uint8_t* data, size_t size) {
    Key out;
    out.size = static_cast<uint8_t>(size);
    std::copy_n(data, size, out.bytes.begin());
    return out;
}

void Connection::on_handshake_done() {
    if (const std::optional<std::string> objection = tls_.objection()) {
        tls_.refuse(*objection);
        fail_locally(NGTCP2_ERR_CRYPTO);
        return;
    }
    alpn_ = tls_.alpn();
    state_ = State::open;
    if (!open_streams()) return;
    if (alpn_ != alpn_join) open_windows();
}

// Each side's first two bytes on each stream.
bool Connection::open_streams() {
    for (size_t i = 0; i < class_count; ++i) {
        if (ngtcp2_conn_open_uni_stream(conn_, &out_[i].stream, nullptr) != 0) {
            end({CloseInfo::Cause::protocol_error, false, true, static_cast<uint64_t>(CloseCode::bad_stream),
                 "the peer allows fewer than four unidirectional streams"});
            return false;
        }
        const std::byte preamble[2] = {std::byte{stream_kind_framed}, static_cast<std::byte>(i)};
        out_[i].queue.append(i == 0 ? Bytes(shared_.config.sabotage.control_preamble) : Bytes(preamble));
    }
    return true;
}

// A member gets the configured windows: the connection's now, each stream's when its class is known. Streams
// whose preamble arrived earlier (a dialler receives HANDSHAKE_DONE late) get theirs now.
void Connection::open_windows() {
    uint64_t all = 0;
    for (size_t i = 0; i < class_count; ++i) {
        window_[i] = std::max<uint64_t>(shared_.config.receive_window[i], unidentified_stream_window);
        all += window_[i];
    }
    if (all > unidentified_window) ngtcp2_conn_extend_max_offset(conn_, all - unidentified_window);
    for (size_t i = 0; i < class_count; ++i) {
        if (in_[i].preamble < 2) continue;
        const uint64_t window = window_[static_cast<size_t>(in_[i].cls)];
        ngtcp2_conn_extend_max_stream_offset(conn_, stream_of_peer(i), window - unidentified_stream_window);
    }
}

}  // namespace nexar::quic
