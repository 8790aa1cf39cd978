// Two bulk shards over real loopback sockets. The test's thread is the control loop of both.
#pragma once

#include <poll.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <map>

#include "connections/channels.hpp"
#include "loop/loop.hpp"
#include "shards/shard.hpp"
#include "support/test_certs.hpp"
#include "support/transfers.hpp"
#include "transport/quic_carrier.hpp"
#include "transport/quic_port.hpp"

namespace nexar::shards::test {

using namespace std::chrono_literals;
using loop::Loop;

inline const nexar::test::CertificateAuthority& ca() {
    static const nexar::test::CertificateAuthority one("root");
    return one;
}
inline Result<NodeId> judge(const quic::PeerChain& chain, std::string_view) {
    return nexar::test::node_id_of(chain.front());
}

// Holds a shard's thread in the middle of a turn: in the check of a certificate.
struct Gate {
    std::atomic<bool> closed{false}, held{false};

    quic::Verifier verifier() {
        return [this](const quic::PeerChain& chain, std::string_view name) {
            held = closed.load();
            closed.wait(true);
            return judge(chain, name);
        };
    }
    void open() {
        closed = false;
        closed.notify_all();
    }
};

struct Terminal {
    int done = 0, failed = 0;
    bool over() const { return done + failed > 0; }
};

struct Node {
    nexar::test::Leaf leaf = ca().issue("node");
    Incarnation incarnation;
    loop::Wakeup wakeup;  // outlives the shard
    Gate gate;            // the same
    std::unique_ptr<Shard> shard;
    uint32_t at_work = 0;  // the same: counts the shard while it has transfers that move
    Duration stalled_after = std::chrono::hours(1);
    std::shared_ptr<link::Traffic> traffic = std::make_shared<link::Traffic>();  // with the other
    std::map<uint64_t, Terminal> ends;
    std::vector<std::string> garbage, downs;
    size_t ups = 0;

    quic::Identity identity() const {
        return {leaf.certificate_pem, leaf.private_key_pem, ca().certificate_pem()};
    }
    void start(uint64_t counter, Duration yield_window = 50us) {
        static uint64_t nonces = 7;  // each incarnation of each node has its own
        incarnation = {counter, ++nonces};
        ShardConfig c;
        c.listen = *quic::Address::parse("127.0.0.1:0");
        c.identity = identity();
        c.verifier = gate.verifier();
        c.self = leaf.id;
        c.incarnation = incarnation;
        c.mesh.incarnation = incarnation.nonce;
        c.yield_window = yield_window;
        c.at_work = &at_work;
        c.stalled_after = stalled_after;
        auto made = Shard::start(std::move(c), wakeup);
        if (!made) FAIL(made.error().text);
        shard = std::move(*made);
    }
    uint32_t working() { return std::atomic_ref(at_work).load(); }
    void collect() {
        while (auto event = shard->poll_event()) {
            if (auto* state = std::get_if<connections::BulkState>(&*event)) {
                ups += state->up;
                if (!state->up && ups > 0) downs.push_back(state->why);  // not yet up: at the introduction
            } else if (auto* e = std::get_if<link::MeshEvent>(&*event)) {
                using Kind = link::MeshEvent::Kind;
                if (e->kind == Kind::done) ++ends[e->handle].done;
                if (e->kind == Kind::failed) ++ends[e->handle].failed;
                if (e->kind == Kind::peer_garbage) garbage.push_back(e->text);
            }
        }
        shard->flush();
    }
    size_t over() const {
        size_t n = 0;
        for (const auto& [handle, end] : ends) n += end.over();
        return n;
    }
    // Every transfer ended once.
    bool each_once() const {
        for (const auto& [handle, end] : ends)
            if (end.done + end.failed != 1) return false;
        return true;
    }
    size_t failed() const {
        size_t n = 0;
        for (const auto& [handle, end] : ends) n += static_cast<size_t>(end.failed);
        return n;
    }
};

constexpr link::PeerIndex peer_a(5), peer_b(9);  // a's number at b, b's number at a

struct Pair {
    Node a, b;
    std::function<void()> also;  // once per turn

    Pair() {
        a.start(1);
        b.start(1);
    }
    connections::KnownPeer of_a(bool dial) const {
        return {peer_a, a.leaf.id, a.incarnation, a.shard->local_address().text(), dial, b.traffic};
    }
    connections::KnownPeer of_b(bool dial) const {
        return {peer_b, b.leaf.id, b.incarnation, b.shard->local_address().text(), dial, a.traffic};
    }
    // b dials.
    void introduce() {
        a.shard->post(of_b(false));
        b.shard->post(of_a(true));
        REQUIRE(run([&] { return a.ups > 0 && b.ups > 0; }));
    }
    template <class Done>
    bool run(Done done, Duration limit = 20s) {
        const Time end = Loop::now() + limit;
        while (true) {
            for (Node* n : {&a, &b}) {
                n->wakeup.awake();
                n->wakeup.drain();
                n->wakeup.announce_sleep();
                n->collect();
            }
            if (also) also();
            if (done()) return true;
            if (Loop::now() > end) return false;
            pollfd p[2] = {{a.wakeup.fd(), POLLIN, 0}, {b.wakeup.fd(), POLLIN, 0}};
            poll(p, 2, also ? 1 : 100);
        }
    }
};

using nexar::test::key;
using nexar::test::Transfers;

}  // namespace nexar::shards::test
