// LoopDrive: the control loop drives a BulkEndpoint in its own turns: its own one (LoopBulk) always, a
// shard's while that is lent (Shard::borrow). Thread: the control loop's.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "loop/loop.hpp"
#include "shards/bulk_endpoint.hpp"

namespace nexar::shards {

class LoopDrive final : private BulkEndpoint::Listener {
  public:
    // Requires: the endpoint is there until end().
    void begin(BulkEndpoint& endpoint, loop::Loop& loop);
    void end();  // events that nobody has polled stay
    bool is_on() const { return endpoint_ != nullptr; }

    void apply(Command command);
    // The two ends of a turn, as ControlPlane's. True: there was work.
    bool receive(Time now);
    bool send(Time now);
    std::optional<Event> poll_event();
    void drop_events() { events_.clear(); }
    Time wake_at() const;  // in the past: receive() is due at once
    bool is_due(Time now) const { return endpoint_ && endpoint_->wake_at() <= now; }  // bytes that wait
    bool udp_is_due() const { return udp_is_due_; }  // something has come over UDP since the last receive()

  private:
    void on_event(Event event) override { events_.push_back(std::move(event)); }
    void watch_room();

    BulkEndpoint* endpoint_ = nullptr;  // null: it drives none
    std::unique_ptr<loop::Loop::Watch> udp_watch_, tcp_watch_;
    std::deque<Event> events_;
    bool is_due_ = false;       // something has come over TCP, or was asked, since the last receive()
    bool udp_is_due_ = false;   // the same over UDP
    Time udp_until_{};          // until then the turns look at the UDP socket, since something came lately
    uint64_t datagrams_ = 0;    // that have come
    bool may_send_ = false;     // since the last send() something was asked or has come
    bool wants_write_ = false;  // udp_watch_ includes writability
};

}  // namespace nexar::shards
