// See stream_peer.hpp.
#include "link/stream_peer.hpp"

namespace nexar::link {

FrameStart StreamState::start_of(StreamPeer& peer, FrameKind kind, uint64_t bytes_of_frame) {
    peer.acks_confirmed = peer.acks_processed;
    peer.wrote_in_turn = turn;
    FrameStart start{};
    start.length = bytes_of_frame - length_bytes;
    start.kind = static_cast<uint8_t>(kind);
    start.header_words = static_cast<uint8_t>(header_bytes_of(kind) / sizeof(uint64_t));
    start.generation = peer.transfers->generation;
    start.incarnation = config.incarnation;
    start.acks_seen = peer.acks_processed;
    return start;
}

void StreamState::discard_log(StreamPeer& peer, const std::string& why) {
    peer.log.discard();
    log_discarded(peer, why, false);
}

// What arrived of it and was not polled yet goes with it.
void StreamState::log_discarded(StreamPeer& peer, const std::string& why, bool by_peer) {
    events->erase_if([&](const MeshEvent& e) { return e.logged && e.peer == peer.index(); });
    MeshEvent& e = emit(MeshEvent::Kind::log_discarded, peer);
    e.text = why;
    e.by_peer = by_peer;
}

void StreamState::report_room(StreamPeer& peer) {
    if (peer.log.take_room_again()) emit(MeshEvent::Kind::log_room, peer);
}

std::unique_ptr<std::byte[]> StreamState::take_stage() {
    if (stages_.empty()) return std::make_unique_for_overwrite<std::byte[]>(chunk_bytes_max);
    std::unique_ptr<std::byte[]> stage = std::move(stages_.back());
    stages_.pop_back();
    return stage;
}

}  // namespace nexar::link
