// Receiving, the lists that leave in the control stream: acks, nacks, asks and grants, coalesced.
#include "link/receiving.hpp"

namespace nexar::link {

// Extends our newest range if this chunk follows it, so a transfer that streams in order costs one range per
// turn.
void Receiving::acknowledge(Recv& recv, uint32_t chunk) {
    Peer& peer = *recv.peer;
    if (peer.channel == nullptr) return;  // the sender will ask
    // Its grant will say so. An ack before it would be added to those of the retracted receive.
    if (recv.anew && recv.grant_pending) return;
    if (recv.ack_batch == peer.ack_batch) {
        RangeEntry& newest = peer.acks[recv.ack_at];
        if (newest.first + newest.count == chunk) {
            ++newest.count;
            return;
        }
    }
    const uint64_t batch = peer.ack_batch;
    const size_t at = peer.acks.size();
    acknowledge(peer, {to_wire(recv.key), chunk, 1});
    recv.ack_batch = batch;  // of the batch it went into, which may have left already
    recv.ack_at = at;
}

void Receiving::acknowledge(Peer& peer, const RangeEntry& range) {
    peer.acks.push_back(range);
    shared_->touch(peer);
    if (peer.acks.size() >= ranges_pending_max) write_lists(peer);
}

void Receiving::acknowledge_again(Peer& peer, const TransferKey& key, Tombstones::Stone stone, uint32_t first,
                                  uint32_t count) {
    stone.generation = peer.generation;
    stone.ack_frame = peer.acks_sent + 1;
    peer.tombstones.answered(key, stone);
    acknowledge(peer, {to_wire(key), first, count});
}

void Receiving::grant(Recv& recv) {
    Peer& peer = *recv.peer;
    if (peer.channel == nullptr || shared_->config.sabotage.skip_grant) return;
    recv.grant_pending = true;
    peer.grants.emplace_back(recv);
    shared_->touch(peer);
}

void Receiving::write_lists(Peer& peer) {
    if (peer.channel == nullptr) return;
    if (!peer.acks.empty()) {
        ++peer.acks_sent;
        ++peer.ack_batch;
        write_ranges(peer, FrameKind::ack, peer.acks, 0);
    }
    if (!peer.nacks.empty()) write_ranges(peer, FrameKind::nack, peer.nacks, 0);
    if (!peer.asks.empty() || peer.asks_end_due) {
        write_ranges(peer, FrameKind::ask, peer.asks, peer.asks_end_due ? ask_last : 0);
        peer.asks_end_due = false;
    }
    if (!peer.grants.empty()) write_grants(peer);
}

void Receiving::write_ranges(Peer& peer, FrameKind kind, std::vector<RangeEntry>& ranges,
                             uint32_t last_flags) {
    size_t at = 0;
    do {
        const size_t n = std::min(ranges.size() - at, ranges_per_frame);
        const size_t entry_bytes = n * sizeof(RangeEntry);
        ListFrame f{};
        f.start = shared_->start_of(peer, kind, sizeof f + entry_bytes);
        f.count = static_cast<uint32_t>(n);
        f.flags = static_cast<uint16_t>(at + n == ranges.size() ? last_flags : 0);
        const Bytes entries(reinterpret_cast<const std::byte*>(ranges.data() + at), entry_bytes);
        const std::array<Bytes, 2> parts{bytes_of_struct(f), entries};
        peer.channel->write(Class::control, parts);
        at += n;
    } while (at < ranges.size());
    ranges.clear();
}

void Receiving::write_grants(Peer& peer) {
    uint32_t count = 0;
    grant_bytes_.clear();
    for (const Weak<Recv>& weak : peer.grants)
        if (Recv* r = weak.get()) add_grant(peer, *r, count);
    write_grant_frame(peer, count);
    peer.grants.clear();
}

// One entry, or several if the bitmap is long.
void Receiving::add_grant(Peer& peer, Recv& recv, uint32_t& count) {
    recv.grant_pending = false;
    const bool no_bitmap = recv.finished == 0 || shared_->config.sabotage.no_deduplication;
    const uint32_t words = no_bitmap ? 0 : recv.applied.words();
    GrantEntry e{};
    e.key = to_wire(recv.key);
    e.plan_hash = recv.agreement.plan_hash;
    e.descriptor_hash = recv.agreement.descriptor_hash;
    e.bytes = recv.memory.bytes();
    e.chunk_bytes = recv.chunk_bytes;
    ++peer.stats.grants_sent;
    uint32_t at = 0;
    do {
        e.first_word = at;
        e.words = std::min(words - at, grant_words_max);
        e.flags = (at + e.words < words ? grant_more : 0) | (recv.anew && at == 0 ? grant_anew : 0);
        const size_t need = sizeof e + e.words * sizeof(uint64_t);
        if (sizeof(ListFrame) + grant_bytes_.size() + need > list_bytes_max) write_grant_frame(peer, count);
        Writer out(grant_bytes_);
        out.put(e);
        for (uint32_t w = 0; w < e.words; ++w) out.put(recv.applied.word(at + w));
        ++count;
        at += e.words;
    } while (at < words);
}

void Receiving::write_grant_frame(Peer& peer, uint32_t& count) {
    if (count == 0) return;
    ListFrame f{};
    f.start = shared_->start_of(peer, FrameKind::grant, sizeof f + grant_bytes_.size());
    f.count = count;
    f.entry_bytes = sizeof(GrantEntry);
    const std::array<Bytes, 2> parts{bytes_of_struct(f), Bytes(grant_bytes_)};
    peer.channel->write(Class::control, parts);
    grant_bytes_.clear();
    count = 0;
}

}  // namespace nexar::link
