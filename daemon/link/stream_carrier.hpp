// StreamCarrier: moves the chunks of a transfer table, messages and the control log as frames over the
// streams of channels (docs/protocol/wire.md). It takes what is due from the table and reports to it what
// arrived; the table does not know it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "link/stream_reader.hpp"

namespace nexar::link {

class StreamCarrier {
  public:
    StreamCarrier(const MeshConfig& config, TransferTable& table, Events& events)
        : state_(config, table, events),
          placement_(state_),
          writer_(state_),
          reader_(state_, placement_, writer_) {}

    StreamPeer& peer(PeerIndex index);
    StreamPeer* find_peer(PeerIndex index) const {
        return index.value < peers_.size() ? peers_[index.value].get() : nullptr;
    }

    void attach(StreamPeer& peer, uint32_t generation, Channel& channel);
    void lose_channel(StreamPeer& peer);
    void forget_incarnation(StreamPeer& peer);  // its control log goes with it

    void on_bytes(StreamPeer& peer, Class cls, Bytes bytes);
    MutableBytes place(StreamPeer& peer, Class cls);
    void placed(StreamPeer& peer, Class cls, size_t bytes);
    void on_room(StreamPeer& peer) { writer_.pump(peer); }
    void apply_early(Recv& recv, const EarlyChunks& chunks);

    bool send_message(StreamPeer& peer, Bytes message);
    void append(StreamPeer& peer, Bytes message, std::optional<Account> account);
    void release(StreamPeer& peer, Account account, size_t bytes);
    void discard_log(StreamPeer& peer, const std::string& why);
    void on_polled(StreamPeer& peer, size_t bytes);  // a message of the log, which counts as applied

    void write(StreamPeer& peer);  // everything that is due
    void end_turn() { ++state_.turn; }
    std::shared_ptr<const Traffic> traffic() const { return state_.total; }
    void check_invariants() const;  // for tests; walks all peers

  private:
    StreamState state_;
    Placement placement_;
    StreamWriter writer_;
    StreamReader reader_;
    std::vector<std::unique_ptr<StreamPeer>> peers_;  // by PeerIndex; null: unknown
};

}  // namespace nexar::link
