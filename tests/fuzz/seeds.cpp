// Writes the seed corpora: `fuzz_seeds tests/fuzz/corpus`. Run by hand when a format changes.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "admission/token.hpp"
#include "config/config.hpp"
#include "connections/opening.hpp"
#include "local_protocol.h"
#include "shm/control.hpp"
#include "tcp/attach.hpp"
#include "unit/link/harness.hpp"
#include "unit/quic/network.hpp"
#include "unit/wire/samples.hpp"
#include "wire/codec.hpp"

namespace {

using namespace nexar;

std::filesystem::path root;

void save(const std::string& name, Bytes bytes) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
void save(const std::string& name, std::string_view text) {
    save(name, std::as_bytes(std::span(text)));
}
void put_piece(std::vector<std::byte>& to, uint8_t cls, Bytes bytes) {
    Writer w(to);
    w.put(cls);
    w.put(static_cast<uint16_t>(bytes.size()));
    w.put_bytes(bytes);
}

void save_wire() {
    size_t n = 0;
    for (const auto& message : wire::sample_messages())
        save("wire/" + std::to_string(n++), Bytes(wire::encode(message)));
}

// What a mesh with the same transfers sends to the one of frames_fuzz.cpp.
void save_frames() {
    using namespace nexar::link::test;
    link::MeshConfig config;
    config.has_log = true;
    Net net(2, 1, config);
    net.wire(1, 0).keep_frames = true;
    Memory a(4096), b(4096), c(4096), d(4096);
    a.set(pattern(4096, 1));
    const auto key7 = [](uint32_t phase) { return link::TransferKey{{GroupId{1, 2, 3}, {}, 7}, phase}; };
    const auto key8 = [](uint32_t phase) { return link::TransferKey{{GroupId{1, 2, 3}, {}, 8}, phase}; };
    net[1].post(batch(1, {recv_spec(key8(1), 0, b, 1024), recv_spec(key8(2), 0, c, 1024)},
                      {send_spec(key7(0), 0, a, 1024), send_spec(key7(1), 0, a, 1024)}));
    net[0].post(batch(1, {recv_spec(key7(0), 1, d, 1024), recv_spec(key7(1), 1, d, 1024)},
                      {send_spec(key8(1), 1, a, 1024), send_spec(key8(2), 1, a, 1024)}));
    net[0].append(peer(1), std::vector<std::byte>(40, std::byte{4}), std::nullopt);
    net[1].append(peer(0), std::vector<std::byte>(40, std::byte{6}), std::nullopt);
    net[1].send_message(peer(0), std::vector<std::byte>(40, std::byte{5}));
    net.run();
    size_t n = 0;
    std::vector<std::byte> all;
    const auto& written = net.wire(1, 0).written;
    for (size_t i = 0; i < net.wire(1, 0).frames.size(); ++i) {
        const auto cls =
            static_cast<uint8_t>(written[written.size() - net.wire(1, 0).frames.size() + i].first);
        std::vector<std::byte> one;
        put_piece(one, cls, net.wire(1, 0).frames[i]);
        put_piece(all, cls, net.wire(1, 0).frames[i]);
        if (i < 3) save("frames/one-" + std::to_string(n++), Bytes(one));
    }
    save("frames/all", Bytes(all));
}

void save_admission() {
    using namespace admission;
    Token token;
    token.expires = 1'800'000'000;
    token.id.fill(3);
    token.secret.fill(4);
    token.root_key_hash.fill(5);
    token.issuer_addresses = {"10.0.0.1:7654", "[2001:db8::1]:7654"};
    save("token/two-addresses", std::string(token.text().text()));
    save("token/not-one", "nexar1.AAAA");
    const auto with = [](char which, const std::vector<std::byte>& bytes) {
        std::vector<std::byte> out{static_cast<std::byte>(which)};
        out.insert(out.end(), bytes.begin(), bytes.end());
        return out;
    };
    save("join/request", Bytes(with(0, encode(JoinRequest{token.id, "a certificate request", {}, "host"}))));
    save("join/reply", Bytes(with(1, encode(JoinReply{{}, "leaf", "issuer", "root"}))));
    save("join/refusal",
         Bytes(with(1, encode(JoinReply{Error{Errc::bad_token, "no", -1, -1, {}}, {}, {}, {}}))));
    TokenBook book;
    (void)book.create(token.root_key_hash, {"10.0.0.1:1"}, 1'700'000'000, 600, 3);
    save("join/tokens", "\x02" + std::string(book.text().text()));
}

// Records after the attach: data of each class, an acknowledgement, a close; and an attach without its key.
void save_tcp() {
    std::vector<std::byte> out;
    Writer w(out);
    const auto record = [&w](uint8_t kind, uint8_t flags, size_t bytes) {
        w.put(kind);
        w.put(flags);
        w.put(static_cast<uint16_t>(bytes));
        for (size_t i = 0; i < bytes; ++i) w.put(std::byte{0});
    };
    w.put(uint8_t{3});
    for (uint8_t cls = 0; cls < 4; ++cls) record(cls, 1, 40);
    record(3, 0, 3000);
    record(3, 1, 200);
    record(8, 1, 32);
    record(9, 1, 12);
    save("tcp/attached", Bytes(out));
    out.assign({std::byte{2}});
    tcp::Hello hello;
    hello.mode = tcp::Mode::plain;
    hello.node.bytes[0] = 1;
    hello.incarnation = {1, 1};
    w.put(uint8_t{16});
    w.put(uint8_t{1});
    w.put(static_cast<uint16_t>(sizeof hello));
    w.put(hello);
    record(18, 1, sizeof(tcp::Proof));
    record(3, 1, 100);
    save("tcp/not_attached", Bytes(out));
}

void save_opening() {
    connections::Preamble p;
    p.generation = 3;
    std::vector<std::byte> control, out;
    Writer w(control);
    w.put_bytes(connections::to_bytes(p));
    w.put(uint32_t{5});
    w.put_bytes(test::bytes_of("hello"));
    w.put(uint32_t{0});
    w.put_bytes(test::bytes_of("frames"));
    put_piece(out, 3, test::bytes_of("early"));
    put_piece(out, 0, Bytes(control).first(20));
    put_piece(out, 0, Bytes(control).subspan(20));
    save("opening/whole", Bytes(out));
}

void save_texts() {
    save("config/defaults", config::to_toml(*config::load({})));
    save("config/some", "heartbeat_timeout = 7\nadvertise = [\"10.0.0.1\", \"eth*\"]\ntcp_bulk = true\n");
    save("request/plain", R"({"command": "status"})");
    save("request/arguments",
         R"({"command": "groups", "arguments": {"group": "digits", "deep": [[{"a": "\u00e9"}]]}})");
}

void save_session() {
    std::vector<std::byte> out;
    Writer w(out);
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_OPEN;
    w.put(uint8_t{1});
    w.put(d);
    d.kind = NEXAR_OP_ALL_REDUCE;
    d.group = 1;
    d.count = 100;
    d.in = {1, 0, 0};
    d.out = {1, 0, 1024};
    w.put(uint8_t{5});
    w.put(d);
    w.put(uint8_t{3});
    w.put(uint8_t{0});
    w.put(uint16_t{40});
    w.put(uint64_t{0x0123456789abcdef});
    save("session/open-and-reduce", Bytes(out));
}

// Packets on the session socket, as handshake_fuzz.cpp reads them.
template <class Body>
void put_packet(Writer& w, uint32_t type, Body body, std::initializer_list<uint8_t> descriptors) {
    auto& head = reinterpret_cast<nexar_msg_head&>(body);
    head = {NEXAR_LOCAL_MAGIC, type};
    w.put(static_cast<uint8_t>(descriptors.size()));
    for (const uint8_t kind : descriptors) w.put(kind);
    w.put(static_cast<uint16_t>(sizeof body));
    w.put(body);
}

void save_handshake() {
    nexar_msg_hello hello{};
    hello.version_min = NEXAR_LOCAL_VERSION_MIN;
    hello.version_max = NEXAR_LOCAL_VERSION;
    nexar_msg_attach attach{};
    attach.slots = 16;
    attach.control_bytes = nexar_shm_control_bytes(16);
    nexar_msg_region_add region{};
    region.generation = region.region = 1;
    region.kind = NEXAR_MEMORY_MEMFD;
    region.bytes = 8192;
    std::vector<std::byte> whole, refused, unsealed;
    Writer w(whole), r(refused), u(unsealed);
    for (Writer* to : {&w, &u}) put_packet(*to, NEXAR_MSG_HELLO, hello, {});
    put_packet(w, NEXAR_MSG_ATTACH, attach, {0});
    put_packet(w, NEXAR_MSG_REGION_ADD, region, {1});
    put_packet(w, NEXAR_MSG_BELL, nexar_msg_head{}, {});
    put_packet(w, NEXAR_MSG_GOODBYE, nexar_msg_head{}, {});
    put_packet(u, NEXAR_MSG_ATTACH, attach, {2});
    hello.version_min = hello.version_max = 99;
    put_packet(r, NEXAR_MSG_HELLO, hello, {4, 4});
    save("handshake/whole", Bytes(whole));
    save("handshake/unsealed", Bytes(unsealed));
    save("handshake/other-version", Bytes(refused));
}

// The datagrams of a handshake, as the acceptor sees them.
void save_quic() {
    test::Pair pair(1);
    std::vector<std::byte> all;
    size_t n = 0;
    pair.net.tap = [&](const test::Packet& packet) {
        if (packet.to != pair.b.address || n >= 3) return;
        std::vector<std::byte> one;
        for (auto* to : {&one, &all}) {
            Writer w(*to);
            w.put(static_cast<uint16_t>(packet.bytes.size()));
            w.put_bytes(packet.bytes);
        }
        if (n++ == 0) save("quic/first", Bytes(one));
    };
    pair.connect();
    save("quic/handshake", Bytes(all));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n"), 2;
    root = argv[1];
    save_wire();
    save_frames();
    save_admission();
    save_opening();
    save_tcp();
    save_texts();
    save_session();
    save_handshake();
    save_quic();
    return 0;
}
