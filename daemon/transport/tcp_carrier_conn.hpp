// One connection of a TcpCarrier; only its own files include this.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/tcp_carrier.hpp"

namespace nexar::transport {

class TcpCarrier::Conn final : public connections::CarriedConnection, private tcp::ByteReceiver {
  public:
    Conn(TcpCarrier& carrier, uint64_t number, TcpSocket wire, const quic::Address& other)
        : id(number), socket(std::move(wire)), remote(other), carrier_(&carrier) {}

    // ---- The carrier's.
    const uint64_t id;
    TcpSocket socket;
    const quic::Address remote;
    std::unique_ptr<tcp::Connection> machine;  // null: it is being connected, or nothing was read yet
    std::optional<tcp::Connection::Dial> dialled;
    bool connecting = false;
    bool connected = false;  // reported
    bool closed = false;     // reported, or never to be
    bool lingers = false;
    bool is_touched = false, is_unread = false;
    bool is_full = false;      // the kernel took less than it was given, and has not reported room since
    bool was_refused = false;  // room, as the turn's share is spent
    bool waits = false;        // in handshakes_wait_
    std::byte first{};         // that has come, of one that was accepted; valid once has_sent
    bool has_sent = false;
    uint32_t interest = 0;
    std::string failure;  // of the dial, or of watching its socket
    Duration round_trip{};
    uint64_t received = 0;  // bytes, when on_received() was reported last
    std::optional<Time> ack_at;
    Time rate_at{};        // when to look at the socket's rate again
    size_t discarded = 0;  // bytes, since it lingers

    // ---- connections::CarriedConnection
    size_t room(Class cls) const override;
    void write(Class cls, std::span<const Bytes> parts) override {
        const uint64_t before = machine->write_work();
        machine->write(cls, parts);
        carrier_->writing_.spend(machine->write_work() - before);
        carrier_->touch(*this);
    }
    connections::Progress progress(Class cls) const override {
        return {machine->written(cls), machine->acknowledged(cls)};
    }
    void close(uint64_t code, const std::string& reason) override {
        machine->close(code, reason);
        carrier_->touch(*this);
    }
    void hold_credit(bool held) override {
        machine->hold_credit(held);
        carrier_->read_again(*this);
    }
    void set_receiver(connections::Receiver* receiver) override {
        receiver_ = receiver;
        machine->set_receiver(receiver ? this : nullptr);
        carrier_->read_again(*this);
    }
    Duration rtt() const override { return round_trip; }
    connections::CarrierKind kind() const override {
        return machine->mode() == tcp::Mode::tls ? connections::CarrierKind::tcp
                                                 : connections::CarrierKind::tcp_plain;
    }

  private:
    void on_bytes(Class cls, Bytes bytes) override {
        if (receiver_) receiver_->on_bytes(cls, bytes);
    }
    MutableBytes place(Class cls) override { return receiver_ ? receiver_->place(cls) : MutableBytes(); }
    void placed(Class cls, size_t bytes) override { receiver_->placed(cls, bytes); }
    TcpCarrier* carrier_;
    connections::Receiver* receiver_ = nullptr;
};

}  // namespace nexar::transport
