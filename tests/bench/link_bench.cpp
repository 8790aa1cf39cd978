// What the link costs without a network: ns per 256 KiB chunk (copied, or combined) and per 8-byte transfer,
// both nodes together. The bytes' own cost is shown beside it. Not a ctest; made to be run under callgrind
// too:
//   link_bench [copy|reduce|small] [rounds]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "link/frame.hpp"
#include "link/mesh.hpp"
#include "reduce/reduce.hpp"

using namespace nexar;
using namespace nexar::link;

namespace {

// Keeps what is written until it is delivered; its buffers are used again.
class Pipe final : public Channel {
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

MeshConfig config(uint64_t incarnation) {
    MeshConfig c;
    c.incarnation = incarnation;
    return c;
}

struct Pair {
    Pair() : a(config(1)), b(config(2)) {
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
    Pipe ab, ba;
    size_t ended = 0;
};

Region region_of(std::vector<std::byte>& bytes) {
    return {{}, RegionKind::scratch, {}, {bytes.data(), bytes.size(), {}, {}}};
}

// One transfer of `bytes` from a to b.
void transfer(Pair& pair, uint64_t op, const Region& from, const Region& to, size_t bytes, Class cls,
              bool reduce) {
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

double ns_each(size_t n, const auto& f) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n; ++i) f(i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    return took.count() / static_cast<double>(n);
}

void bench_bulk(bool reduce, size_t rounds) {
    constexpr size_t chunks = 16, bytes = chunks * chunk_bytes_max;
    std::vector<std::byte> from(bytes), to(bytes), through(bytes);
    const Region from_region = region_of(from), to_region = region_of(to);
    Pair pair;
    const double each = ns_each(
        rounds, [&](size_t i) { transfer(pair, i, from_region, to_region, bytes, Class::bulk, reduce); });
    // What any implementation over this pipe pays: into the pipe, out of it.
    const double floor = ns_each(rounds, [&](size_t) {
        for (size_t c = 0; c < chunks; ++c) {
            const size_t at = c * chunk_bytes_max;
            std::memcpy(through.data() + at, from.data() + at, chunk_bytes_max);
            if (reduce)
                reduce::reduce_into(to.data() + at, through.data() + at, chunk_bytes_max / 4, Dtype::f32,
                                    ReduceOp::sum);
            else
                std::memcpy(to.data() + at, through.data() + at, chunk_bytes_max);
        }
    });
    std::printf("%-6s  %8.0f ns per 256 KiB chunk, of which the bytes alone %8.0f\n",
                reduce ? "reduce" : "copy", each / chunks, floor / chunks);
    if (pair.ended != 2 * rounds) std::abort();
}

void bench_small(size_t rounds) {
    std::vector<std::byte> from(8), to(8);
    const Region from_region = region_of(from), to_region = region_of(to);
    Pair pair;
    const double each =
        ns_each(rounds, [&](size_t i) { transfer(pair, i, from_region, to_region, 8, Class::small, true); });
    std::printf("small   %8.0f ns per 8-byte transfer (both nodes: post, data, ack, done)\n", each);
    if (pair.ended != 2 * rounds) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const size_t rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (what.empty() || what == "copy") bench_bulk(false, rounds != 0 ? rounds : 200);
    if (what.empty() || what == "reduce") bench_bulk(true, rounds != 0 ? rounds : 200);
    if (what.empty() || what == "small") bench_small(rounds != 0 ? rounds : 300'000);
}
