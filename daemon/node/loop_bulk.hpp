// LoopBulk: the bulk endpoint that the control loop drives itself, for operations that are too long for its
// control connections' packets and too short for a hand-over to a shard (docs/protocol/tcp.md [B11]). To the
// engine it is one more mesh. Thread: the control loop's.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "engine/ports.hpp"
#include "loop/loop.hpp"
#include "shards/bulk_endpoint.hpp"

namespace nexar::node {

class LoopBulk final : public engine::MeshPort, private shards::BulkEndpoint::Listener {
  public:
    // In a cluster only; until then nothing that is posted has an addressee.
    Result<void> open(shards::BulkEndpointConfig config, loop::Loop& loop);
    void close(Time now);

    void apply(shards::Command command);
    // The two ends of a turn, as ControlPlane's. True: there was work.
    bool receive(Time now);
    bool send(Time now);
    std::optional<shards::Event> poll_event();
    Time wake_at() const;  // in the past: receive() is due at once
    bool is_due(Time now) const { return endpoint_ && endpoint_->wake_at() <= now; }  // bytes that wait
    link::TrafficCounts traffic() const;

    // engine::MeshPort
    void post(link::Batch batch) override { apply(std::move(batch)); }
    void withdraw(const link::OpKey& op) override { apply(shards::Withdraw{op}); }
    void retract(const link::OpKey& op) override { apply(shards::Retract{op}); }
    void forget_group(const GroupId& group) override { apply(shards::ForgetGroup{group}); }

  private:
    bool sent();
    void on_event(shards::Event event) override { events_.push_back(std::move(event)); }

    std::unique_ptr<shards::BulkEndpoint> endpoint_;  // null: in no cluster
    std::unique_ptr<loop::Loop::Watch> udp_watch_, tcp_watch_;
    std::deque<shards::Event> events_;
    bool is_due_ = false;       // something has come over TCP, or was asked, since the last receive()
    bool udp_is_due_ = false;   // the same over UDP
    Time udp_until_{};          // until then the turns look at the UDP socket, since something came lately
    uint64_t datagrams_ = 0;    // that have come
    bool may_send_ = false;     // since the last send() something was asked or has come
    bool wants_write_ = false;  // udp_watch_ includes writability
};

}  // namespace nexar::node
