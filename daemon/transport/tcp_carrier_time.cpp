// What is due by time in a TcpCarrier: see tcp_carrier.hpp.
#include <algorithm>
#include <string>
#include <utility>

#include "transport/tcp_carrier_conn.hpp"

namespace nexar::transport {
namespace {

constexpr WallSeconds certificate_look_seconds = 3600;

}  // namespace

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
    end_unanswered(now, dials_);
    end_unanswered(now, overtaken_);
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
    if (accept_at_ <= now) accept_at_ = watch_listener() ? never : now + accept_pause;
    if (certificates_at_ <= now) end_old_certificates(now);
}

void TcpCarrier::end_unanswered(Time now, std::deque<std::pair<Time, uint64_t>>& dials) {
    for (; !dials.empty() && dials.front().first <= now; dials.pop_front()) {
        Conn* conn = find(dials.front().second);
        if (!conn || conn->connected || conn->closed) continue;
        conn->failure = "tcp not answered";
        if (conn->machine)
            conn->machine->close(static_cast<uint64_t>(tcp::CloseCode::too_late), conn->failure);
        conn->connecting = false;
        touch(*conn);
    }
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
    if (!handshakes_wait_.empty()) at = std::min(at, handshakes_.free_at());
    if (!acks_.empty()) at = std::min(at, acks_.begin()->first);
    if (!dials_.empty()) at = std::min(at, dials_.front().first);
    if (!overtaken_.empty()) at = std::min(at, overtaken_.front().first);
    if (!short_.empty()) at = std::min(at, short_.front().first);
    if (!lingering_.empty()) at = std::min(at, lingering_.front().first);
    return at;
}

}  // namespace nexar::transport
