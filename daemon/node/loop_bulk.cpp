// See loop_bulk.hpp.
#include "node/loop_bulk.hpp"

#include <utility>

namespace nexar::node {

namespace {

constexpr Duration looks_for{1'000'000};  // after a datagram

}  // namespace

Result<void> LoopBulk::open(shards::BulkEndpointConfig config, loop::Loop& loop) {
    NEXAR_TRY(endpoint_, shards::BulkEndpoint::open(std::move(config)));
    udp_watch_ =
        loop.watch(endpoint_->udp_fd(), true, false, [this](loop::Loop::Ready) { udp_is_due_ = true; });
    if (endpoint_->tcp_fd() >= 0)
        tcp_watch_ =
            loop.watch(endpoint_->tcp_fd(), true, false, [this](loop::Loop::Ready) { is_due_ = true; });
    return {};
}

void LoopBulk::close(Time now) {
    udp_watch_.reset();
    tcp_watch_.reset();
    if (endpoint_) endpoint_->close(now);
    endpoint_.reset();
    events_.clear();
    is_due_ = udp_is_due_ = may_send_ = wants_write_ = false;
    datagrams_ = 0;
}

void LoopBulk::apply(shards::Command command) {
    if (!endpoint_) return;
    endpoint_->apply(loop::Loop::now(), std::move(command));
    is_due_ = may_send_ = true;
}

// While transfers are in flight it looks at its sockets in each turn, at the one of UDP only if that carries;
// otherwise the loop's poll reports what comes, so that an idle endpoint costs the turns nothing.
bool LoopBulk::receive(Time now) {
    if (!endpoint_) return false;
    if (!events_.empty()) return true;  // the engine takes them first
    const bool looks_at_udp = std::exchange(udp_is_due_, false) || now < udp_until_;
    // What send() did may have ended connections.
    const bool is_due =
        std::exchange(is_due_, false) || may_send_ || looks_at_udp || endpoint_->wake_at() <= now;
    if (!is_due && !endpoint_->has_transfers()) return false;
    may_send_ = true;
    const size_t work = endpoint_->receive(now, *this, looks_at_udp);
    if (datagrams_ != std::exchange(datagrams_, endpoint_->datagrams_received()))
        udp_until_ = now + looks_for;
    return work > 0;
}

bool LoopBulk::send(Time now) {
    if (!endpoint_ || !may_send_) return false;
    may_send_ = endpoint_->send(now);
    return sent();
}

bool LoopBulk::sent() {
    if (endpoint_->udp_wants_writable() != wants_write_) {
        wants_write_ = endpoint_->udp_wants_writable();
        udp_watch_->want(true, wants_write_);
    }
    return may_send_;
}

std::optional<shards::Event> LoopBulk::poll_event() {
    if (events_.empty()) return {};
    std::optional<shards::Event> out(std::move(events_.front()));
    events_.pop_front();
    return out;
}

Time LoopBulk::wake_at() const {
    if (!endpoint_) return never;
    return is_due_ || udp_is_due_ || may_send_ || !events_.empty() ? Time{} : endpoint_->wake_at();
}

link::TrafficCounts LoopBulk::traffic() const {
    return endpoint_ ? endpoint_->traffic()->read() : link::TrafficCounts{};
}

}  // namespace nexar::node
