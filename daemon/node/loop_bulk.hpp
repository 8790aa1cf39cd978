// LoopBulk: the bulk endpoint that is the control loop's own, for operations that are too long for its
// control connections' packets and too short for a hand-over to a shard (docs/protocol/tcp.md [B11]). To the
// engine it is one more mesh. Thread: the control loop's.
#pragma once

#include <memory>
#include <optional>

#include "engine/ports.hpp"
#include "shards/loop_drive.hpp"

namespace nexar::node {

class LoopBulk final : public engine::MeshPort {
  public:
    // In a cluster only; until then nothing that is posted has an addressee.
    Result<void> open(shards::BulkEndpointConfig config, loop::Loop& loop);
    void close(Time now);

    void apply(shards::Command command) { drive_.apply(std::move(command)); }
    // The two ends of a turn, as ControlPlane's. True: there was work.
    bool receive(Time now) { return drive_.receive(now); }
    bool send(Time now) { return drive_.send(now); }
    std::optional<shards::Event> poll_event() { return drive_.poll_event(); }
    Time wake_at() const { return drive_.wake_at(); }
    bool is_due(Time now) const { return drive_.is_due(now); }
    link::TrafficCounts traffic() const;

    // engine::MeshPort
    void post(link::Batch batch) override { apply(std::move(batch)); }
    void withdraw(const link::OpKey& op) override { apply(shards::Withdraw{op}); }
    void retract(const link::OpKey& op) override { apply(shards::Retract{op}); }
    void forget_group(const GroupId& group) override { apply(shards::ForgetGroup{group}); }

  private:
    std::unique_ptr<shards::BulkEndpoint> endpoint_;  // null: in no cluster
    shards::LoopDrive drive_;
};

}  // namespace nexar::node
