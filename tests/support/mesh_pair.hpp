// Two meshes and the pipes between them, in memory: for counting and timing the link without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "link/mesh.hpp"

namespace nexar::link {

// Keeps what is written until it is delivered; its buffers are used again.
class MeshPipe final : public Channel {
  public:
    size_t room(Class) const override { return size_t{2} << 20; }
    size_t held(Class cls) const override { return bytes[static_cast<size_t>(cls)].size(); }
    void write(Class cls, std::span<const Bytes> parts) override {
        auto& out = bytes[static_cast<size_t>(cls)];
        for (Bytes part : parts) out.insert(out.end(), part.begin(), part.end());
    }
    bool deliver(Mesh& to, PeerIndex from) {
        bool any = false;
        for (size_t c = 0; c < class_count; ++c) {
            if (bytes[c].empty()) continue;
            any = true;
            taken.swap(bytes[c]);
            to.on_bytes(from, static_cast<Class>(c), taken);
            taken.clear();
        }
        return any;
    }
    std::vector<std::byte> bytes[class_count], taken;
};

inline MeshConfig mesh_config(uint64_t incarnation) {
    MeshConfig c;
    c.incarnation = incarnation;
    return c;
}

struct MeshPair {
    MeshPair() : a(mesh_config(1)), b(mesh_config(2)) {
        a.attach(PeerIndex(1), 1, ab);
        b.attach(PeerIndex(0), 1, ba);
    }
    void run() {
        bool any = true;
        while (any) {
            a.flush();
            b.flush();
            any = ab.deliver(b, PeerIndex(0));
            any |= ba.deliver(a, PeerIndex(1));
            while (a.poll_event()) ++ended;
            while (b.poll_event()) ++ended;
        }
    }
    Mesh a, b;
    MeshPipe ab, ba;
    size_t ended = 0;
};

inline Region region_of(std::vector<std::byte>& bytes) {
    return {{}, RegionKind::scratch, {}, {bytes.data(), bytes.size(), {}, {}}};
}

// One transfer of `bytes` from a to b.
inline void transfer(MeshPair& pair, uint64_t op, const Region& from, const Region& to, size_t bytes,
                     Class cls, bool reduce) {
    TransferKey key;
    key.op.group = GroupId{1, 2, 3};
    key.op.op = op;
    Batch recv, send;
    recv.first_handle = send.first_handle = op;
    RecvSpec& r = recv.recvs.emplace_back();
    r.key = key;
    r.from = PeerIndex(0);
    r.cls = cls;
    r.memory = {{{&to, 0}, bytes}};
    if (reduce) r.reduce = RecvSpec::Reduce{Dtype::f32, ReduceOp::sum};
    SendSpec& s = send.sends.emplace_back();
    s.key = key;
    s.to = PeerIndex(1);
    s.cls = cls;
    s.memory = {{{&from, 0}, bytes}};
    pair.b.post(std::move(recv));
    pair.a.post(std::move(send));
    pair.run();
}

}  // namespace nexar::link
