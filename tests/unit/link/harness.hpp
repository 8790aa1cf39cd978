// A network in memory for Meshes: channels of limited room, bytes split at random, classes that overtake one
// another, channels that break. All from one seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "link/frame.hpp"
#include "link/mesh.hpp"
#include "support/longer_frames.hpp"
#include "support/regions.hpp"

namespace nexar::link::test {

inline PeerIndex peer(size_t i) {
    return PeerIndex(static_cast<uint32_t>(i));
}

inline TransferKey key(uint64_t group, uint64_t op, uint32_t phase = 0) {
    TransferKey k;
    k.op.group = GroupId{1, 2, group};
    k.op.op = op;
    k.phase = phase;
    return k;
}

// One direction of one channel.
class Wire final : public Channel {
  public:
    std::array<std::deque<std::byte>, class_count> streams;
    std::array<size_t, class_count> capacity{1 << 20, 1 << 20, 1 << 20, 1 << 20};
    std::vector<std::pair<Class, FrameKind>> written;  // one entry per frame, in order of writing
    std::vector<std::vector<std::byte>> frames;        // kept if keep_frames
    std::array<size_t, 10> frames_of_kind{};
    bool keep_frames = false;
    bool is_ahead = false;  // its end is of a later version, with longer frames [V3]

    size_t room(Class cls) const override {
        const size_t used = streams[index(cls)].size();
        return used < capacity[index(cls)] ? capacity[index(cls)] - used : 0;
    }
    size_t held(Class cls) const override { return streams[index(cls)].size(); }
    void write(Class cls, std::span<const Bytes> parts) override {
        std::vector<std::byte> whole;
        for (Bytes part : parts) whole.insert(whole.end(), part.begin(), part.end());
        const auto start = read_at<FrameStart>(whole, 0);
        if (start.length + length_bytes != whole.size()) ++malformed;
        if (cls != Class::control && whole.size() > room(cls)) ++over_room;
        written.emplace_back(cls, static_cast<FrameKind>(start.kind));
        ++frames_of_kind[start.kind];
        if (is_ahead) whole = nexar::test::longer(whole);
        auto& stream = streams[index(cls)];
        stream.insert(stream.end(), whole.begin(), whole.end());
        if (keep_frames) frames.push_back(std::move(whole));
    }
    static size_t index(Class cls) { return static_cast<size_t>(cls); }

    size_t malformed = 0;
    size_t over_room = 0;
};

struct Terminal {
    size_t done = 0, failed = 0, mismatch = 0;
};

class Net {
  public:
    Net(size_t nodes, uint64_t seed, MeshConfig config = {}) : random(seed) {
        for (size_t i = 0; i < nodes; ++i) {
            config.incarnation = 1000 + i;
            meshes.push_back(std::make_unique<Mesh>(config));
        }
        wires.resize(nodes * nodes);
        up.resize(nodes * nodes);
        generations.resize(nodes * nodes);
        ends.resize(nodes);
        slow_class = random.below(class_count + 1);
        for (size_t a = 0; a < nodes; ++a)
            for (size_t b = 0; b < a; ++b) connect(a, b);
    }

    Mesh& operator[](size_t node) { return *meshes[node]; }
    Wire& wire(size_t from, size_t to) { return *wires[from * meshes.size() + to]; }
    bool is_up(size_t from, size_t to) const { return up[from * meshes.size() + to]; }

    // A new channel between two nodes, replacing what there is: all bytes in flight are lost.
    void connect(size_t a, size_t b) {
        const size_t ab = a * meshes.size() + b, ba = b * meshes.size() + a;
        generations[ab] = generations[ba] = generations[ab] + 1;
        for (const size_t i : {ab, ba}) {
            std::unique_ptr<Wire> fresh = std::make_unique<Wire>();
            if (wires[i]) {
                fresh->capacity = wires[i]->capacity;
                fresh->keep_frames = wires[i]->keep_frames;
                fresh->is_ahead = wires[i]->is_ahead;
                old_wires.push_back(std::move(wires[i]));  // the mesh still points to it until attach()
            }
            wires[i] = std::move(fresh);
            up[i] = true;
        }
        meshes[a]->attach(peer(b), generations[ab], *wires[ab]);
        meshes[b]->attach(peer(a), generations[ab], *wires[ba]);
        old_wires.clear();
    }
    void disconnect(size_t a, size_t b) {
        for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
            meshes[x]->detach(peer(y));
            up[x * meshes.size() + y] = false;
            for (auto& stream : wire(x, y).streams) stream.clear();
        }
    }
    // The node is of a later version.
    void set_ahead(size_t node) {
        for (size_t to = 0; to < meshes.size(); ++to)
            if (to != node) wire(node, to).is_ahead = true;
    }
    void set_capacity(size_t bytes) {
        for (auto& w : wires)
            if (w) w->capacity = {bytes, bytes, bytes, bytes};
    }

    // Delivers a random piece of a random stream. False: nothing is in flight, also after a flush.
    bool step() {
        if (random.one_in(4)) random.one_in(2) ? flush() : flush_some();
        if (deliver_random()) return true;
        flush();
        return deliver_random();
    }
    // To the end, or to a bound that no test comes near.
    bool run(size_t steps_max = 2'000'000) {
        for (size_t i = 0; i < steps_max; ++i)
            if (!step()) return true;
        return false;
    }
    void flush() {
        for (size_t i = 0; i < meshes.size(); ++i) {
            meshes[i]->flush();
            meshes[i]->check_invariants();
            collect(i);
        }
    }
    // As threads do that have more to do: acks that no sender awaits may wait [T6].
    void flush_some() {
        now += Duration(static_cast<int64_t>(random.below(500'000)));
        for (size_t i = 0; i < meshes.size(); ++i) {
            meshes[i]->flush(now);
            meshes[i]->check_invariants();
            collect(i);
        }
    }
    void collect(size_t node) {
        while (auto e = meshes[node]->poll_event()) {
            Terminal& t = ends[node][e->handle];
            if (e->kind == MeshEvent::Kind::done) ++t.done;
            if (e->kind == MeshEvent::Kind::failed) ++t.failed;
            if (e->kind == MeshEvent::Kind::mismatch) ++t.mismatch;
            if (e->kind == MeshEvent::Kind::peer_garbage) garbage.push_back(e->text);
            if (e->kind == MeshEvent::Kind::message) messages.emplace_back(node, e->bytes);
            if (e->kind == MeshEvent::Kind::log_discarded) discarded.emplace_back(node, e->by_peer);
            if (e->kind == MeshEvent::Kind::log_room) ++rooms;
        }
    }
    Terminal end_of(size_t node, uint64_t handle) { return ends[node][handle]; }
    bool done(size_t node, uint64_t handle) {
        const Terminal t = end_of(node, handle);
        return t.done == 1 && t.failed == 0;
    }
    bool wires_are_sound() {
        for (auto& w : wires)
            if (w && (w->malformed != 0 || w->over_room != 0)) return false;
        return true;
    }

    Random random;
    std::vector<std::unique_ptr<Mesh>> meshes;
    std::vector<std::unique_ptr<Wire>> wires, old_wires;  // wires[from * nodes + to]
    std::vector<bool> up;
    std::vector<uint32_t> generations;
    std::vector<std::map<uint64_t, Terminal>> ends;  // per node, by handle
    std::vector<std::string> garbage;
    std::vector<std::pair<size_t, std::vector<std::byte>>> messages;
    std::vector<std::pair<size_t, bool>> discarded;  // control logs: at which node, and by its peer
    size_t rooms = 0;
    Time now{Duration{1'000'000'000}};
    size_t slow_class = class_count;
    size_t piece_max = 4096;

  private:
    // As a carrier that copies nothing, or as one that does.
    void feed(Mesh& mesh, PeerIndex from, Class cls, Bytes bytes) {
        while (!bytes.empty()) {
            const MutableBytes place = random.one_in(2) ? mesh.place(from, cls) : MutableBytes();
            const size_t most = place.empty() ? bytes.size() : std::min(place.size(), bytes.size());
            const size_t n = 1 + random.below(most);
            if (place.empty()) {
                mesh.on_bytes(from, cls, bytes.first(n));
            } else {
                std::memcpy(place.data(), bytes.data(), n);
                mesh.placed(from, cls, n);
            }
            bytes = bytes.subspan(n);
        }
    }
    bool deliver_random() {
        std::vector<std::array<size_t, 3>> busy;
        for (size_t from = 0; from < meshes.size(); ++from)
            for (size_t to = 0; to < meshes.size(); ++to)
                for (size_t c = 0; c < class_count; ++c)
                    if (from != to && is_up(from, to) && !wire(from, to).streams[c].empty())
                        busy.push_back({from, to, c});
        if (busy.empty()) return false;
        std::array<size_t, 3> at = busy[random.below(busy.size())];
        if (at[2] == slow_class && !random.one_in(8)) at = busy[random.below(busy.size())];
        deliver(at[0], at[1], static_cast<Class>(at[2]), 1 + random.below(random.one_in(2) ? 64 : piece_max));
        return true;
    }

  public:
    void deliver(size_t from, size_t to, Class cls, size_t bytes_max) {
        auto& stream = wire(from, to).streams[Wire::index(cls)];
        const size_t n = std::min(bytes_max, stream.size());
        const auto end = stream.begin() + static_cast<std::ptrdiff_t>(n);
        const std::vector<std::byte> piece(stream.begin(), end);
        stream.erase(stream.begin(), end);
        feed(*meshes[to], peer(from), cls, piece);
        meshes[to]->check_invariants();
        collect(to);
        if (is_up(from, to)) meshes[from]->on_room(peer(to));
        meshes[from]->check_invariants();
        collect(from);
    }
};

// Memory in extents with canaries between them.
class Memory {
  public:
    static constexpr std::byte canary{0xA5};

    // element: extents end only at multiples of it.
    Memory(Random& random, size_t bytes, size_t element = 4, size_t extents_max = 4) {
        size_t left = bytes;
        std::vector<size_t> sizes;
        const size_t n = 1 + random.below(extents_max);
        for (size_t i = 0; i + 1 < n; ++i) {
            const size_t take = random.below(left / element + 1) * element;
            sizes.push_back(take);
            left -= take;
        }
        sizes.push_back(left);
        size_t total = gap;
        for (size_t s : sizes) total += s + gap;
        bytes_.assign(total, canary);
        size_t at = gap;
        for (size_t s : sizes) {
            extents_.push_back({nexar::test::place_of(bytes_.data() + at), s});
            at += s + gap;
        }
    }
    explicit Memory(size_t bytes) : bytes_(bytes + 2 * gap, canary) {
        extents_.push_back({nexar::test::place_of(bytes_.data() + gap), bytes});
    }

    const Extents& extents() const { return extents_; }
    std::vector<std::byte> flat() const {
        std::vector<std::byte> out;
        for (const Extent& e : extents_) out.insert(out.end(), e.data(), e.data() + e.bytes);
        return out;
    }
    void set(const std::vector<std::byte>& flat) {
        size_t at = 0;
        for (const Extent& e : extents_) {
            if (e.bytes > 0) std::memcpy(e.data(), flat.data() + at, e.bytes);
            at += e.bytes;
        }
    }
    void fill(std::byte value) { std::fill(bytes_.begin(), bytes_.end(), value); }
    bool all(std::byte value) const {
        for (std::byte b : bytes_)
            if (b != value) return false;
        return true;
    }
    bool canaries_live() const {
        std::vector<std::byte> copy = bytes_;
        for (const Extent& e : extents_)
            if (e.bytes > 0)
                std::memset(copy.data() + (e.data() - bytes_.data()), static_cast<int>(canary), e.bytes);
        for (std::byte b : copy)
            if (b != canary) return false;
        return true;
    }

  private:
    static constexpr size_t gap = 24;
    std::vector<std::byte> bytes_;
    Extents extents_;
};

// Distinct per salt and position.
inline std::vector<std::byte> pattern(size_t bytes, uint64_t salt) {
    std::vector<std::byte> out(bytes);
    Random random(salt * 7919 + 1);
    for (std::byte& b : out) b = static_cast<std::byte>(random.next());
    return out;
}
inline std::vector<std::byte> sum_u32(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    std::vector<std::byte> out(a.size());
    for (size_t i = 0; i + 4 <= a.size(); i += 4) {
        uint32_t x, y;
        std::memcpy(&x, a.data() + i, 4);
        std::memcpy(&y, b.data() + i, 4);
        x += y;
        std::memcpy(out.data() + i, &x, 4);
    }
    return out;
}

inline SendSpec send_spec(const TransferKey& k, size_t to, const Memory& memory, uint32_t chunk_bytes,
                          Class cls = Class::bulk) {
    SendSpec s;
    s.key = k;
    s.to = peer(to);
    s.cls = cls;
    s.priority = cls == Class::bulk ? Priority::bulk : Priority::realtime;
    s.agreement = {11, 22};
    s.memory = memory.extents();
    s.chunk_bytes = chunk_bytes;
    return s;
}
inline RecvSpec recv_spec(const TransferKey& k, size_t from, const Memory& memory, uint32_t chunk_bytes,
                          Class cls = Class::bulk, bool reduce = false) {
    RecvSpec r;
    r.key = k;
    r.from = peer(from);
    r.cls = cls;
    r.agreement = {11, 22};
    r.memory = memory.extents();
    r.chunk_bytes = chunk_bytes;
    r.ack_may_wait = k.op.op % 2 == 0;
    if (reduce) r.reduce = RecvSpec::Reduce{Dtype::u32, ReduceOp::sum};
    return r;
}
inline Batch batch(uint64_t first_handle, std::vector<RecvSpec> recvs, std::vector<SendSpec> sends) {
    Batch b;
    b.recvs.assign(recvs.begin(), recvs.end());
    b.sends.assign(sends.begin(), sends.end());
    b.first_handle = first_handle;
    return b;
}

}  // namespace nexar::link::test
