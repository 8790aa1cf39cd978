// Frames from a peer, into a mesh with transfers of every sort. The input is a sequence of pieces: a byte for
// the class, two for the length, the bytes.
#include <array>
#include <cstdlib>

#include "core/bytes.hpp"
#include "link/mesh.hpp"

namespace {

using namespace nexar;

struct Sink final : link::Channel {
    size_t written = 0;
    size_t room(Class) const override { return 1 << 20; }
    size_t held(Class) const override { return 0; }
    void write(Class, std::span<const Bytes> parts) override {
        for (const Bytes part : parts) written += part.size();
    }
};

link::TransferKey key(uint64_t op, uint32_t phase) {
    link::TransferKey k;
    k.op = {GroupId{1, 2, 3}, {}, op};
    k.phase = phase;
    return k;
}

struct World {
    std::array<std::byte, 65536> memory{};
    const Region region{{}, RegionKind::scratch, {}, {memory.data(), memory.size(), {}, {}}};
    Sink channel;
    link::Mesh mesh;
    static link::MeshConfig config() {
        link::MeshConfig c;
        c.incarnation = 1000;  // the seeds' receiver
        c.has_log = true;
        return c;
    }
    World() : mesh(config()) {
        mesh.attach(link::PeerIndex(1), 1, channel);
        link::Batch batch;
        batch.first_handle = 1;
        const Place place{&region, 0};
        for (uint32_t i = 0; i < 3; ++i) {
            link::RecvSpec r;
            r.key = key(7, i);
            r.from = link::PeerIndex(1);
            r.agreement = {11, 22};
            r.memory = {{place + i * 8192, 4096}};
            r.chunk_bytes = 1024;
            if (i == 1) r.reduce = link::RecvSpec::Reduce{Dtype::u32, ReduceOp::sum};
            if (i == 2) r.forward = 0;
            batch.recvs.push_back(r);
            link::SendSpec s;
            s.key = key(8, i);
            s.to = link::PeerIndex(1);
            s.agreement = {11, 22};
            s.memory = {{place + (32768 + i * 8192), 4096}};
            s.chunk_bytes = 1024;
            s.ready = i != 0;
            batch.sends.push_back(s);
        }
        mesh.post(std::move(batch));
        mesh.flush();
    }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    World w;
    Reader in(std::as_bytes(std::span(data, size)));
    bool garbage = false;
    while (in.left() > 3 && !garbage) {
        const auto first = in.get<uint8_t>();
        const auto cls = static_cast<Class>(first % class_count);
        const size_t length = in.get<uint16_t>();
        const Bytes piece = in.take(std::min(length, in.left()));
        const MutableBytes place =
            (first & 0x80) != 0 ? w.mesh.place(link::PeerIndex(1), cls) : MutableBytes();
        const size_t placed = std::min(place.size(), piece.size());
        if (placed > 0) {
            std::memcpy(place.data(), piece.data(), placed);
            w.mesh.placed(link::PeerIndex(1), cls, placed);
        }
        w.mesh.on_bytes(link::PeerIndex(1), cls, piece.subspan(placed));
        w.mesh.flush();
        while (auto event = w.mesh.poll_event())
            garbage = garbage || event->kind == link::MeshEvent::Kind::peer_garbage;
    }
    w.mesh.withdraw(key(7, 0).op);
    w.mesh.withdraw(key(8, 0).op);
    w.mesh.drop_peer(link::PeerIndex(1));
    size_t events = 0;
    while (w.mesh.poll_event()) ++events;
    if (events > 6) std::abort();  // six transfers, each ends once
    return 0;
}
