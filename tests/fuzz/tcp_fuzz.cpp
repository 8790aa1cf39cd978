// A TCP connection's records, before and after its attach, without TLS: what a member may send to a member.
// The first byte: whether the attach comes first, whether bytes are raw or made into records with a right
// checksum, how long these are, and how many bytes the wire gives at once.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tcp/connection.hpp"
#include "tcp/crc32c.hpp"
#include "tcp/plain_stream.hpp"

namespace {

using namespace nexar;
using namespace nexar::tcp;

struct Wire final : ByteWire {
    std::vector<std::byte>* in;
    std::vector<std::byte>* out;
    size_t from = 0, piece = SIZE_MAX;
    Wire(std::vector<std::byte>& i, std::vector<std::byte>& o) : in(&i), out(&o) {}
    Moved receive(MutableBytes into) override {
        const size_t n = std::min({into.size(), in->size() - from, piece});
        if (n == 0) return {};
        std::copy_n(in->begin() + static_cast<ptrdiff_t>(from), n, into.begin());
        from += n;
        return {n, State::moved};
    }
    Moved receive_two(MutableBytes first, MutableBytes second) override {
        Moved moved = receive(first);
        if (moved.bytes == first.size()) moved.bytes += receive(second).bytes;
        return moved;
    }
    Moved send(Bytes bytes) override {
        out->insert(out->end(), bytes.begin(), bytes.end());
        return {bytes.size(), State::moved};
    }
    std::string why() const override { return "broken"; }
};

struct Ring final : KeyRing {
    NodeId node;
    AttachKeys keys;
    const AttachKeys* keys_of(const NodeId& of) const override { return of == node ? &keys : nullptr; }
};

struct Peer final : ByteReceiver {
    Ring ring;
    Shared shared;
    Wire wire;
    std::unique_ptr<Connection> machine;
    size_t got = 0;
    Peer(std::vector<std::byte>& in, std::vector<std::byte>& out, uint8_t number, bool dials)
        : wire(in, out) {
        shared.self.bytes[0] = number;
        shared.incarnation = {1, number};
        ring.node.bytes[0] = static_cast<uint8_t>(3 - number);
        ring.keys.add({1, uint64_t{3} - number}, AttachKey{});
        shared.keys = &ring;
        shared.reads_far = number % 2 == 0;
        shared.random = [number](MutableBytes into) { std::ranges::fill(into, std::byte{number}); };
        std::optional<Connection::Dial> dial;
        if (dials) dial = Connection::Dial{ring.node, Mode::plain};
        machine = std::make_unique<Connection>(shared, std::make_unique<PlainStream>(wire, dials),
                                               Mode::plain, dial);
        machine->set_receiver(this);
    }
    void turn() {
        machine->on_readable(Time{}, 1u << 20);
        machine->flush(Time{}, 1u << 20);
    }
    void on_bytes(Class, Bytes bytes) override { got += bytes.size(); }
};

// `times`: records that long, also longer than any may be, of bytes that repeat.
void make_records(Reader& in, std::vector<std::byte>& to, unsigned times) {
    while (in.left() > 4 && to.size() < (4u << 20)) {
        RecordHead head{in.get<uint8_t>(), in.get<uint8_t>(), 0, in.get<uint16_t>()};
        const Bytes once = in.take(std::min<size_t>(head.bytes, in.left()));
        std::vector<std::byte> payload;
        for (unsigned i = 0; i < times; ++i) payload.insert(payload.end(), once.begin(), once.end());
        head.bytes = static_cast<uint32_t>(payload.size());
        const Bytes bytes = std::as_bytes(std::span(&head, 1));
        const uint32_t checksum = crc32c(payload, crc32c(bytes));
        Writer w(to);
        w.put(head);
        w.put_bytes(payload);
        w.put(checksum);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Reader in(std::as_bytes(std::span(data, size)));
    const auto how = in.get<uint8_t>();
    std::vector<std::byte> forth, back;
    Peer dialler(back, forth, 1, true), acceptor(forth, back, 2, false);
    if ((how & 1) != 0) {
        for (int i = 0; i < 5; ++i) {
            dialler.turn();
            acceptor.turn();
        }
        if (!acceptor.machine->is_open()) std::abort();
    } else {
        forth.assign(PlainStream::magic.begin(), PlainStream::magic.end());
    }
    const bool attached = acceptor.machine->is_open();
    if ((how & 4) != 0) acceptor.wire.piece = 1 + how / 8u;
    if ((how & 2) != 0) {
        make_records(in, forth, (how & 8) != 0 ? 1024 : 1);
    } else {
        const Bytes rest = in.take(in.left());
        forth.insert(forth.end(), rest.begin(), rest.end());
    }
    const size_t sent = forth.size();
    for (int i = 0; i < 3; ++i) acceptor.turn();
    // Without the key nobody attaches, and without the attach nothing is delivered.
    if (!attached && (acceptor.machine->is_open() || acceptor.got > 0)) std::abort();
    if (acceptor.got > sent) std::abort();
    return 0;
}
