// A carrier that records what it is asked for; the test plays the network and the peers.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "connections/carrier.hpp"
#include "connections/opening.hpp"
#include "wire/codec.hpp"

namespace nexar::connections {

struct FakeCarrier final : Carrier {
    struct Conn final : CarriedConnection {
        std::vector<std::byte> written;  // in control
        std::optional<std::pair<uint64_t, std::string>> closed;
        bool is_held = false;
        Receiver* receiver = nullptr;
        Duration round_trip{};
        uint64_t acknowledged = 0;  // of what is written in control
        Progress bulk;
        CarrierKind is = CarrierKind::quic;

        size_t room(Class) const override { return 1 << 20; }
        void write(Class cls, std::span<const Bytes> parts) override {
            if (cls != Class::control) return;
            for (const Bytes part : parts) written.insert(written.end(), part.begin(), part.end());
        }
        Progress progress(Class cls) const override {
            if (cls != Class::control) return cls == Class::bulk ? bulk : Progress{};
            return {written.size(), acknowledged};
        }
        void close(uint64_t code, const std::string& reason) override { closed = {code, reason}; }
        void hold_credit(bool held) override { is_held = held; }
        void set_receiver(Receiver* to) override { receiver = to; }
        Duration rtt() const override { return round_trip; }
        CarrierKind kind() const override { return is; }

        void receive(Bytes bytes) { receiver->on_bytes(Class::control, bytes); }
        void receive(const Preamble& preamble) {
            const auto bytes = to_bytes(preamble);
            receive(Bytes(bytes));
        }
        void receive_greeting(const wire::Message& message) {
            const auto bytes = wire::encode(message);
            receive_length(static_cast<uint32_t>(bytes.size()));
            receive(Bytes(bytes));
        }
        void receive_length(uint32_t length) { receive(std::as_bytes(std::span(&length, 1))); }
        // What this side wrote first.
        Preamble preamble() const {
            Preamble out;
            std::memcpy(static_cast<void*>(&out), written.data(), sizeof out);
            return out;
        }
    };
    struct Dialled {
        ConnectionId id;
        std::string address;
        std::optional<NodeId> expected;
    };

    std::map<ConnectionId, Conn> conns;
    std::vector<Dialled> dials;
    bool refuses = false;  // to dial
    uint64_t next = 1;
    CarrierKind kind = CarrierKind::quic;
    CarrierEvents* events = nullptr;

    Result<ConnectionId> dial(Time, const std::string& address,
                              const std::optional<NodeId>& expected) override {
        if (refuses) return fail(Errc::invalid_argument, "no such kind of address");
        const ConnectionId id(next++);
        dials.push_back({id, address, expected});
        return id;
    }
    // A peer's dial, or, with `id`, the answer to one of ours.
    Conn& connect(const NodeId& node, Time now, std::optional<ConnectionId> id = std::nullopt) {
        const ConnectionId made = id ? *id : ConnectionId(next++);
        Conn& conn = conns[made];
        conn.is = kind;
        last = made;
        events->on_connected(now, {made, node, "there:1", id.has_value()}, conn);
        return conn;
    }
    void close(ConnectionId id, Time now, const std::string& why = "cut", uint64_t code = 0,
               bool by_peer = true) {
        events->on_closed(now, id, {code, "closed by the peer", why, by_peer});
        conns.erase(id);
    }
    ConnectionId last;  // connected
};

inline Preamble preamble_of(Incarnation incarnation, uint32_t generation, Purpose purpose = Purpose::control,
                            uint16_t shard = 0) {
    Preamble out;
    out.purpose = purpose;
    out.generation = generation;
    out.shard = shard;
    out.incarnation = incarnation;
    return out;
}

}  // namespace nexar::connections
