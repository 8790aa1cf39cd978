// Shard: a bulk shard, one thread that drives a BulkEndpoint of its own. Each chunk runs to completion on it:
// receive, authenticate, reduce or copy while the chunk is in the cache, count. The control loop posts
// commands and polls events; there is no lock between them. While the thread sleeps without transfers, the
// loop may borrow the endpoint and drive it itself: for the peers nothing changes
// (docs/protocol/transfers.md [T8]).
//
// Thread: the public functions belong to the control loop, Shard::Thread to the shard's thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/spsc_queue.hpp"
#include "loop/wakeup.hpp"
#include "shards/bulk_endpoint.hpp"
#include "shards/lending.hpp"
#include "shards/loop_drive.hpp"

namespace nexar::shards {

struct ShardConfig : BulkEndpointConfig {
    Duration yield_window{50'000};
    uint32_t* at_work = nullptr;         // counts the shard while it has transfers that move (AtWork)
    Duration stalled_after{10'000'000};  // without work: they wait for something else than this shard
    loop::Loop* lends_to = nullptr;      // whose turns may drive the endpoint; null: only the thread does
};

class Shard final : public Lendable {
  public:
    // Binds the sockets before it starts the thread, so that a refused port is this call's error.
    static Result<std::unique_ptr<Shard>> start(const ShardConfig& config, loop::Wakeup& loop_wakeup);
    ~Shard();  // closes its connections, joins the thread
    Shard(const Shard&) = delete;
    Shard& operator=(const Shard&) = delete;

    quic::Address local_address() const;
    void post(Command command);
    std::optional<Event> poll_event();
    void flush();  // moves commands that found the queue full; Requires: called in each turn of the loop

    bool borrow() override;
    void give_back() override;
    bool is_offered() const override { return driver_.load(std::memory_order_relaxed) == Driver::offered; }
    void decline() override;
    bool is_borrowed() const override { return drive_.is_on(); }
    bool has_transfers() const override;
    bool has_visitors() const override;
    bool receive(Time now) override { return drive_.receive(now); }
    bool send(Time now) override { return drive_.send(now); }
    Time wake_at() const override { return drive_.wake_at(); }
    bool is_due(Time now) const override { return drive_.is_due(now); }

    // With all peers; those of one peer: KnownPeer::traffic. The shard counts in place, and is not asked.
    link::TrafficCounts traffic() const { return traffic_->read(); }

  private:
    class Thread;
    // Who may touch the endpoint. The thread parks it before it sleeps, and takes it again when it wakes,
    // unless the loop has borrowed it; where the loop wanted it before, the thread offers it after its last
    // transfer.
    enum class Driver : uint8_t { thread, parked, offered, loop };
    Shard(loop::Wakeup& loop_wakeup, loop::Loop* lends_to);

    SpscQueue<Command> commands_{4096};
    Outbox<Command> command_outbox_{commands_};
    SpscQueue<Event> events_{16384};
    Outbox<Event> event_outbox_{events_};  // the shard's side
    // The outbox holds what found the queue full: the consumer wakes the producer when it has made room.
    std::atomic<bool> commands_wait_{false}, events_wait_{false};
    loop::Wakeup wakeup_;        // wakes the shard
    loop::Wakeup* loop_wakeup_;  // wakes the control loop
    loop::Loop* lends_to_;       // ShardConfig
    std::atomic<bool> stopping_{false};
    std::atomic<Driver> driver_{Driver::thread};
    std::atomic<bool> wanted_{false};  // by the loop, which was refused
    LoopDrive drive_;                  // the loop's, while it has borrowed the endpoint
    std::unique_ptr<Thread> state_;    // everything that only the shard's thread uses
    std::shared_ptr<const link::Traffic> traffic_;
    std::thread thread_;
};

}  // namespace nexar::shards
