// See placement.hpp; docs/protocol/wire.md [W2] [W3] [W7].
#include "link/placement.hpp"

#include "reduce/reduce.hpp"

namespace nexar::link {

namespace {

// Finding the place of a shorter run costs more than copying its bytes once more.
constexpr size_t run_bytes_min = 1024;

void combine(Recv& recv, size_t offset, Bytes payload) {
    recv.memory.pieces(offset, payload.size(), [&](std::byte* to, size_t n) {
        if (recv.reduce)
            reduce::reduce_into(to, payload.data(), n / reduce::size_of(recv.reduce->dtype),
                                recv.reduce->dtype, recv.reduce->op);
        else
            std::memcpy(to, payload.data(), n);
        payload = payload.subspan(n);
    });
}

}  // namespace

void Placement::begin(StreamPeer& peer, Stream& stream) {
    stream.sink = Stream::Sink::drop;
    stream.got = 0;
    Recv* recv = nullptr;
    switch (state_->table->recvs.arrive(*peer.transfers, stream.chunk, recv)) {
        case Arrival::drop:
            break;
        case Arrival::place:
            stream.recv = Weak<Recv>(*recv);
            stream.sink = recv->reduce ? Stream::Sink::stage : Stream::Sink::copy;
            break;
        case Arrival::buffer:
            stream.sink = Stream::Sink::buffer;
            stream.body.clear();
            stream.body.reserve(stream.chunk.payload());  // at most eager_bytes_max
            break;
    }
}

void Placement::feed(Stream& stream, Bytes bytes) {
    const size_t at = stream.got;
    stream.got += static_cast<uint32_t>(bytes.size());
    if (stream.sink == Stream::Sink::buffer) {
        stream.body.insert(stream.body.end(), bytes.begin(), bytes.end());
        return;
    }
    if (stream.sink == Stream::Sink::drop) return;
    Recv* r = stream.recv.get();
    if (r == nullptr) {  // withdrawn while this frame arrived [W7]
        stream.sink = Stream::Sink::drop;
        return;
    }
    if (stream.sink == Stream::Sink::copy) {
        r->memory.pieces(stream.chunk.offset() + at, bytes.size(), [&](std::byte* to, size_t n) {
            std::memcpy(to, bytes.data(), n);
            bytes = bytes.subspan(n);
        });
        return;
    }
    if (bytes.size() == stream.chunk.payload()) {  // the whole payload at once: it is not buffered
        apply_whole(*r, stream.chunk, bytes);
        stream.sink = Stream::Sink::drop;
        return;
    }
    if (!stream.stage) stream.stage = state_->take_stage();
    std::memcpy(stream.stage.get() + at, bytes.data(), bytes.size());
}

MutableBytes Placement::place(Stream& stream) {
    Recv* r = stream.recv.get();
    if (r == nullptr || (stream.sink != Stream::Sink::copy && stream.sink != Stream::Sink::stage)) return {};
    const size_t left = stream.chunk.payload() - stream.got;
    if (stream.sink == Stream::Sink::stage) {
        if (!stream.stage) stream.stage = state_->take_stage();
        return {stream.stage.get() + stream.got, left};
    }
    const MutableBytes run = r->memory.first_piece(stream.chunk.offset() + stream.got, left);
    return run.size() >= run_bytes_min || run.size() == left ? run : MutableBytes();
}

void Placement::end(StreamPeer& peer, Stream& stream) {
    const ChunkHeader& chunk = stream.chunk;
    RecvTable& recvs = state_->table->recvs;
    Recv* r = stream.recv.get();
    switch (stream.sink) {
        case Stream::Sink::drop:
            break;
        case Stream::Sink::copy:
            if (r != nullptr) recvs.apply(*r, chunk.chunk, [] {});
            break;
        case Stream::Sink::stage:
            if (r != nullptr) apply_whole(*r, chunk, {stream.stage.get(), chunk.payload()});
            break;
        case Stream::Sink::buffer:
            if (Recv* posted = recvs.keep(*peer.transfers, chunk, std::move(stream.body)))
                apply_whole(*posted, chunk, stream.body);
            break;
    }
    state_->give_stage(std::move(stream.stage));
    stream.recv = {};
    stream.sink = Stream::Sink::drop;
}

// Read and marked again here: a hostile peer may have sent the same chunk on another class stream meanwhile.
bool Placement::apply_whole(Recv& recv, const ChunkHeader& chunk, Bytes payload) {
    return state_->table->recvs.apply(recv, chunk.chunk, [&] {
        combine(recv, chunk.offset(), payload);
        if (state_->config.sabotage.apply_chunk_twice) combine(recv, chunk.offset(), payload);
    });
}

bool Placement::apply_early(Recv& recv, const EarlyChunk& early) {
    return state_->table->recvs.agrees(recv, early.header.terms) &&
           apply_whole(recv, early.header, early.bytes);
}

void Placement::on_channel_lost(StreamPeer& peer) {
    for (Stream& s : peer.streams) {
        state_->give_stage(std::move(s.stage));
        s = Stream{};
    }
}

}  // namespace nexar::link
