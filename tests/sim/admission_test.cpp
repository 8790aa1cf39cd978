// Admission in the simulator: joiners and an issuer whose wall clocks, connections and crashes are made up;
// tokens, requests, replies and certificates are the production code. An issuer here does what JoinServer
// does, in its order: admit, save the book, sign, answer; its disk is a string, and it may stop between any
// two.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "admission/token.hpp"
#include "clock.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using namespace admission;

constexpr WallSeconds midnight = 1'800'000'000;

// Keys take long to make: one cluster for all tests.
struct ClusterKeys {
    Secret root_key = *make_key(), issuer_key = *make_key();
    std::string root = *make_root(root_key, "sim", midnight);
    std::string issuer = *make_issuer(root_key, root, issuer_key, midnight);
    Digest root_hash = *key_hash_of_certificate(root);
};
const ClusterKeys& keys() {
    static const ClusterKeys made;
    return made;
}

// What both ends of one TLS connection export; another connection has another.
std::vector<std::byte> exporter_of(uint64_t connection) {
    std::vector<std::byte> out(32);
    Random random(connection);
    for (auto& b : out) b = static_cast<std::byte>(random.next());
    return out;
}

enum class Stop { nowhere, before_saving, before_answering };

struct Issuer {
    explicit Issuer(Clock& clock) : clock(clock) {}
    Clock& clock;
    int64_t wall_offset = 0;
    TokenBook book;
    Secret disk;
    size_t certificates_sent = 0;

    WallSeconds wall() const { return midnight + wall_offset + to_ms(clock.now().time_since_epoch()) / 1000; }
    Token make_token(WallSeconds lifetime, uint32_t uses) {
        const auto token = book.create(keys().root_hash, {"10.0.0.1:7000"}, wall(), lifetime, uses);
        REQUIRE(token);
        disk = book.text();
        return *Token::parse(token->text().text());
    }
    // None: it crashed, and has started again from its disk.
    std::optional<std::vector<std::byte>> answer(Bytes bytes, uint64_t connection, Stop stop) {
        const auto reply = admit(bytes, connection, stop);
        if (reply || stop == Stop::nowhere)
            return encode(reply ? *reply : JoinReply{reply.error(), {}, {}, {}});
        book = *TokenBook::parse(disk.text());
        return {};
    }

  private:
    Result<JoinReply> admit(Bytes bytes, uint64_t connection, Stop stop) {
        const Error crashed{Errc::io, "crashed", -1, -1, {}};
        NEXAR_TRY(const JoinRequest request, decode_join_request(bytes));
        NEXAR_TRY_VOID(book.admit(request, exporter_of(connection), keys().root_hash, wall()));
        if (stop == Stop::before_saving) return fail(crashed);
        disk = book.text();
        if (stop == Stop::before_answering) return fail(crashed);
        JoinReply reply;
        NEXAR_TRY(reply.certificate, sign_leaf(keys().issuer_key, keys().issuer, request.csr, wall()));
        reply.issuer_certificate = keys().issuer;
        reply.root_certificate = keys().root;
        ++certificates_sent;
        return reply;
    }
};

std::vector<std::byte> request_of(const Token& token, const std::string& csr, uint64_t connection) {
    const auto mac = join_mac(token.secret, exporter_of(connection), token.id, token.root_key_hash, csr);
    return encode(JoinRequest{token.id, csr, mac, "host"});
}

const Secret& node_key() {
    static const Secret key = *make_key();
    return key;
}
const std::string& csr() {
    static const std::string request = *make_csr(node_key());
    return request;
}

// What the joiner has in the end: empty is success, and its certificate counts as a member's.
std::string result_of(const std::optional<std::vector<std::byte>>& answer, WallSeconds now) {
    if (!answer) return "no answer";
    const auto reply = decode_join_reply(*answer);
    REQUIRE(reply);
    if (reply->error.code != Errc::ok) return reply->error.text;
    DerChain chain;
    for (const std::string* pem : {&reply->certificate, &reply->issuer_certificate})
        chain.push_back(*der_of_pem(*pem));
    const auto node = verify_member(chain, reply->root_certificate, now);
    if (!node) return node.error().text;
    return *node == *node_id_of_key(node_key()) ? "" : "a certificate for somebody else";
}

}  // namespace

TEST_CASE("admission: a token admits as often as it says, then never again") {
    Clock clock(1);
    Issuer issuer(clock);
    const Token token = issuer.make_token(3600, 3);
    for (uint64_t connection = 1; connection <= 6; ++connection) {
        clock.at(clock.now() + 10s, [] {});
        clock.step();
        const auto answer = issuer.answer(request_of(token, csr(), connection), connection, Stop::nowhere);
        REQUIRE(result_of(answer, issuer.wall()) == (connection <= 3 ? "" : "the token is used up"));
    }
    REQUIRE(issuer.certificates_sent == 3);
}

TEST_CASE("admission: a token holds to its last second by the issuer's clock, whatever the joiner's says") {
    for (const int64_t offset : {0, -500, 100'000}) {
        CAPTURE(offset);
        Clock clock(2);
        Issuer issuer(clock);
        issuer.wall_offset = offset;
        const Token token = issuer.make_token(60, 10);
        std::vector<std::string> results;
        for (const Duration when : {Duration{0}, Duration{60s}, Duration{61s}, Duration{1h}})
            clock.at(Time{} + when, [&] {
                const uint64_t connection = results.size();
                results.push_back(
                    result_of(issuer.answer(request_of(token, csr(), connection), connection, Stop::nowhere),
                              issuer.wall()));
            });
        while (clock.step()) {
        }
        REQUIRE(results ==
                std::vector<std::string>{"", "", "the token has expired", "the token has expired"});
    }
}

TEST_CASE("admission: a request replayed on another connection, or changed, is refused and costs no use",
          "[A4]") {
    Clock clock(3);
    Issuer issuer(clock);
    const Token token = issuer.make_token(3600, 1);
    const std::string refused = "the token is unknown here, or its proof is wrong";
    const auto overheard = request_of(token, csr(), 1);
    REQUIRE(result_of(issuer.answer(overheard, 2, Stop::nowhere), issuer.wall()) == refused);
    // An attacker's own CSR with the overheard proof.
    auto stolen = *decode_join_request(overheard);
    stolen.csr = *make_csr(*make_key());
    REQUIRE(result_of(issuer.answer(encode(stolen), 1, Stop::nowhere), issuer.wall()) == refused);
    // Every byte of the request, changed: refused or not a request; never a certificate.
    for (size_t at = 0; at < overheard.size(); ++at) {
        auto changed = overheard;
        changed[at] ^= std::byte{1};
        const auto answer = issuer.answer(changed, 1, Stop::nowhere);
        const bool is_hostname = at + 4 >= overheard.size();  // a name for the log, not part of the proof
        if (is_hostname) continue;
        CAPTURE(at);
        REQUIRE(result_of(answer, issuer.wall()) != "");
        if (issuer.book.entries()[0].uses_left == 0) FAIL("a use was taken at byte " << at);
    }
}

TEST_CASE("admission: a crash between recording and answering costs one use and never gives one away",
          "[A5]") {
    size_t lost = 0, repeated = 0;
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        Clock clock(seed);
        Random& random = clock.random;
        Issuer issuer(clock);
        const auto uses = static_cast<uint32_t>(1 + random.below(4));
        const Token token = issuer.make_token(3600, uses);
        uint32_t taken = 0;
        size_t joined = 0;
        for (uint64_t connection = 1; connection <= 12; ++connection) {
            const auto stop = random.one_in(4) ? static_cast<Stop>(random.below(3)) : Stop::nowhere;
            const bool has_use = taken < uses;
            const auto answer = issuer.answer(request_of(token, csr(), connection), connection, stop);
            const std::string end = result_of(answer, issuer.wall());
            CAPTURE(connection, static_cast<int>(stop), taken, uses);
            if (!has_use) {
                REQUIRE(end == (stop == Stop::nowhere ? "the token is used up" : "no answer"));
            } else if (stop == Stop::nowhere) {
                REQUIRE(end == "");
                ++joined, ++taken;
            } else {
                REQUIRE(end == "no answer");
                taken += stop == Stop::before_answering ? 1 : 0;  // recorded: lost to the joiner
                lost += stop == Stop::before_answering ? 1 : 0;
                repeated += stop == Stop::before_saving ? 1 : 0;  // not recorded: nothing left the issuer
            }
            REQUIRE(issuer.book.entries()[0].uses_left == uses - taken);
            REQUIRE(issuer.disk == issuer.book.text());
        }
        REQUIRE(issuer.certificates_sent == joined);
        REQUIRE(joined <= uses);
    }
    REQUIRE(met(lost));
    REQUIRE(met(repeated));
}

}  // namespace nexar::sim
