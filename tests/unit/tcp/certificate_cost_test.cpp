// What the certificates that an unidentified peer shows cost who reads them, at both ends of a TCP
// connection.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "core/key_form.hpp"
#include "pair.hpp"
#include "support/der.hpp"
#include "support/processor_time.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

// Shows these certificates after its own.
void show(End& end, const std::string& pem, size_t count) {
    quic::Identity identity{end.leaf.certificate_pem, end.leaf.private_key_pem,
                            authority().certificate_pem()};
    for (size_t i = 0; i < count; ++i) identity.certificate_chain += pem;
    quic::Config config;
    config.alpns = {std::string(tcp::alpn_bulk)};
    end.context = *quic::TlsContext::make(
        identity, config,
        [](const quic::PeerChain& chain, std::string_view) { return node_id_of(chain.front()); });
}

// The longest turn of `watched`, until it has ended.
Duration longest_turn(TcpPair& p, End& watched, End& other) {
    p.start();
    Duration longest{};
    for (int i = 0; i < 60 && !watched.machine->ended(); ++i) {
        const Duration begin = processor_time();
        watched.turn(p.now);
        longest = std::max(longest, processor_time() - begin);
        other.turn(p.now);
        p.now += Duration{1'000'000};
    }
    return longest;
}

void costs_no_more_than_good_ones(bool dials) {
    INFO((dials ? "the dialler" : "the acceptor") << " reads them");
    const auto outcome = [&](const std::string& pem, size_t count, std::string_view reason) {
        TcpPair p;
        End &watched = dials ? p.a : p.b, &other = dials ? p.b : p.a;
        show(other, pem, count);
        const Duration longest = longest_turn(p, watched, other);
        CHECK((watched.machine->ended() && watched.machine->ended()->reason.contains(reason)));
        return longest;
    };
    const Duration slow =
        outcome(pem_of(certificate_of(slow_public_key()), "CERTIFICATE"), 8, "only ECDSA P-256");
    const Duration usual = outcome(authority().issue("of another node").certificate_pem, chain_length_max,
                                   "more than 4 certificates");
    INFO("usually " << usual.count() << " ns, now " << slow.count() << " ns");
    CHECK(slow < usual + std::chrono::milliseconds(30));  // a second if they are parsed
}

}  // namespace

TEST_CASE("what a handshake's certificates cost does not depend on their keys", "[tcp][B1][B5][A13]") {
    costs_no_more_than_good_ones(false);
    costs_no_more_than_good_ones(true);
}

TEST_CASE("certificates of more than 8 KiB are refused by their length", "[tcp][B5][A13]") {
    TcpPair p;
    show(p.a, authority().issue("of another node").certificate_pem, 30);
    longest_turn(p, p.b, p.a);
    REQUIRE(p.b.machine->ended());
    CHECK(p.b.machine->ended()->reason == "TLS: excessive message size");
}
