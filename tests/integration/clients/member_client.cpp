// A node that is no nexard: it speaks to daemons over QUIC as the tests want it, truthfully or not.
//
//   member_client replay TOKEN
//       joins on one connection, sends the same bytes on another one, prints what each was answered
//   member_client hello STATE_FOLDER ADDRESS HOW
//       connects as the member whose state lies there, says hello (HOW: honest, node, incarnation, cluster),
//       and prints how the connection ended, or "accepted" when it still stands after two seconds
//
// 0: it could ask. What the answer was is for the test to judge.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "admission/certificates.hpp"
#include "admission/token.hpp"
#include "connections/channels.hpp"
#include "link/mesh.hpp"
#include "loop/loop.hpp"
#include "node/join.hpp"
#include "transport/quic_carrier.hpp"
#include "transport/quic_port.hpp"
#include "wire/codec.hpp"

using namespace nexar;
using namespace std::chrono_literals;

namespace {

template <class T>
T need(Result<T> result) {
    if (result) return std::move(*result);
    std::fprintf(stderr, "member_client: %s\n", result.error().text.c_str());
    std::exit(1);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        std::fprintf(stderr, "member_client: cannot read %s\n", path.c_str());
        std::exit(1);
    }
    return {std::istreambuf_iterator<char>(in), {}};
}

// One turn of the port; true while the time is not over.
bool turn(transport::QuicPort& port, Time until) {
    port.flush(loop::Loop::now());
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);  // sleep: between two turns
    port.on_readable(loop::Loop::now());
    port.on_time(loop::Loop::now());
    return loop::Loop::now() < until;
}

// ---- replay

struct Guest {
    node::JoinStream stream;
    quic::Connection* conn = nullptr;
};

quic::Connection* connect_to_join(transport::QuicPort& port, const quic::Address& issuer) {
    const auto id = need(port.connect(loop::Loop::now(), issuer, quic::alpn_join));
    const Time until = loop::Loop::now() + 10s;
    while (turn(port, until))
        while (auto event = port.poll_event())
            if (event->conn == id && event->kind == quic::Event::Kind::connected)
                return port.endpoint().find(id);
    std::fprintf(stderr, "member_client: no issuer answers\n");
    std::exit(1);
}

std::string ask(transport::QuicPort& port, Guest& guest, Bytes request) {
    guest.conn->set_receiver(&guest.stream);
    node::JoinStream::write(*guest.conn, request);
    const Time until = loop::Loop::now() + 10s;
    while (turn(port, until)) {
        while (port.poll_event()) {
        }
        if (const auto bytes = guest.stream.poll()) {
            const auto reply = need(admission::decode_join_reply(*bytes));
            return reply.error.code == Errc::ok ? "admitted" : reply.error.text;
        }
    }
    return "no answer";
}

int replay(const std::string& text) {
    const auto token = need(admission::Token::parse(text));
    const auto issuer = need(quic::Address::parse(token.issuer_addresses.at(0)));
    transport::QuicPort::Options options;
    options.listen = quic::Address::any(issuer.family, 0);
    options.quic.listen = false;
    auto port = need(transport::QuicPort::open(
        std::move(options), {}, [&](const quic::PeerChain& chain, std::string_view) {
            return admission::verify_issuer(chain, token.root_key_hash, std::time(nullptr));
        }));

    Guest first, second;
    first.conn = connect_to_join(*port, issuer);
    second.conn = connect_to_join(*port, issuer);
    const std::string csr = need(admission::make_csr(need(admission::make_key())));
    const auto exporter = need(first.conn->export_keying_material("EXPORTER-nexar-join", {}, 32));
    const auto request = admission::encode(admission::JoinRequest{
        token.id, csr, admission::join_mac(token.secret, exporter, token.id, token.root_key_hash, csr),
        "member_client"});
    std::printf("first: %s\n", ask(*port, first, request).c_str());
    std::printf("replayed: %s\n", ask(*port, second, request).c_str());
    return 0;
}

// ---- hello

struct Folder {
    Secret key;
    std::string certificates, root;
    explicit Folder(const std::string& path)
        : key(Secret::take(read_file(path + "/node.key"))),
          certificates(read_file(path + "/node.crt")),
          root(read_file(path + "/root.crt")) {}
};

wire::Hello hello_of(const Folder& folder, const Incarnation& incarnation, const std::string& how) {
    wire::Hello hello;
    hello.node = need(admission::node_id_of_key(folder.key));
    hello.incarnation = incarnation;
    hello.cluster = admission::cluster_id_of(need(admission::key_hash_of_certificate(folder.root)));
    if (how == "node") hello.node.bytes[0] ^= 1;
    if (how == "incarnation") hello.incarnation.counter += 1000;
    if (how == "cluster") hello.cluster[0] ^= 1;
    hello.self = {hello.node, "liar", {}};
    return hello;
}

int say_hello(const std::string& path, const std::string& to, const std::string& how) {
    const Folder folder(path);
    const Incarnation incarnation{1'000'000, 7};
    const NodeId self = need(admission::node_id_of_key(folder.key));
    const auto remote = need(quic::Address::parse(to));
    transport::QuicPort::Options options;
    options.listen = quic::Address::any(remote.family, 0);
    auto port = need(
        transport::QuicPort::open(std::move(options), {folder.certificates, folder.key, folder.root},
                                  [&](const quic::PeerChain& chain, std::string_view) {
                                      return admission::verify_member(chain, folder.root, std::time(nullptr));
                                  }));
    link::Mesh mesh{link::MeshConfig{}};
    connections::Preamble preamble;
    preamble.incarnation = incarnation;
    transport::QuicCarrier carrier(port->endpoint(), port->local());
    connections::Channels links(carrier, mesh, self, preamble);
    need(links.dial(loop::Loop::now(), to, std::nullopt));

    const Time until = loop::Loop::now() + 2s;
    while (turn(*port, until)) {
        while (auto event = port->poll_event()) carrier.on_event(loop::Loop::now(), *event, links);
        while (auto opened = links.poll_opened())
            links.greet(opened->id, wire::encode(wire::Message(hello_of(folder, incarnation, how))));
        if (auto closed = links.poll_closed()) {
            std::printf("closed: %s\n", closed->why.reason.c_str());
            return 0;
        }
    }
    std::printf("accepted\n");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "replay" && argc == 3) return replay(argv[2]);
    if (what == "hello" && argc == 5) return say_hello(argv[2], argv[3], argv[4]);
    std::fprintf(stderr, "usage: member_client replay TOKEN | hello STATE_FOLDER ADDRESS HOW\n");
    return 2;
}
