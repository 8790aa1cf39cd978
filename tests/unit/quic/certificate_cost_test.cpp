// What the certificates that an unidentified peer shows cost who reads them, at both ends of a QUIC
// connection.
#include <openssl/ssl.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "network.hpp"
#include "quic/tls.hpp"
#include "support/der.hpp"
#include "support/processor_time.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

quic::Identity with_more(size_t number, const std::string& pem, size_t count) {
    quic::Identity out = identity(number);
    for (size_t i = 0; i < count; ++i) out.certificate_chain += pem;
    return out;
}

struct Outcome {
    Duration took;
    std::string reason;  // of the end that reads
};

// A whole handshake, in which one end shows these certificates after its own.
Outcome handshake(bool dialler_shows, const std::string& pem, size_t count) {
    Network net(5);
    Host& a = net.add(1, {}, dialler_shows ? with_more(1, pem, count) : identity(1), accept_all);
    Host& b = net.add(2, {}, dialler_shows ? identity(2) : with_more(2, pem, count), accept_all);
    const Duration begin = processor_time();
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    CHECK(net.run([&] { return a.last(Event::Kind::closed) && b.last(Event::Kind::refused); }));
    const Duration took = processor_time() - begin;
    const Event* end = dialler_shows ? b.last(Event::Kind::refused) : a.last(Event::Kind::closed);
    if (!end) return {took, "it was not refused"};
    CHECK(b.count(Event::Kind::connected) == 0);
    CHECK(end->close.cause == CloseInfo::Cause::refused_here);
    return {took, end->close.reason};
}

}  // namespace

TEST_CASE("what a QUIC handshake's certificates cost does not depend on their keys", "[quic][A13]") {
    const std::string slow = pem_of(certificate_of(slow_public_key()), "CERTIFICATE");
    const std::string good = test_ca().issue("another").certificate_pem;
    for (const bool dialler_shows : {true, false}) {
        INFO((dialler_shows ? "the acceptor" : "the dialler") << " reads them");
        const Outcome now = handshake(dialler_shows, slow, 8), usual = handshake(dialler_shows, good, 4);
        CHECK(usual.reason.find("more than 4 certificates") != std::string::npos);
        CHECK(now.reason.find("only ECDSA P-256") != std::string::npos);
        INFO("usually " << usual.took.count() << " ns, now " << now.took.count() << " ns");
        CHECK(now.took < usual.took + 50ms);  // a second if they are parsed
    }
}

TEST_CASE("a message that is refused is overwritten before it is parsed, others are not", "[quic][A13]") {
    const auto context = quic::TlsContext::make(identity(1), {}, accept_all);
    REQUIRE(context);
    const auto after = [&](int type, const Der& body, std::string& refusal) {
        quic::TlsPeer peer(*context, "", {});
        Der message{static_cast<std::byte>(type), {}, {}, static_cast<std::byte>(body.size())};
        message.insert(message.end(), body.begin(), body.end());
        peer.on_message(message);
        refusal = peer.refusal();
        return Der(message.begin() + 4, message.end());
    };
    std::string refusal;
    const Der empty_list = unhex("00000000"), cut = unhex("00000004000000"), spoilt(7, std::byte{0xff});
    CHECK(after(SSL3_MT_CERTIFICATE, empty_list, refusal) == empty_list);
    CHECK(refusal.empty());
    CHECK(after(SSL3_MT_FINISHED, cut, refusal) == cut);
    CHECK(refusal.empty());
    CHECK(after(SSL3_MT_CERTIFICATE, cut, refusal) == spoilt);
    CHECK(refusal.find("does not parse") != std::string::npos);
    CHECK(after(SSL3_MT_COMPRESSED_CERTIFICATE, cut, refusal) == spoilt);
    CHECK(refusal.find("compressed") != std::string::npos);
    Der hello(4 + 4096);
    hello[0] = static_cast<std::byte>(SSL3_MT_CLIENT_HELLO);
    for (const bool is_longer : {false, true}) {
        if (is_longer) hello.push_back({});
        quic::TlsPeer acceptor(*context, "", {});
        acceptor.on_message(hello);
        CHECK((hello.back() == std::byte{0xff}) == is_longer);
        CHECK(acceptor.refusal().contains("4097 bytes; at most 4096") == is_longer);
    }
    quic::TlsPeer peer(*context, "", {});
    peer.on_message({});  // and nothing is read of it
    CHECK(peer.refusal().empty());
}
