// The transfer table alone, under a one-sided carrier: a chunk is written straight into the memory that a
// grant named, and a completion reports it. Random schedules, compared with a reference.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <map>

#include "core/random.hpp"
#include "link/transfer_table.hpp"
#include "support/regions.hpp"

// The table includes no carrier's header: frame.hpp and channel.hpp would declare these [T1].
namespace nexar::link {
struct FrameStart {};
struct Channel {};
struct StreamPeer {};
}  // namespace nexar::link

namespace nexar::link::test {

namespace {

constexpr size_t none = ~size_t{0};

struct Planned {
    TransferKey key;
    size_t from = 0;
    Class cls = Class::bulk;
    std::vector<std::byte> source, target, again;  // again: where a receive goes that is posted anew
    uint32_t chunk_bytes = 64;
    size_t send_at = 0, recv_at = 0, retract_at = none, withdraw_at[2] = {none, none};
    size_t forward_of = none;  // the transfer whose chunks this one passes on

    std::vector<uint32_t> placed;  // times that each chunk came into the memory of the posted receive
    size_t sends_done = 0, sends_failed = 0, recvs_done = 0, recvs_failed = 0;
    bool retracted = false, withdrawn = false;
    uint64_t handle(size_t attempt) const { return key.op.op * 4 + attempt; }
};

struct Write {  // a chunk in flight
    ChunkHeader header;
    RemoteMemory remote;  // zero: eager, it travels with its header to whatever receive there is
    std::vector<std::byte> bytes;
};

struct Side {
    explicit Side(const TableConfig& config) : table(config, events), peer(&table.peer(PeerIndex(0))) {}
    Events events;
    TransferTable table;
    PeerTransfers* peer;                        // the other side
    std::deque<std::function<void()>> control;  // to the other side, in order
    std::vector<Write> writes;                  // to the other side, in any order
    uint64_t batches_processed = 0;
};

class Model {
  public:
    Model(uint64_t seed, const TableConfig& config) : random_(seed), sides_{Side(config), Side(config)} {
        plan();
        connect();
    }

    void run() {
        for (now_ = 0; now_ < 400; ++now_) {
            post_due();
            step();
            if (random_.one_in(60)) reconnect();
        }
        for (size_t idle = 0; idle < 200; ++now_) {
            post_due();
            idle = step() ? 0 : idle + 1;
        }
        for (const Planned& t : transfers_) check_end(t);
    }

  private:
    void plan() {
        for (uint64_t op = 1; op <= 24; ++op) {
            Planned t;
            t.key.op.group = GroupId{1, 2, 1 + op % 3};
            t.key.op.op = op;
            t.from = random_.below(2);
            t.cls = random_.one_in(2) ? Class::bulk : Class::small;
            t.chunk_bytes = static_cast<uint32_t>(64 * (1 + random_.below(3)));
            const size_t bytes = 1 + random_.below(random_.one_in(3) ? 100 : 9000);
            t.source.resize(bytes);
            for (std::byte& b : t.source) b = static_cast<std::byte>(random_.next());
            t.target.resize(bytes);
            t.again.resize(bytes);
            t.send_at = random_.below(300);
            t.recv_at = random_.below(300);
            if (random_.one_in(5)) t.retract_at = t.recv_at + random_.below(100);
            if (random_.one_in(6)) t.withdraw_at[0] = 100 + random_.below(250);
            if (random_.one_in(6)) t.withdraw_at[1] = 100 + random_.below(250);
            const bool withdrawn = t.withdraw_at[0] != none || t.withdraw_at[1] != none;
            if (withdrawn)  // by both in the end: the table does not decide that
                for (size_t& at : t.withdraw_at)
                    if (at == none) at = 360;
            t.withdrawn = withdrawn;
            transfers_.push_back(std::move(t));
        }
        for (size_t i = 0; i + 1 < transfers_.size(); i += 6) chain(i, i + 1);
        for (Planned& t : transfers_) t.placed.resize(chunks_of(t.source.size(), t.chunk_bytes));
    }
    // The second passes on what the first receives.
    void chain(size_t first, size_t second) {
        Planned &a = transfers_[first], &b = transfers_[second];
        for (Planned* t : {&a, &b}) {
            t->retract_at = t->withdraw_at[0] = t->withdraw_at[1] = none;
            t->withdrawn = false;
        }
        b.from = 1 - a.from;
        b.chunk_bytes = a.chunk_bytes;
        b.source = a.source;
        b.target.resize(a.source.size());
        b.forward_of = first;
        b.send_at = a.recv_at;
    }

    void post_due() {
        for (size_t i = 0; i < transfers_.size(); ++i) {
            Planned& t = transfers_[i];
            Side &from = sides_[t.from], &to = sides_[1 - t.from];
            if (t.send_at == now_ && t.forward_of == none) post_send(t, from);
            if (t.recv_at == now_) post_recv(t, to, passes_on(i));
            if (t.retract_at == now_) retract(t, to);
            for (size_t s = 0; s < 2; ++s)
                if (t.withdraw_at[s] == now_) sides_[s].table.withdraw(t.key.op);
        }
    }
    Planned* passes_on(size_t first) {
        const bool chained = first + 1 < transfers_.size() && transfers_[first + 1].forward_of == first;
        return chained ? &transfers_[first + 1] : nullptr;
    }
    Send* post_send(Planned& t, Side& from, bool ready = true) {
        SendSpec spec;
        spec.key = t.key;
        spec.cls = t.cls;
        spec.chunk_bytes = t.chunk_bytes;
        spec.ready = ready;
        spec.memory = {{nexar::test::place_of(t.source.data()), t.source.size()}};
        return from.table.sends.post(*from.peer, std::move(spec), t.handle(0));
    }
    void post_recv(Planned& t, Side& to, Planned* forward) {
        RecvSpec spec;
        spec.key = t.key;
        spec.cls = t.cls;
        spec.chunk_bytes = t.chunk_bytes;
        spec.anew = t.retracted;
        std::vector<std::byte>& memory = t.retracted ? t.again : t.target;
        spec.memory = {{nexar::test::place_of(memory.data()), memory.size()}};
        Send* next = nullptr;
        if (forward != nullptr) {
            forward->source = t.target;  // the same bytes once they are here
            next = post_send(*forward, to, false);
        }
        EarlyChunks early;
        Recv* recv =
            to.table.recvs.post(*to.peer, std::move(spec), t.handle(t.retracted ? 2 : 1), next, early);
        for (const auto& [number, chunk] : early)
            if (!place(to, *recv, chunk.header, chunk.bytes)) break;
    }
    void retract(Planned& t, Side& to) {
        collect(to);
        if (t.recvs_done != 0) return;
        to.table.retract(t.key.op);
        t.retracted = true;
        std::fill(t.placed.begin(), t.placed.end(), 0);
        collect(to);
        post_recv(t, to, nullptr);
    }

    // One thing happens. False: nothing was left to happen.
    bool step() {
        bool any = false;
        for (Side& side : sides_) {
            if (random_.one_in(3)) take_lists(side);
            any |= take_chunk(side);
        }
        const size_t s = random_.below(2);
        any |= deliver_control(s) || deliver_control(1 - s);
        any |= deliver_write(1 - s) || deliver_write(s);
        for (Side& side : sides_) {
            any |= side.peer->is_due;
            collect(side);
            side.table.check_invariants();
            for (Send* x = side.peer->sends.front(); x != nullptr; x = side.peer->sends.after(*x))
                if (!x->granted && x->remote != RemoteMemory{})
                    FAIL_CHECK("a send names memory without a grant");
        }
        return any;
    }

    void take_lists(Side& side) {
        side.table.take_due([&](PeerTransfers& peer) {
            Side& to = other(side);
            const uint64_t seen = side.batches_processed;
            side.control.push_back(
                [&to, seen] { CHECK(to.table.recvs.on_acks_seen(*to.peer, seen) == nullptr); });
            send_acks(side, to, peer.due);
            for (const ChunkRange& r : std::exchange(peer.due.nacks, {}))
                side.control.push_back([&to, r] { CHECK(to.table.sends.on_nack(*to.peer, r) == nullptr); });
            for (const ChunkRange& r : std::exchange(peer.due.asks, {}))
                side.control.push_back([&to, r] { to.table.recvs.on_ask(*to.peer, r.key); });
            if (std::exchange(peer.due.asks_end, false))
                side.control.push_back([&to] { to.table.recvs.on_asks_ended(*to.peer); });
            for (const Weak<Recv>& weak : std::exchange(peer.due.grants, {}))
                if (Recv* recv = weak.get()) send_grant(side, to, *recv);
        });
    }
    void send_acks(Side& side, Side& to, Due& due) {
        if (due.acks.empty()) return;
        for (const ChunkRange& r : due.acks) {
            const Planned& t = of(r.key);
            for (uint32_t i = r.first; !t.retracted && i < r.first + r.count; ++i)
                CHECK(t.placed[i] == 1);  // [W5]
            side.control.push_back([&to, r] { CHECK(to.table.sends.on_ack(*to.peer, r) == nullptr); });
        }
        side.control.push_back([&to] { ++to.batches_processed; });
        side.table.recvs.acks_taken(*side.peer);
    }
    void send_grant(Side& side, Side& to, Recv& recv) {
        Grant grant = side.table.recvs.take_grant(recv);
        const std::vector<uint64_t> words(grant.words.begin(), grant.words.end());
        grant.memory = {recv.handle, side.peer->generation};
        side.control.push_back([&to, grant, words]() mutable {
            grant.words = words;
            to.table.sends.on_grant(*to.peer, grant);
        });
    }

    bool take_chunk(Side& side) {
        for (auto& ready : side.peer->due.ready) {
            Send* send = ready.front();
            if (send == nullptr) continue;
            Write w;
            const uint32_t chunk = side.table.sends.take(*send);
            w.header = {send->key, send->terms(), chunk};
            // A send that is not eager has what the newest grant of this generation named [T3].
            if (!send->eager) {
                w.remote = send->remote;
                CHECK(w.remote.address == side.peer->generation);
            }
            send->memory.pieces(w.header.offset(), w.header.payload(), [&](const std::byte* data, size_t n) {
                w.bytes.insert(w.bytes.end(), data, data + n);
            });
            side.writes.push_back(std::move(w));
            return true;
        }
        return false;
    }
    bool deliver_control(size_t from) {
        if (sides_[from].control.empty()) return false;
        const auto message = std::move(sides_[from].control.front());
        sides_[from].control.pop_front();
        message();
        return true;
    }
    bool deliver_write(size_t from) {
        std::vector<Write>& writes = sides_[from].writes;
        if (writes.empty()) return false;
        std::swap(writes[random_.below(writes.size())], writes.back());
        const Write w = std::move(writes.back());
        writes.pop_back();
        Side& to = sides_[1 - from];
        Recv** posted = to.peer->recv_of.find(w.header.key);
        // The key of a receive that has ended is revoked: such a write reaches no memory [T2].
        const bool revoked = posted == nullptr || (*posted)->handle != w.remote.key;
        if (w.remote != RemoteMemory{} && revoked) return true;
        Recv* recv = nullptr;
        const Arrival arrival = to.table.recvs.arrive(*to.peer, w.header, recv);
        if (arrival == Arrival::place) place(to, *recv, w.header, w.bytes);
        if (arrival == Arrival::buffer) {
            std::vector<std::byte> bytes = w.bytes;
            if (Recv* late = to.table.recvs.keep(*to.peer, w.header, std::move(bytes)))
                place(to, *late, w.header, w.bytes);
        }
        return true;
    }
    bool place(Side& to, Recv& recv, const ChunkHeader& header, const std::vector<std::byte>& bytes) {
        Planned& t = of(header.key);
        return to.table.recvs.apply(recv, header.chunk, [&] {
            ++t.placed[header.chunk];
            size_t at = 0;
            recv.memory.pieces(header.offset(), bytes.size(), [&](std::byte* data, size_t n) {
                std::memcpy(data, bytes.data() + at, n);
                at += n;
            });
            Planned* next = passes_on(static_cast<size_t>(&t - transfers_.data()));
            if (next != nullptr)
                std::memcpy(next->source.data() + header.offset(), bytes.data(), bytes.size());
        });
    }

    void collect(Side& side) {
        while (!side.events.empty()) {
            const MeshEvent e = std::move(side.events.front());
            side.events.pop_front();
            Planned& t = of(e.key);
            const bool done = e.kind == MeshEvent::Kind::done;
            CHECK((done || e.kind == MeshEvent::Kind::failed));
            if (e.handle == t.handle(0)) {
                ++(done ? t.sends_done : t.sends_failed);
                if (done)
                    for (const uint32_t times : t.placed) CHECK(times == 1);  // [W5]
            } else {
                ++(done ? t.recvs_done : t.recvs_failed);
            }
        }
    }
    void check_end(const Planned& t) {
        INFO("op " << t.key.op.op << (t.withdrawn ? " withdrawn" : "") << (t.retracted ? " retracted" : ""));
        CHECK(t.sends_done + t.sends_failed == 1);
        CHECK(t.recvs_done + t.recvs_failed == (t.retracted ? 2 : 1));
        if (t.withdrawn) return;
        CHECK(t.sends_done == 1);
        CHECK(t.recvs_done == 1);
        CHECK((t.retracted ? t.again : t.target) == t.source);
        for (const uint32_t times : t.placed) CHECK(times == 1);  // [W3]
    }

    void connect() {
        ++generation_;
        for (Side& side : sides_) {
            side.control.clear();
            side.writes.clear();
            side.batches_processed = 0;
            side.table.begin_generation(*side.peer, generation_);
        }
    }
    void reconnect() {
        for (Side& side : sides_) side.table.end_generation(*side.peer);
        connect();
    }
    Side& other(Side& side) { return &side == &sides_[0] ? sides_[1] : sides_[0]; }
    Planned& of(const TransferKey& key) { return transfers_[key.op.op - 1]; }

    Random random_;
    std::array<Side, 2> sides_;
    std::vector<Planned> transfers_;  // op i + 1 is transfers_[i]
    size_t now_ = 0;
    uint32_t generation_ = 0;
};

TableConfig config_for(uint64_t seed) {
    TableConfig config;
    config.eager_bytes_max = seed % 3 == 0 ? 0 : 2000;
    if (seed % 2 == 0) config.eager_room_per_group = 600;
    if (seed % 5 == 0) config.wanted_per_group_max = config.grants_per_group_max = 1;
    return config;
}

}  // namespace

TEST_CASE("a one-sided carrier applies each chunk once, also over breaks, withdrawals and retractions",
          "[T1][T2][T3][T4][T5][W3][W5][W6]") {
    const auto run = [](uint64_t seed) {
        INFO("seed " << seed);
        Model(seed, config_for(seed)).run();
    };
    for (uint64_t seed = 1; seed <= 1000; ++seed) run(seed);
    run(1780);  // a receive is posted anew while its group keeps as many early grants as it may
}

}  // namespace nexar::link::test
