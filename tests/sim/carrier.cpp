// See carrier.hpp.
#include "carrier.hpp"

#include <algorithm>

namespace nexar::sim {

using connections::ClosedBy;
using connections::ConnectionId;

// One end of a connection.
struct SimPort::End final : connections::CarriedConnection {
    Internet* internet = nullptr;
    SimPort* port = nullptr;
    End* other = nullptr;
    ConnectionId id;
    bool we_dialled = false, open = true, ack_due = false;
    connections::Receiver* receiver = nullptr;
    std::unique_ptr<Pipe> out;  // to the other end
    Duration round_trip{};

    size_t room(Class cls) const override { return open ? out->room(cls) : 0; }
    void write(Class cls, std::span<const Bytes> parts) override {
        if (open) out->write(cls, parts);
    }
    connections::Progress progress(Class cls) const override { return out->progress(cls); }
    void close(uint64_t code, const std::string& reason) override { internet->close(*this, code, reason); }
    void hold_credit(bool) override {}
    void set_receiver(connections::Receiver* to) override { receiver = to; }
    Duration rtt() const override { return round_trip; }
    connections::CarrierKind kind() const override { return port->kind; }
};

struct Internet::Wire {
    SimPort::End ends[2];  // 0: the dialler's
};

Internet::Internet(Clock& clock, const NetworkShape& shape) : clock_(clock), shape_(shape) {}
Internet::~Internet() = default;

Duration Internet::delay() {
    return std::chrono::microseconds(50) + clock_.some(std::chrono::microseconds(500));
}

SimPort& Internet::open_port(const NodeId& node, const std::string& address) {
    SimPort& port = *ports_.emplace_back(std::make_unique<SimPort>());
    port.internet_ = this;
    port.node = node;
    port.address = address;
    return port;
}

Result<ConnectionId> SimPort::dial(Time, const std::string& to, const std::optional<NodeId>& expected) {
    ++dials;
    const ConnectionId id(internet_->next_connection_++);
    internet_->clock_.after(internet_->delay(), [this, id, to = to + dial_suffix, expected] {
        if (!dead) internet_->connect(*this, id, to, expected);
    });
    return id;
}

void Internet::connect(SimPort& from, ConnectionId id, const std::string& address,
                       const std::optional<NodeId>& expected) {
    const auto there = std::ranges::find_if(
        ports_, [&](const auto& port) { return !port->dead && port->address == address; });
    if (from.is_cut_ || (there != ports_.end() && (*there)->is_cut_)) return;
    if (there != ports_.end() && (*there)->refuses) {
        from.events->on_closed(clock_.now(), id, {0, "tcp refused", {}});
        return from.after_input();
    }
    if (there == ports_.end() || (expected && *expected != (*there)->node)) {
        from.events->on_closed(clock_.now(), id, {0, "no answer", "no such node there"});
        return from.after_input();
    }
    ++connections_made;
    Wire& wire = *wires_.emplace_back(std::make_unique<Wire>());
    SimPort* ports[] = {&from, there->get()};
    for (size_t i = 0; i < 2; ++i) {
        SimPort::End& end = wire.ends[i];
        end.internet = this;
        end.port = ports[i];
        end.other = &wire.ends[1 - i];
        end.id = i == 0 ? id : ConnectionId(next_connection_++);
        end.we_dialled = i == 0;
        end.round_trip = 2 * shape_.latency_min + shape_.jitter;
        ports[i]->ends_[end.id] = &end;
        make_pipe(end, *end.other);
    }
    for (const size_t i : {size_t{1}, size_t{0}}) {
        SimPort::End& end = wire.ends[i];
        const std::string remote = i == 0 ? address : from.address;
        end.port->events->on_connected(clock_.now(), {end.id, end.other->port->node, remote, i == 0}, end);
        end.port->after_input();
    }
}

namespace {

// As TCP does it: what has a place is put there.
void place(connections::Receiver& receiver, Class cls, Bytes bytes) {
    while (!bytes.empty()) {
        const MutableBytes at = receiver.place(cls);
        const size_t n = std::min(at.empty() ? size_t{128} : at.size(), bytes.size());
        if (at.empty()) {
            receiver.on_bytes(cls, bytes.first(n));
        } else {
            std::memcpy(at.data(), bytes.data(), n);
            receiver.placed(cls, n);
        }
        bytes = bytes.subspan(n);
    }
}

}  // namespace

void Internet::make_pipe(SimPort::End& from, SimPort::End& to) {
    from.out = sim::make_pipe(
        from.port->kind != connections::CarrierKind::quic, clock_, shape_,
        [this, &from, &to](Class cls, Bytes bytes) {
            if (to.port->dead || !to.open || !to.receiver) return;
            if (to.kind() == connections::CarrierKind::quic)
                to.receiver->on_bytes(cls, bytes);
            else
                place(*to.receiver, cls, bytes);
            to.port->events->on_received(to.id);
            to.port->after_input();
            if (cls == Class::control) acknowledge(from);
        },
        [&from] {
            if (from.port->dead || !from.open) return;
            from.port->events->on_room(from.id);
            from.port->after_input();
        });
}

// QUIC acknowledges what has come; that is a packet, too.
void Internet::acknowledge(SimPort::End& end) {
    if (std::exchange(end.ack_due, true)) return;
    clock_.after(delay(), [&end] {
        end.ack_due = false;
        if (end.port->dead || !end.open || end.port->is_cut_ || end.other->port->is_cut_) return;
        end.port->events->on_received(end.id);
        end.port->after_input();
    });
}

// What was sent before arrives before, if the pipe lets it.
void Internet::close(SimPort::End& end, uint64_t code, const std::string& reason) {
    if (!std::exchange(end.open, false)) return;
    SimPort::End* other = end.other;
    clock_.after(Duration{0}, [this, &end, code, reason] { closed(end, {code, "closed here", reason}); });
    if (end.port->is_cut_ || other->port->is_cut_) return;  // the other end learns nothing
    clock_.after(delay(), [this, other, code, reason] {
        if (std::exchange(other->open, false)) closed(*other, {code, "closed by the peer", reason});
    });
}

void Internet::closed(SimPort::End& end, const ClosedBy& why) {
    end.out->close();
    end.port->ends_.erase(end.id);
    if (end.port->dead) return;
    end.port->events->on_closed(clock_.now(), end.id, why);
    end.port->after_input();
}

void SimPort::kill(const std::vector<const SimPort*>& unaware) {
    dead = true;
    for (const auto& [id, end] : std::map(ends_)) {
        if (std::ranges::find(unaware, end->other->port) == unaware.end()) internet_->close(*end, 0, "reset");
        end->out->close();
    }
}

void SimPort::reset(const SimPort& other) {
    for (const auto& [id, end] : std::map(ends_))
        if (end->other->port == &other) internet_->close(*end, 0, "reset");
}

void SimPort::cut() {
    is_cut_ = true;
    for (const auto& [id, end] : ends_)
        for (End* side : {end, end->other}) side->out->set_blocked(true);
}

std::optional<ConnectionId> SimPort::other_end(ConnectionId id) const {
    const auto at = ends_.find(id);
    if (at == ends_.end() || !at->second->open || !at->second->other->open) return std::nullopt;
    return at->second->other->id;
}

}  // namespace nexar::sim
