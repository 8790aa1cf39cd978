// Connection: its interface for the user, and how it fills packets. connection_start.cpp begins a connection,
// connection_end.cpp ends it.
#include "quic/connection.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "quic/initial.hpp"

namespace nexar::quic {

namespace {

// GSO takes at most 64 segments, and all of them together are one UDP datagram to the kernel.
constexpr size_t batch_segments_max = 64;
constexpr size_t batch_bytes_max = 65507;

}  // namespace

size_t Connection::room(Class cls) const {
    if (state_ != State::open) return 0;
    const size_t limit = shared_.config.send_buffer_max[index_of(cls)];
    const size_t held = out_[index_of(cls)].queue.held();
    return limit > held ? limit - held : 0;
}

void Connection::write(Class cls, std::span<const Bytes> parts) {
    if (state_ != State::open) return;
    size_t total = 0;
    for (const Bytes& part : parts) total += part.size();
    if (total > room(cls)) {
        end({CloseInfo::Cause::closed_here, false, true, static_cast<uint64_t>(CloseCode::send_overflow),
             "class " + std::to_string(index_of(cls)) + ": " + std::to_string(total) +
                 " bytes written, but its send buffer takes only " + std::to_string(room(cls)) + " more"});
        return;
    }
    for (const Bytes& part : parts) out_[index_of(cls)].queue.append(part);
    mark_ready();
}

Result<std::vector<std::byte>> Connection::export_keying_material(std::string_view label, Bytes context,
                                                                  size_t bytes) const {
    if (state_ != State::open)
        return fail(Errc::closed, "exported keying material: the connection is not open");
    return tls_.export_keying_material(label, context, bytes);
}

ConnectionStats Connection::stats() const {
    if (!conn_) return last_stats_;
    ngtcp2_conn_info info;
    ngtcp2_conn_get_conn_info2(conn_, &info);
    ConnectionStats out;
    out.bytes_sent = info.bytes_sent;
    out.bytes_received = info.bytes_recv;
    out.packets_sent = info.pkt_sent;
    out.packets_received = info.pkt_recv;
    out.packets_lost = info.pkt_lost;
    out.packets_discarded = info.pkt_discarded;
    out.rtt = Duration(static_cast<int64_t>(info.smoothed_rtt));
    out.rtt_min = info.min_rtt == UINT64_MAX ? Duration{} : Duration(static_cast<int64_t>(info.min_rtt));
    out.congestion_window = info.cwnd;
    out.udp_payload = ngtcp2_conn_get_path_max_tx_udp_payload_size2(conn_);
    if (announced_) out.cipher = tls_.cipher();
    return out;
}

void Connection::mark_ready() {
    if (ready_) return;
    ready_ = true;
    shared_.ready.push_back(this);
}

// ---- Receiving.

void Connection::on_packet(uint64_t ts, Time now, Bytes packet, uint8_t ecn) {
    now_ = now;
    if (state_ == State::gone) return;
    if (!conn_) {  // closing: the close packet answers the 1st, 2nd, 4th, 8th ... packet
        const unsigned n = ++packets_after_close_;
        if (!close_packet_.empty() && (n & (n - 1)) == 0) {
            close_packet_due_ = true;
            mark_ready();
        }
        return;
    }
    ngtcp2_path path{
        {&local_socket_.base, local_socket_.size}, {&remote_socket_.base, remote_socket_.size}, nullptr};
    ngtcp2_pkt_info info{};
    info.ecn = ecn;
    const int failed = ngtcp2_conn_read_pkt(conn_, &path, &info, data_of(packet), packet.size(), ts);
    if (ended_) {
        mark_ready();
        return;
    }
    if (failed == NGTCP2_ERR_DRAINING) {
        on_peer_close(ts);
        return;
    }
    if (failed != 0) {
        fail_locally(failed);
        return;
    }
    if (has_opened_ && state_ == State::handshaking) {
        on_handshake_done();
        last_received_at_ = now_;
    }
    note_received(packet);
    mark_ready();
}

// Replayed and forged packets are discarded and do not count. ngtcp2 counts late packets with a long header
// without decrypting them, since their keys are discarded: they prove nothing.
void Connection::note_received(Bytes packet) {
    if (state_ != State::open) return;
    ngtcp2_conn_info info;
    ngtcp2_conn_get_conn_info2(conn_, &info);
    const bool is_new = info.pkt_recv != packets_authentic_;
    packets_authentic_ = info.pkt_recv;
    const bool long_header = (packet.front() & std::byte{0x80}) != std::byte{};
    if (!is_new || long_header) return;
    last_received_at_ = now_;
    probe_ends_ = UINT64_MAX;
    received_due_ = received_due_ || now_ >= received_event_at_;
}

void Connection::on_stream_data(int64_t stream, Bytes bytes) {
    if (ended_) return;
    Incoming& in = in_[static_cast<size_t>(stream >> 2)];  // the peer may open four unidirectional streams
    while (in.preamble < 2 && !bytes.empty()) {
        if (!on_preamble(in, stream, bytes.front())) return;
        bytes = bytes.subspan(1);
        credit(in, stream, 1);
    }
    if (!bytes.empty()) deliver(in, stream, bytes);
}

bool Connection::on_preamble(Incoming& in, int64_t stream, std::byte byte) {
    const unsigned value = std::to_integer<unsigned>(byte);
    if (in.preamble++ == 0) {
        if (value == stream_kind_framed) return true;
        end_bad_stream("a stream of the peer has kind " + std::to_string(value) + "; allowed: 1");
        return false;
    }
    if (value >= class_count || (classes_seen_ & (1u << value))) {
        end_bad_stream(value >= class_count
                           ? "a stream of the peer has class " + std::to_string(value) + "; allowed: 0 to 3"
                           : "two streams of the peer have class " + std::to_string(value));
        return false;
    }
    classes_seen_ |= 1u << value;
    in.cls = static_cast<Class>(value);
    if (window_[value] > unidentified_stream_window)
        ngtcp2_conn_extend_max_stream_offset(conn_, stream, window_[value] - unidentified_stream_window);
    return true;
}

void Connection::deliver(Incoming& in, int64_t stream, Bytes bytes) {
    if (!receiver_) {
        in.waiting.insert(in.waiting.end(), bytes.begin(),
                          bytes.end());  // bounded by the window: no credit is returned
        return;
    }
    receiver_->on_bytes(in.cls, bytes);
    if (credit_held_)
        in.held += bytes.size();
    else
        credit(in, stream, bytes.size());
}

void Connection::hold_credit(bool held) {
    credit_held_ = held;
    for (size_t i = 0; i < class_count && !held; ++i)
        if (const size_t bytes = std::exchange(in_[i].held, 0)) {
            credit(in_[i], stream_of_peer(i), bytes);
            mark_ready();
        }
}

int64_t Connection::stream_of_peer(size_t number) const {
    return static_cast<int64_t>(number << 2 | (we_dialled() ? 3u : 2u));
}

// Credit goes back in quarters of the window, so that few frames carry it.
void Connection::credit(Incoming& in, int64_t stream, size_t bytes) {
    if (!conn_ || ended_) return;
    in.uncredited += bytes;
    uncredited_ += bytes;
    const uint64_t window = std::max(window_[index_of(in.cls)], unidentified_stream_window);
    if (in.uncredited >= window / 4) {
        ngtcp2_conn_extend_max_stream_offset(conn_, stream, in.uncredited);
        in.uncredited = 0;
    }
    uint64_t all = 0;
    for (uint64_t one : window_) all += one;
    if (uncredited_ >= std::max(all, unidentified_window) / 8) {
        ngtcp2_conn_extend_max_offset(conn_, uncredited_);
        uncredited_ = 0;
    }
}

void Connection::set_receiver(Receiver* receiver) {
    receiver_ = receiver;
    for (size_t i = 0; i < class_count && receiver_; ++i) {
        std::vector<std::byte> waiting = std::exchange(in_[i].waiting, {});
        if (waiting.empty() || ended_) continue;
        deliver(in_[i], stream_of_peer(i), waiting);
        mark_ready();
    }
}

// ---- Sending.

void Connection::on_acked(int64_t stream, uint64_t up_to) {
    out_[static_cast<size_t>(stream >> 2)].queue.mark_acked(
        up_to);  // this side opens its streams in the classes' order
    room_due_ = true;
}

bool Connection::pick(unsigned blocked, Class& out) const {
    bool found = false;
    for (size_t i = 0; i < class_count; ++i) {
        if ((blocked & (1u << i)) || out_[i].queue.unsent() == 0 || out_[i].stream < 0) continue;
        if (found && out_[i].passed_over < starving_packets) continue;
        out = static_cast<Class>(i);
        found = true;
    }
    return found;
}

void Connection::count_passed_over(Class served) {
    for (size_t i = 0; i < class_count; ++i) {
        Outgoing& o = out_[i];
        o.passed_over = i == index_of(served) || o.queue.unsent() == 0 ? 0 : o.passed_over + 1;
    }
}

Connection::Batch Connection::poll_send(uint64_t ts, MutableBytes buffer) {
    if (ended_ && conn_) make_close_packet(ts);
    if (!conn_) return send_close_packet(buffer);

    const size_t payload = ngtcp2_conn_get_path_max_tx_udp_payload_size2(conn_);
    // Whole segments only: a short segment at the end of each batch costs 10 to 20 %.
    const size_t packets = std::clamp<size_t>(batch_bytes_max / payload, 1, batch_segments_max);
    auto write = [](ngtcp2_conn*, ngtcp2_path*, ngtcp2_pkt_info* info, uint8_t* into, size_t size,
                    ngtcp2_tstamp t, void* user) -> ngtcp2_ssize {
        auto& self = *static_cast<Connection*>(user);
        const ptrdiff_t written = self.write_packet(info, into, size, t);
        self.drained_ = written == 0;
        return written;
    };
    ngtcp2_pkt_info info{};
    size_t segment = 0;
    // ngtcp2 sends a PING by itself only to keep an idle connection alive: so this one becomes idle at once.
    if (probe_due_) ngtcp2_conn_set_keep_alive_timeout(conn_, 1);
    const ngtcp2_ssize n = ngtcp2_conn_write_aggregate_pkt2(conn_, nullptr, &info, data_of(buffer),
                                                            buffer.size(), &segment, write, packets, ts);
    if (probe_due_) ngtcp2_conn_set_keep_alive_timeout(conn_, UINT64_MAX);
    if (n > 0) probe_due_ = false;
    if (n < 0) {
        fail_locally(static_cast<int>(n));
        if (state_ == State::closing) make_close_packet(ts);
        return send_close_packet(buffer);
    }
    if (shared_.config.pacing) ngtcp2_conn_update_pkt_tx_time(conn_, ts);
    return {static_cast<size_t>(n), segment, info.ecn, !drained_};
}

// One packet: the classes by priority, as long as there is space.
ptrdiff_t Connection::write_packet(ngtcp2_pkt_info* info, uint8_t* into, size_t size, uint64_t ts) {
    unsigned blocked = 0;
    std::optional<Class> first;
    for (;;) {
        Class cls{};
        const bool more = pick(blocked, cls);
        ngtcp2_vec vec[SendQueue::pieces_max];
        SendQueue::Pieces pieces;
        if (more) pieces = out_[index_of(cls)].queue.next(size);
        for (size_t i = 0; i < pieces.count; ++i)
            vec[i] = {const_cast<uint8_t*>(data_of(pieces.piece[i])), pieces.piece[i].size()};
        ngtcp2_ssize taken = -1;
        const ngtcp2_ssize n =
            ngtcp2_conn_writev_stream(conn_, nullptr, info, into, size, &taken,
                                      more ? NGTCP2_WRITE_STREAM_FLAG_MORE : NGTCP2_WRITE_STREAM_FLAG_NONE,
                                      more ? out_[index_of(cls)].stream : -1, vec, pieces.count, ts);
        if (more && taken > 0) {
            out_[index_of(cls)].queue.mark_sent(static_cast<size_t>(taken));
            if (!first) first = cls;
        }
        if (n == NGTCP2_ERR_WRITE_MORE) continue;
        if (n == NGTCP2_ERR_STREAM_DATA_BLOCKED || n == NGTCP2_ERR_STREAM_SHUT_WR ||
            n == NGTCP2_ERR_STREAM_NOT_FOUND) {
            blocked |= 1u << index_of(cls);
            continue;
        }
        if (n > 0 && first) count_passed_over(*first);
        return n;
    }
}

}  // namespace nexar::quic
