// Two ends of a TCP connection over memory, which may break, pause or change the bytes between them.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "quic/tls.hpp"
#include "support/test_certs.hpp"
#include "tcp/connection.hpp"
#include "tcp/plain_stream.hpp"
#include "tcp/tls_stream.hpp"

namespace nexar::test {

using tcp::ByteWire;

inline const CertificateAuthority& authority() {
    static const CertificateAuthority made("root");
    return made;
}
inline const CertificateAuthority& other_authority() {
    static const CertificateAuthority made("other root");
    return made;
}

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random.next());
    return out;
}

// One direction.
struct Pipe {
    std::vector<std::byte> bytes;
    size_t room = 1u << 20;
    bool ended = false;
    uint64_t passed = 0;
};

struct MemoryWire final : ByteWire {
    Pipe *in, *out;
    size_t piece = SIZE_MAX;  // at most so many bytes for each call
    bool broken = false;
    size_t calls = 0;               // that received
    std::function<void()> on_send;  // before each call
    MemoryWire(Pipe& i, Pipe& o) : in(&i), out(&o) {}
    Moved receive(MutableBytes into) override {
        ++calls;
        if (broken) return {0, State::broken};
        const size_t n = std::min({into.size(), in->bytes.size(), piece});
        if (n == 0) return {0, in->ended ? State::ended : State::blocked};
        std::copy_n(in->bytes.begin(), n, into.begin());
        in->bytes.erase(in->bytes.begin(), in->bytes.begin() + static_cast<ptrdiff_t>(n));
        return {n, State::moved};
    }
    Moved receive_two(MutableBytes first, MutableBytes second) override {
        Moved moved = receive(first);
        const size_t left = std::min(second.size(), piece - std::min(piece, moved.bytes));
        if (moved.state == State::moved && moved.bytes == first.size() && left > 0) {
            --calls;
            moved.bytes += receive(second.first(left)).bytes;
        }
        return moved;
    }
    Moved send(Bytes bytes) override {
        if (on_send) on_send();
        if (broken) return {0, State::broken};
        const size_t n = std::min({bytes.size(), out->room - std::min(out->room, out->bytes.size()), piece});
        if (n == 0) return {};
        out->bytes.insert(out->bytes.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
        out->passed += n;
        return {n, State::moved};
    }
    std::string why() const override { return "broken for the test"; }
};

struct Keys final : tcp::KeyRing {
    std::map<NodeId, tcp::AttachKeys> rows;
    const tcp::AttachKeys* keys_of(const NodeId& node) const override {
        const auto at = rows.find(node);
        return at == rows.end() ? nullptr : &at->second;
    }
};

struct End final : tcp::ByteReceiver {
    Leaf leaf;
    Keys keys;
    tcp::Shared shared;
    std::shared_ptr<quic::TlsContext> context;
    MemoryWire wire;
    std::unique_ptr<tcp::Connection> machine;
    std::map<Class, std::vector<std::byte>> got;
    size_t deliveries = 0;
    bool places = false;  // what follows the first 120 bytes of a class is put where this end wants it
    size_t bytes_placed = 0;
    std::vector<std::byte> place_of_all = std::vector<std::byte>(50'000);
    Random random;

    End(Pipe& in, Pipe& out, uint64_t seed, const CertificateAuthority& issuer = authority())
        : leaf(issuer.issue("node" + std::to_string(seed))), wire(in, out), random(seed) {
        shared.self = leaf.id;
        shared.incarnation = {1, seed};
        shared.keys = &keys;
        shared.reads_far = seed % 2 == 0;  // one end of each pair
        shared.random = [this](MutableBytes into) {
            for (std::byte& b : into) b = static_cast<std::byte>(random.next());
        };
        quic::Identity identity{leaf.certificate_pem, leaf.private_key_pem, authority().certificate_pem()};
        quic::Config config;
        config.alpns = {std::string(tcp::alpn_bulk)};
        context = *quic::TlsContext::make(
            identity, config,
            [](const quic::PeerChain& chain, std::string_view) { return node_id_of(chain.front()); });
    }
    void start(tcp::Mode mode, std::optional<NodeId> dial) {
        std::unique_ptr<tcp::Stream> stream;
        if (mode == tcp::Mode::tls)
            stream = std::make_unique<tcp::TlsStream>(wire, context, dial.has_value(), dial);
        else
            stream = std::make_unique<tcp::PlainStream>(wire, dial.has_value());
        std::optional<tcp::Connection::Dial> order;
        if (dial) order = tcp::Connection::Dial{*dial, mode};
        machine = std::make_unique<tcp::Connection>(shared, std::move(stream), mode, order);
        machine->set_receiver(this);
    }
    void turn(Time now, size_t quantum = 1u << 20) {
        machine->on_readable(now, quantum);
        machine->flush(now, quantum);
    }
    void on_bytes(Class cls, Bytes bytes) override {
        ++deliveries;
        auto& to = got[cls];
        to.insert(to.end(), bytes.begin(), bytes.end());
    }
    MutableBytes place(Class cls) override {
        if (!places || got[cls].size() < 120) return {};
        return MutableBytes(place_of_all).first(1 + random.below(place_of_all.size()));
    }
    void placed(Class cls, size_t bytes) override {
        bytes_placed += bytes;
        auto& to = got[cls];
        to.insert(to.end(), place_of_all.begin(), place_of_all.begin() + static_cast<ptrdiff_t>(bytes));
    }
};

struct TcpPair {
    Pipe forth, back;
    End a, b;  // a dials
    Time now = Time{} + Duration{1'000'000'000};
    static tcp::AttachKey key(unsigned char n) {
        tcp::AttachKey out;
        out.fill(std::byte{n});
        return out;
    }
    explicit TcpPair(const CertificateAuthority& issuer_of_a = authority())
        : a(back, forth, 1, issuer_of_a), b(forth, back, 2) {
        introduce(key(7), key(7));
    }
    void introduce(const tcp::AttachKey& at_a, const tcp::AttachKey& at_b) {
        a.keys.rows[b.leaf.id].add(b.shared.incarnation, at_a);
        b.keys.rows[a.leaf.id].add(a.shared.incarnation, at_b);
    }
    void start(tcp::Mode mode = tcp::Mode::tls) {
        a.start(mode, b.leaf.id);
        b.start(mode, std::nullopt);
    }
    void run(int turns = 60) {
        for (int i = 0; i < turns; ++i) {
            a.turn(now);
            b.turn(now);
            now += Duration{1'000'000};
        }
    }
    bool open() const { return a.machine->is_open() && b.machine->is_open() && !ended(); }
    bool ended() const { return a.machine->ended() || b.machine->ended(); }
};

}  // namespace nexar::test
