// Connection: how it ends, and what it still sends the peer then (RFC 9000 §10).
#include <algorithm>

#include "quic/initial.hpp"

namespace nexar::quic {

Connection::~Connection() {
    release();
}

void Connection::release() {
    if (!conn_) return;
    last_stats_ = stats();
    ngtcp2_conn_del(conn_);
    conn_ = nullptr;
    for (Outgoing& o : out_) o.queue.clear();  // only now: ngtcp2 had pointers into it
    for (Incoming& in : in_) in.waiting = {};
}

void Connection::close(uint64_t code, std::string_view reason) {
    end({CloseInfo::Cause::closed_here, false, true, code, std::string(reason)});
}

void Connection::end(CloseInfo info) {
    if (ended_ || state_ == State::gone) return;
    info.reason.resize(std::min(info.reason.size(), close_reason_bytes_max));
    ended_ = std::move(info);
    state_ = State::closing;
    probe_ends_ = UINT64_MAX;
    mark_ready();
}

void Connection::end_bad_stream(std::string what) {
    end({CloseInfo::Cause::protocol_error, false, true, static_cast<uint64_t>(CloseCode::bad_stream),
         std::move(what)});
}

void Connection::fail_locally(int library_error) {
    CloseInfo info;
    switch (library_error) {
        case NGTCP2_ERR_IDLE_CLOSE:
            info = {CloseInfo::Cause::idle, false, false, 0, "nothing was received for the idle timeout"};
            break;
        case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
            info = {CloseInfo::Cause::handshake_timeout, false, false, 0, "no handshake within the timeout"};
            break;
        case NGTCP2_ERR_CRYPTO: {
            const uint8_t alert = ngtcp2_conn_get_tls_alert2(conn_);
            info.cause = CloseInfo::Cause::refused_here;
            // 46: certificate_unknown (RFC 8446 §6), where only nexar's own checks failed.
            info.code = NGTCP2_CRYPTO_ERROR + (alert ? alert : 46u);
            info.reason = tls_.refusal().empty() ? "TLS: " + alert_text(alert) : tls_.refusal();
            if (tls_.refusal().empty() && alert == unexpected_message_alert)
                info.reason +=
                    ": the peer sent a handshake message, or bytes behind one, that may not come then";
            break;
        }
        default:
            info.cause = CloseInfo::Cause::protocol_error;
            info.code = ngtcp2_err_infer_quic_transport_error_code(library_error);
            info.reason = ngtcp2_strerror(library_error);
    }
    end(std::move(info));
    // No peer would receive a close packet; DROP_CONN and RETRY: there never was a connection.
    if (library_error == NGTCP2_ERR_IDLE_CLOSE || library_error == NGTCP2_ERR_HANDSHAKE_TIMEOUT ||
        library_error == NGTCP2_ERR_DROP_CONN || library_error == NGTCP2_ERR_RETRY) {
        state_ = State::gone;
        release();
    }
}

void Connection::on_peer_close(uint64_t ts) {
    const ngtcp2_ccerr& error = *ngtcp2_conn_get_ccerr2(conn_);
    CloseInfo info;
    info.by_peer = true;
    info.code = error.error_code;
    if (error.reasonlen) info.reason.assign(reinterpret_cast<const char*>(error.reason), error.reasonlen);
    if (was_reset_) {
        info.cause = CloseInfo::Cause::reset;
        info.reason = "stateless reset: the peer does not know this connection";
    } else if (error.type == NGTCP2_CCERR_TYPE_APPLICATION) {
        info.cause = CloseInfo::Cause::closed_by_peer;
        info.application = true;
    } else if ((error.error_code & ~uint64_t{0xff}) == NGTCP2_CRYPTO_ERROR) {
        info.cause = CloseInfo::Cause::refused_by_peer;
        const auto alert = static_cast<uint8_t>(error.error_code & 0xff);
        info.reason = "TLS alert " + alert_text(alert) + (info.reason.empty() ? "" : ": " + info.reason);
        // 120: no_application_protocol (RFC 7301 §3.2). An old daemon's text of it does not name the cure.
        if (alert == 120 && tls_.dial_alpn().starts_with("nexar/"))
            info.reason = "the node there does not speak " + tls_.dial_alpn() +
                          ", as this daemon does: upgrade the older of the two (" + info.reason + ")";
    } else if (error.error_code == NGTCP2_CONNECTION_REFUSED) {
        info.cause = CloseInfo::Cause::refused_by_peer;
    } else if (error.error_code == NGTCP2_NO_ERROR || error.error_code == NGTCP2_APPLICATION_ERROR) {
        info.cause = CloseInfo::Cause::closed_by_peer;
    } else {
        info.cause = CloseInfo::Cause::protocol_error;
    }
    end(std::move(info));
    // Draining: its ids stay known for three probe timeouts, so that late packets find it, but it is silent.
    gone_at_ = ts + 3 * ngtcp2_conn_get_pto2(conn_);
    release();
}

void Connection::make_close_packet(uint64_t ts) {
    ngtcp2_ccerr error;
    const auto* reason = reinterpret_cast<const uint8_t*>(ended_->reason.data());
    if (ended_->application)
        ngtcp2_ccerr_set_application_error(&error, ended_->code, reason, ended_->reason.size());
    else
        ngtcp2_ccerr_set_transport_error(&error, ended_->code, reason, ended_->reason.size());
    close_packet_.resize(NGTCP2_MAX_UDP_PAYLOAD_SIZE);
    ngtcp2_pkt_info info{};
    const ngtcp2_ssize n = ngtcp2_conn_write_connection_close(
        conn_, nullptr, &info, reinterpret_cast<uint8_t*>(close_packet_.data()), close_packet_.size(), &error,
        ts);
    close_packet_.resize(n > 0 ? static_cast<size_t>(n) : 0);
    close_packet_due_ = n > 0;
    gone_at_ = ts + 3 * ngtcp2_conn_get_pto2(conn_);
    if (n <= 0) state_ = State::gone;
    release();
}

Connection::Batch Connection::send_close_packet(MutableBytes buffer) {
    if (state_ != State::closing || !close_packet_due_) return {};
    close_packet_due_ = false;
    std::copy(close_packet_.begin(), close_packet_.end(), buffer.begin());
    return {close_packet_.size(), close_packet_.size(), 0};
}

void Connection::on_time(uint64_t ts) {
    if (state_ == State::gone) return;
    if (!conn_) {
        if (ts >= gone_at_) state_ = State::gone;
        return;
    }
    if (ngtcp2_conn_get_expiry2(conn_) <= ts) {
        const int failed = ngtcp2_conn_handle_expiry(conn_, ts);
        if (failed != 0) fail_locally(failed);
    }
    if (ts >= probe_ends_)
        end({CloseInfo::Cause::idle, false, true, static_cast<uint64_t>(CloseCode::unreachable),
             "port unreachable (ICMP), and no answer to a probe"});
    mark_ready();
}

void Connection::probe(uint64_t ts) {
    if (state_ != State::open || ts < next_probe_) return;
    const auto patience = static_cast<uint64_t>(shared_.config.unreachable_patience.count());
    probe_ends_ = next_probe_ = ts + patience;
    probe_due_ = true;
    mark_ready();
}

uint64_t Connection::expiry() const {
    if (state_ == State::gone) return UINT64_MAX;
    return conn_ ? std::min(put_off(ngtcp2_conn_get_expiry2(conn_)), probe_ends_) : gone_at_;
}

uint64_t Connection::put_off(uint64_t expiry) const {
    const auto step = static_cast<uint64_t>(shared_.config.timer_granularity.count());
    if (state_ != State::open || shared_.config.pacing || step == 0 || expiry > UINT64_MAX - step)
        return expiry;
    return (expiry + step - 1) / step * step;
}

}  // namespace nexar::quic
