// See loop_drive.hpp.
#include "shards/loop_drive.hpp"

#include <utility>

#include "core/check.hpp"

namespace nexar::shards {
namespace {

constexpr Duration looks_for{1'000'000};  // after a datagram

}  // namespace

void LoopDrive::begin(BulkEndpoint& endpoint, loop::Loop& loop) {
    NEXAR_CHECK(!endpoint_);
    endpoint_ = &endpoint;
    is_due_ = may_send_ = true;  // the one who drove it may have left something for its next turn
    datagrams_ = endpoint.datagrams_received();
    udp_watch_ =
        loop.watch(endpoint.udp_fd(), true, false, [this](loop::Loop::Ready) { udp_is_due_ = true; });
    if (endpoint.tcp_fd() >= 0)
        tcp_watch_ =
            loop.watch(endpoint.tcp_fd(), true, false, [this](loop::Loop::Ready) { is_due_ = true; });
}

void LoopDrive::end() {
    udp_watch_.reset();
    tcp_watch_.reset();
    endpoint_ = nullptr;
    is_due_ = udp_is_due_ = may_send_ = wants_write_ = false;
    udp_until_ = {};
}

void LoopDrive::apply(Command command) {
    if (!endpoint_) return;
    endpoint_->apply(loop::Loop::now(), std::move(command));
    is_due_ = may_send_ = true;
}

// While transfers are in flight it looks at its sockets in each turn, at the one of UDP only if that carries;
// otherwise the loop's poll reports what comes, so that an idle endpoint costs the turns nothing.
bool LoopDrive::receive(Time now) {
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

bool LoopDrive::send(Time now) {
    if (!endpoint_ || !may_send_) return false;
    may_send_ = endpoint_->send(now);
    watch_room();
    return may_send_;
}

void LoopDrive::watch_room() {
    if (endpoint_->udp_wants_writable() == wants_write_) return;
    wants_write_ = endpoint_->udp_wants_writable();
    udp_watch_->want(true, wants_write_);
}

std::optional<Event> LoopDrive::poll_event() {
    if (events_.empty()) return {};
    std::optional<Event> out(std::move(events_.front()));
    events_.pop_front();
    return out;
}

Time LoopDrive::wake_at() const {
    if (!events_.empty()) return {};
    if (!endpoint_) return never;
    return is_due_ || udp_is_due_ || may_send_ ? Time{} : endpoint_->wake_at();
}

}  // namespace nexar::shards
