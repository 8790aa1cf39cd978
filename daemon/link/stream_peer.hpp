// The state of the stream carrier: one peer's streams, queues and counters; and what the carrier's parts
// share.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "link/channel.hpp"
#include "link/control_log.hpp"
#include "link/frame.hpp"
#include "link/mesh_config.hpp"
#include "link/overtaking.hpp"
#include "link/traffic.hpp"
#include "link/transfer_table.hpp"

namespace nexar::link {

// One incoming class stream.
struct Stream {
    enum class State : uint8_t { head, data_head, body, payload, skip };
    enum class Sink : uint8_t { drop, copy, stage, buffer };
    State state = State::head;
    Sink sink = Sink::drop;
    std::array<std::byte, header_bytes_max> head;
    size_t head_bytes = 0;
    uint64_t left = 0;            // bytes of this frame still to come, after what `head` holds
    ChunkHeader chunk;            // while in payload
    uint32_t got = 0;             // of the payload
    Weak<Recv> recv;              // copy, stage
    std::vector<std::byte> body;  // a message or a list; buffer: the chunk
    std::unique_ptr<std::byte[]> stage;
};

struct StreamPeer {
    StreamPeer(PeerTransfers& t, const ControlLogConfig& log_config) : transfers(&t), log(log_config) {}

    PeerTransfers* transfers;  // its rows of the table; never null
    ControlLog log;
    bool resume_due = false;  // the first frame of the log on this connection is not written yet
    bool log_broken = false;  // the peer broke a rule of the log: it is discarded with the channel
    uint64_t wrote_in_turn = 0;
    Channel* channel = nullptr;  // null: none
    uint64_t incarnation = 0;
    bool attached_once = false;
    bool incarnation_known = false;
    std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();  // with this peer; never null
    std::array<Stream, class_count> streams;

    std::deque<std::vector<std::byte>> messages;    // whole frames but for their start; wait for room
    size_t message_bytes = 0;                       // of `messages`
    std::array<size_t, class_count> passed_over{};  // bytes of higher classes since its last chunk

    Overtaking overtaking;  // on `channel`

    uint64_t acks_processed = 0;  // the peer's ack frames of this generation
    uint64_t acks_confirmed = 0;  // the newest acks_processed that we have sent in a header

    PeerIndex index() const { return transfers->index; }
};

// Acks that we have processed and not confirmed in any header: beyond this an empty nack confirms them.
constexpr uint64_t unconfirmed_acks_max = 64;

struct StreamState {
    StreamState(const MeshConfig& c, TransferTable& t, Events& e) : config(c), table(&t), events(&e) {}

    MeshEvent& emit(MeshEvent::Kind kind, const StreamPeer& peer) {
        MeshEvent& e = events->emplace_back();
        e.kind = kind;
        e.peer = peer.index();
        return e;
    }
    void touch(StreamPeer& peer) { table->touch(*peer.transfers); }
    FrameStart start_of(StreamPeer& peer, FrameKind kind, uint64_t bytes_of_frame);

    void count_sent(StreamPeer& peer, Class cls, uint64_t bytes, uint64_t payload) {
        peer.traffic->sent(cls, bytes, payload);
        total->sent(cls, bytes, payload);
    }
    void count_received(StreamPeer& peer, Class cls, uint64_t bytes, uint64_t payload) {
        peer.traffic->received(cls, bytes, payload);
        total->received(cls, bytes, payload);
    }

    void discard_log(StreamPeer& peer, const std::string& why);  // from this side
    void log_discarded(StreamPeer& peer, const std::string& why, bool by_peer);
    void report_room(StreamPeer& peer);  // if a reserve() waits for it

    std::unique_ptr<std::byte[]> take_stage();
    void give_stage(std::unique_ptr<std::byte[]> stage) {
        if (stage) stages_.push_back(std::move(stage));
    }

    const MeshConfig config;
    TransferTable* table;
    Events* events;
    const std::shared_ptr<Traffic> total = std::make_shared<Traffic>();  // with all peers
    uint64_t turn = 1;                                                   // ends with flush()

  private:
    std::vector<std::unique_ptr<std::byte[]>> stages_;  // of chunk_bytes_max each, not in use
};

}  // namespace nexar::link
