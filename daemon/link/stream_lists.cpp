// StreamWriter, the lists that leave in the control stream: acks, nacks, asks and grants, coalesced.
#include "link/stream_writer.hpp"

namespace nexar::link {

// A chunk or an entry that was received adds at most one range to a list, and at its end a full list leaves
// (write_full_lists). Each class may have a chunk in flight.
static_assert(Due::ranges_max + class_count <= ranges_per_frame, "a batch of acks is one frame");

void StreamWriter::write_lists(StreamPeer& peer) {
    if (peer.channel == nullptr) return;
    Due& due = peer.transfers->due;
    if (state_->table->acks_leave(*peer.transfers)) {
        write_ranges(peer, FrameKind::ack, due.acks, 0);
        state_->table->recvs.acks_taken(*peer.transfers);
    }
    if (!due.nacks.empty()) write_ranges(peer, FrameKind::nack, due.nacks, 0);
    if (!due.asks.empty() || due.asks_end)
        write_ranges(peer, FrameKind::ask, due.asks, due.asks_end ? ask_last : 0);
    due.nacks.clear();
    due.asks.clear();
    due.asks_end = false;
    if (!due.grants.empty()) write_grants(peer);
}

void StreamWriter::write_ranges(StreamPeer& peer, FrameKind kind, const std::vector<ChunkRange>& ranges,
                                uint32_t last_flags) {
    size_t at = 0;
    do {
        const size_t n = std::min(ranges.size() - at, ranges_per_frame);
        const size_t entry_bytes = n * sizeof(RangeEntry);
        entries_.clear();
        for (size_t i = at; i < at + n; ++i)
            entries_.push_back({to_wire(ranges[i].key), ranges[i].first, ranges[i].count});
        ListFrame f{};
        f.start = state_->start_of(peer, kind, sizeof f + entry_bytes);
        f.count = static_cast<uint32_t>(n);
        f.flags = static_cast<uint16_t>(at + n == ranges.size() ? last_flags : 0);
        const Bytes entries(reinterpret_cast<const std::byte*>(entries_.data()), entry_bytes);
        const std::array<Bytes, 2> parts{bytes_of_struct(f), entries};
        put(peer, Class::control, parts);
        at += n;
    } while (at < ranges.size());
}

void StreamWriter::write_grants(StreamPeer& peer) {
    uint32_t count = 0;
    grant_bytes_.clear();
    for (const Weak<Recv>& weak : peer.transfers->due.grants)
        if (Recv* r = weak.get()) add_grant(peer, state_->table->recvs.take_grant(*r), count);
    write_grant_frame(peer, count);
    peer.transfers->due.grants.clear();
}

// One entry, or several if the bitmap is long.
void StreamWriter::add_grant(StreamPeer& peer, const Grant& grant, uint32_t& count) {
    const auto words = static_cast<uint32_t>(grant.words.size());
    GrantEntry e{};
    e.key = to_wire(grant.key);
    e.plan_hash = grant.terms.agreement.plan_hash;
    e.descriptor_hash = grant.terms.agreement.descriptor_hash;
    e.bytes = grant.terms.bytes;
    e.chunk_bytes = grant.terms.chunk_bytes;
    uint32_t at = 0;
    do {
        e.first_word = at;
        e.words = std::min(words - at, grant_words_max);
        e.flags = (at + e.words < words ? grant_more : 0) | (grant.anew && at == 0 ? grant_anew : 0);
        const size_t need = sizeof e + e.words * sizeof(uint64_t);
        if (sizeof(ListFrame) + grant_bytes_.size() + need > list_bytes_max) write_grant_frame(peer, count);
        Writer out(grant_bytes_);
        out.put(e);
        for (uint32_t w = 0; w < e.words; ++w) out.put(grant.words[at + w]);
        ++count;
        at += e.words;
    } while (at < words);
}

void StreamWriter::write_grant_frame(StreamPeer& peer, uint32_t& count) {
    if (count == 0) return;
    ListFrame f{};
    f.start = state_->start_of(peer, FrameKind::grant, sizeof f + grant_bytes_.size());
    f.count = count;
    f.entry_bytes = sizeof(GrantEntry);
    const std::array<Bytes, 2> parts{bytes_of_struct(f), Bytes(grant_bytes_)};
    put(peer, Class::control, parts);
    grant_bytes_.clear();
    count = 0;
}

void StreamWriter::write_confirmation(StreamPeer& peer) {
    if (peer.acks_processed - peer.acks_confirmed < unconfirmed_acks_max) return;
    ListFrame f{};
    f.start = state_->start_of(peer, FrameKind::nack, sizeof f);
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    put(peer, Class::control, parts);
}

}  // namespace nexar::link
