// A node with bulk connections over both carriers, to one peer, which the test plays.
#pragma once

#include <string>
#include <vector>

#include "connections/bulk.hpp"
#include "fake_carrier.hpp"
#include "nodes.hpp"

namespace nexar::connections {

inline const NodeId self = node_id(5), high = node_id(9);
inline constexpr link::PeerIndex peer{3};
inline constexpr Incarnation incarnation{1, 7};

struct BulkFixture {
    FakeCarrier quic, tcp;
    link::Mesh mesh{link::MeshConfig{}};
    BulkConnections bulk;
    std::vector<BulkState> states;
    std::vector<std::byte> memory = std::vector<std::byte>(64);
    Region region{RegionId(1), RegionKind::scratch, {}, {memory.data(), memory.size(), {}, nullptr}};
    uint32_t generation = 3;

    static BulkConfig config() {
        BulkConfig out;
        out.self = self;
        out.incarnation = {1, 1};
        return out;
    }
    explicit BulkFixture(const BulkConfig& of = config()) : bulk(of, quic, mesh, &tcp) {
        tcp.kind = CarrierKind::tcp;
        tcp.next = uint64_t{1} << 63;
        for (FakeCarrier* carrier : {&quic, &tcp}) carrier->events = &bulk.events();
    }
    void turn(int ms) {
        bulk.on_time(at_ms(ms));
        bulk.check_invariants();
        while (auto state = bulk.poll_event()) states.push_back(*state);
    }
    void introduce(int ms, bool has_tcp = true, const std::string& address = "there:2", bool dial = true) {
        bulk.introduce({peer, high, incarnation, address, dial, nullptr, has_tcp}, at_ms(ms));
        turn(ms);
    }
    ConnectionId answer(FakeCarrier& carrier, int ms) {
        const ConnectionId id = carrier.dials.back().id;
        carrier.connect(high, at_ms(ms), id)
            .receive(preamble_of(incarnation, generation += 2, Purpose::bulk));
        turn(ms);
        return id;
    }
    // A transfer that waits for the peer.
    void wait_for_peer(int ms) {
        link::RecvSpec recv;
        recv.key.op.group = GroupId{1, 2, 3};
        recv.from = peer;
        recv.agreement = {11, 22};
        recv.memory.push_back({{&region, 0}, memory.size()});
        link::Batch batch;
        batch.first_handle = 1;
        batch.recvs.push_back(recv);
        mesh.post(std::move(batch));
        turn(ms);
    }
    // To `to`, with a probe answered every 100 ms: by packets, and by acknowledgements of control only.
    // Returns when the connection was closed here; -1: it was not.
    int crawl(ConnectionId id, int from, int to) {
        FakeCarrier& carrier = tcp.conns.contains(id) ? tcp : quic;
        for (int ms = from; ms < to; ms += 100) {
            FakeCarrier::Conn& conn = carrier.conns.at(id);
            if (conn.closed) return ms;
            conn.acknowledged = conn.written.size();
            bulk.events().on_received(id);
            turn(ms);
        }
        return -1;
    }
    // Until its pause is 10 s; returns when that is.
    int refuse_tcp(int ms) {
        for (size_t failed = 1; failed < 8; ++ms) {
            const size_t before = tcp.dials.size();
            turn(ms);
            if (tcp.dials.size() == before) continue;
            refuse(tcp, ms, "tcp refused");
            ++failed;
        }
        return ms;
    }
    void refuse(FakeCarrier& carrier, int ms, const std::string& cause) {
        bulk.events().on_closed(at_ms(ms), carrier.dials.back().id, {0, cause, {}, false});
        turn(ms);
    }
};

}  // namespace nexar::connections
