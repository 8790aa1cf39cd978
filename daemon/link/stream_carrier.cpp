// StreamCarrier: puts its parts together (stream_peer.hpp), and owns channels' comings and goings.
#include "link/stream_carrier.hpp"

namespace nexar::link {

StreamPeer& StreamCarrier::peer(PeerIndex index) {
    if (StreamPeer* known = find_peer(index)) return *known;
    PeerTransfers& transfers = state_.table->peer(index);
    if (index.value >= peers_.size()) peers_.resize(index.value + 1);
    peers_[index.value] = std::make_unique<StreamPeer>(transfers, state_.config.log);
    return *peers_[index.value];
}

void StreamCarrier::attach(StreamPeer& peer, uint32_t generation, Channel& channel) {
    NEXAR_CHECK(!peer.attached_once || generation > peer.transfers->generation);
    lose_channel(peer);
    peer.attached_once = true;
    peer.channel = &channel;
    peer.resume_due = state_.config.has_log;
    peer.acks_processed = peer.acks_confirmed = 0;
    state_.table->begin_generation(*peer.transfers, generation);
}

void StreamCarrier::lose_channel(StreamPeer& peer) {
    if (peer.channel == nullptr) return;
    peer.channel = nullptr;
    peer.log.on_channel_lost();
    writer_.on_channel_lost(peer);
    placement_.on_channel_lost(peer);
    state_.table->end_generation(*peer.transfers);
}

void StreamCarrier::forget_incarnation(StreamPeer& peer) {
    peer.attached_once = false;  // another incarnation may count its channels anew
    peer.incarnation_known = false;
    state_.events->erase_if([&](const MeshEvent& e) { return e.logged && e.peer == peer.index(); });
    peer.log = ControlLog(state_.config.log);
}

void StreamCarrier::on_bytes(StreamPeer& peer, Class cls, Bytes bytes) {
    if (peer.channel == nullptr) return;
    const char* rule = reader_.feed(peer, cls, bytes);
    if (rule == nullptr) {
        if (peer.acks_processed - peer.acks_confirmed >= unconfirmed_acks_max) state_.touch(peer);
        return;
    }
    state_.emit(MeshEvent::Kind::peer_garbage, peer).text = rule;
    lose_channel(peer);
    if (std::exchange(peer.log_broken, false)) state_.discard_log(peer, rule);
}

MutableBytes StreamCarrier::place(StreamPeer& peer, Class cls) {
    return peer.channel == nullptr ? MutableBytes() : reader_.place(peer, cls);
}

void StreamCarrier::placed(StreamPeer& peer, Class cls, size_t bytes) {
    if (peer.channel != nullptr) reader_.placed(peer, cls, bytes);
}

void StreamCarrier::apply_early(Recv& recv, const EarlyChunks& chunks) {
    StreamPeer& from = peer(recv.peer->index);
    for (const auto& [number, chunk] : chunks) {
        const bool goes_on = placement_.apply_early(recv, chunk);
        writer_.write_full_lists(from);
        if (!goes_on) return;
    }
}

bool StreamCarrier::send_message(StreamPeer& peer, Bytes message) {
    if (peer.channel == nullptr || message.size() > state_.config.message_bytes_max) return false;
    if (peer.log.ack_due()) state_.touch(peer);  // it goes along
    const bool is_next = peer.messages.empty() && StreamWriter::next_entry(peer) == nullptr;
    if (is_next && peer.channel->room(Class::control) >= sizeof(FrameStart) + message.size()) {
        writer_.write_message(peer, message);
        return true;
    }
    if (peer.message_bytes + message.size() > state_.config.message_queue_bytes_max) return false;
    peer.messages.emplace_back(message.begin(), message.end());
    peer.message_bytes += message.size();
    return true;
}

void StreamCarrier::append(StreamPeer& peer, Bytes message, std::optional<Account> account) {
    NEXAR_CHECK(state_.config.has_log && message.size() <= state_.config.message_bytes_max);
    if (peer.transfers->dropped) return;  // its incarnation has ended
    if (!peer.log.append(message, account)) return discard_log(peer, "the control log is full");
    if (peer.channel != nullptr) writer_.write_entries(peer);
}

void StreamCarrier::release(StreamPeer& peer, Account account, size_t bytes) {
    peer.log.release(account, bytes);
    state_.report_room(peer);
}

void StreamCarrier::discard_log(StreamPeer& peer, const std::string& why) {
    lose_channel(peer);
    state_.discard_log(peer, why);
}

void StreamCarrier::on_polled(StreamPeer& peer, size_t bytes) {
    peer.log.applied(bytes);
    state_.touch(peer);
}

void StreamCarrier::write(StreamPeer& peer) {
    if (peer.channel == nullptr) return;
    writer_.write_resume(peer);
    writer_.write_lists(peer);
    writer_.pump(peer);
    writer_.write_applied(peer);
    writer_.write_confirmation(peer);
}

void StreamCarrier::check_invariants() const {
    for (const std::unique_ptr<StreamPeer>& peer : peers_) {
        if (!peer) continue;
        NEXAR_CHECK(peer->transfers->connected == (peer->channel != nullptr));
        NEXAR_CHECK(peer->transfers->due.acks.size() < Due::ranges_max + class_count);  // [T5]
        NEXAR_CHECK(peer->acks_confirmed <= peer->acks_processed);
        size_t waiting = 0;
        for (const std::vector<std::byte>& message : peer->messages) waiting += message.size();
        NEXAR_CHECK(waiting == peer->message_bytes && waiting <= state_.config.message_queue_bytes_max);
        NEXAR_CHECK(waiting == 0 || peer->channel != nullptr);
        peer->log.check_invariants();
    }
}

}  // namespace nexar::link
