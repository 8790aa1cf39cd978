#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "admission/certificates.hpp"
#include "admission/token.hpp"
#include "core/random.hpp"

using namespace nexar;
using namespace nexar::admission;

namespace {

constexpr WallSeconds now = 1'800'000'000;

struct TestCluster {
    Secret root_key = *make_key();
    std::string root = *make_root(root_key, "test", now);
    Secret issuer_key = *make_key();
    std::string issuer = *make_issuer(root_key, root, issuer_key, now);
    Digest root_hash = *key_hash_of_certificate(root);

    std::string leaf_for(const Secret& node_key) {
        return *sign_leaf(issuer_key, issuer, *make_csr(node_key), now);
    }
};

DerChain chain(std::initializer_list<std::string> pems) {
    DerChain out;
    for (const auto& p : pems) out.push_back(*der_of_pem(p));
    return out;
}

}  // namespace

TEST_CASE("a node's certificate is accepted and yields the hash of its key") {
    TestCluster c;
    const Secret key = *make_key();
    const auto id = verify_member(chain({c.leaf_for(key), c.issuer, c.root}), c.root, now);
    REQUIRE(id);
    REQUIRE(*id == *node_id_of_key(key));
    REQUIRE_FALSE(*id == *node_id_of_key(*make_key()));
}

TEST_CASE("a certificate of another cluster's issuer is refused", "[A1]") {
    TestCluster ours, theirs;
    const std::string leaf = theirs.leaf_for(*make_key());
    REQUIRE(verify_member(chain({leaf, theirs.issuer, theirs.root}), ours.root, now).error().code ==
            Errc::bad_certificate);
    REQUIRE_FALSE(verify_member(chain({leaf, ours.issuer, ours.root}), ours.root, now));
}

TEST_CASE("a certificate is refused before it is valid and after it expired", "[A1]") {
    TestCluster c;
    const std::string leaf = c.leaf_for(*make_key());
    const auto at = [&](WallSeconds t) { return verify_member(chain({leaf, c.issuer, c.root}), c.root, t); };
    REQUIRE(at(now - backdate_seconds + 1));
    REQUIRE_FALSE(at(now - backdate_seconds - 1));
    REQUIRE(at(now + leaf_seconds - 1));
    const auto expired = at(now + leaf_seconds + 1);
    REQUIRE(expired.error().text.find("expired") != std::string::npos);
    REQUIRE(*expiry_of_certificate(leaf) == now + leaf_seconds);
}

TEST_CASE("a member cannot pass as an issuer, nor an issuer as a member", "[A2]") {
    TestCluster c;
    const std::string leaf = c.leaf_for(*make_key());
    REQUIRE(verify_issuer(chain({c.issuer, c.root}), c.root_hash, now));
    REQUIRE(verify_issuer(chain({leaf, c.issuer, c.root}), c.root_hash, now).error().code ==
            Errc::permission);
    REQUIRE_FALSE(verify_issuer(chain({c.root}), c.root_hash, now));
    REQUIRE_FALSE(verify_member(chain({c.issuer, c.root}), c.root, now));
}

TEST_CASE("a member's leaf cannot sign another leaf") {
    TestCluster c;
    const Secret evil_key = *make_key();
    const std::string evil_leaf = c.leaf_for(evil_key);
    const std::string forged = *sign_leaf(evil_key, evil_leaf, *make_csr(*make_key()), now);
    REQUIRE_FALSE(verify_member(chain({forged, evil_leaf, c.issuer, c.root}), c.root, now));
}

TEST_CASE("an issuer of another root is refused by the token's hash", "[A2]") {
    TestCluster ours, theirs;
    REQUIRE_FALSE(verify_issuer(chain({theirs.issuer, theirs.root}), ours.root_hash, now));
    REQUIRE_FALSE(verify_issuer(chain({theirs.issuer, ours.root}), ours.root_hash, now));
}

TEST_CASE("chains that are empty, too long or garbage are refused") {
    TestCluster c;
    REQUIRE_FALSE(verify_member({}, c.root, now));
    REQUIRE_FALSE(verify_member({std::vector<std::byte>(40, std::byte{0x30})}, c.root, now));
    REQUIRE_FALSE(verify_member(chain({c.issuer, c.issuer, c.issuer, c.issuer, c.root}), c.root, now));
    Random random(7);
    const auto leaf = *der_of_pem(c.leaf_for(*make_key()));
    for (int i = 0; i < 300; ++i) {
        auto bent = leaf;
        bent[random.below(bent.size())] ^= static_cast<std::byte>(1 + random.below(255));
        REQUIRE_FALSE(verify_member({bent, *der_of_pem(c.issuer), *der_of_pem(c.root)}, c.root, now));
    }
}

TEST_CASE("a request signed by another key than its own is refused, and so is an oversized one", "[A3]") {
    TestCluster c;
    std::string csr = *make_csr(*make_key());
    REQUIRE(sign_leaf(c.issuer_key, c.issuer, csr, now));
    const size_t at = csr.find('\n', 40) - 12;  // inside the body
    csr[at] = csr[at] == 'A' ? 'B' : 'A';
    REQUIRE_FALSE(sign_leaf(c.issuer_key, c.issuer, csr, now));
    REQUIRE_FALSE(sign_leaf(c.issuer_key, c.issuer, std::string(csr_bytes_max + 1, 'x'), now));
}

TEST_CASE("a token survives its text form; a damaged one is refused") {
    TokenBook book;
    const Token token = *book.create(Digest{1, 2, 3}, {"10.0.0.1:7654", "[fd00::1]:7654"}, now, 600, 1);
    const std::string text(token.text().text());
    const Token back = *Token::parse(text + "\n");
    REQUIRE(back.root_key_hash == token.root_key_hash);
    REQUIRE(back.secret == token.secret);
    REQUIRE(back.expires == now + 600);
    REQUIRE(back.issuer_addresses == token.issuer_addresses);

    for (size_t n = 0; n < text.size(); ++n) REQUIRE_FALSE(Token::parse(text.substr(0, n)));
    REQUIRE_FALSE(Token::parse(text + "A"));
    REQUIRE(Token::parse("hello").error().text.find("hello") == std::string::npos);
}

TEST_CASE("no two tokens have a secret or an id in common") {
    TokenBook book;
    std::vector<Token> tokens;
    for (int n = 0; n < 16; ++n) tokens.push_back(*book.create(Digest{1}, {"a:1"}, now, 600, 1));
    for (size_t a = 0; a < tokens.size(); ++a) {
        for (size_t b = 0; b < a; ++b) {
            REQUIRE(tokens[a].secret != tokens[b].secret);
            REQUIRE(tokens[a].id != tokens[b].id);
        }
    }
}

namespace {
struct Joiner {
    Token token;
    std::string csr = *make_csr(*make_key());
    JoinRequest request(Bytes exporter) const {
        return {token.id, csr, join_mac(token.secret, exporter, token.id, token.root_key_hash, csr), "host"};
    }
};
const std::vector<std::byte> exporter(32, std::byte{9});
const std::vector<std::byte> other_exporter(32, std::byte{8});
}  // namespace

TEST_CASE("a token admits as often as it says, until it expires") {
    const Digest root{5};
    TokenBook book;
    Joiner j{*book.create(root, {"a:1"}, now, 600, 2)};
    REQUIRE(book.admit(j.request(exporter), exporter, root, now));
    REQUIRE(book.admit(j.request(exporter), exporter, root, now + 600));
    REQUIRE(book.admit(j.request(exporter), exporter, root, now).error().code == Errc::bad_token);

    Joiner late{*book.create(root, {"a:1"}, now, 600, 1)};
    REQUIRE(book.admit(late.request(exporter), exporter, root, now + 601).error().code == Errc::bad_token);
}

TEST_CASE("a join request replayed on another connection is refused, and takes no use", "[A4]") {
    const Digest root{5};
    TokenBook book;
    Joiner j{*book.create(root, {"a:1"}, now, 600, 1)};
    const JoinRequest captured = j.request(exporter);
    REQUIRE(book.admit(captured, other_exporter, root, now).error().code == Errc::bad_token);
    JoinRequest swapped = captured;
    swapped.csr = *make_csr(*make_key());
    REQUIRE_FALSE(book.admit(swapped, exporter, root, now));
    JoinRequest unknown = captured;
    unknown.token[0] ^= 1;
    REQUIRE_FALSE(book.admit(unknown, exporter, root, now));
    REQUIRE(book.admit(captured, exporter, root, now));
}

TEST_CASE("the book of tokens survives a restart, uses included; a damaged file is an error") {
    const Digest root{5};
    TokenBook book;
    Joiner j{*book.create(root, {"a:1"}, now, 600, 2)};
    REQUIRE(book.admit(j.request(exporter), exporter, root, now));
    TokenBook again = *TokenBook::parse(book.text().text());
    REQUIRE(again.admit(j.request(exporter), exporter, root, now));
    REQUIRE_FALSE(again.admit(j.request(exporter), exporter, root, now));
    REQUIRE_FALSE(TokenBook::parse("zz"));
    REQUIRE_FALSE(TokenBook::parse("zz zz 1 1\n"));
    REQUIRE(TokenBook::parse(""));
}

TEST_CASE("tokens have limits, and their errors name them") {
    TokenBook book;
    REQUIRE_FALSE(book.create({}, {"a:1"}, now, 0, 1));
    REQUIRE_FALSE(book.create({}, {"a:1"}, now, 31 * 86400, 1));
    REQUIRE(book.create({}, {"a:1"}, now, 600, 0).error().text.find("1 to 10000") != std::string::npos);
    REQUIRE_FALSE(book.create({}, {}, now, 600, 1));
    for (size_t i = 0; i < TokenBook::tokens_max; ++i) REQUIRE(book.create({}, {"a:1"}, now, 600, 1));
    REQUIRE(book.create({}, {"a:1"}, now, 600, 1).error().code == Errc::table_full);
    REQUIRE(book.create({}, {"a:1"}, now + 601, 600, 1));
    REQUIRE(book.revoke(hex(book.entries()[0].id)));
    REQUIRE_FALSE(book.revoke("00"));
}

TEST_CASE("join messages survive the wire; cut or bent ones are refused or differ, and never crash") {
    Joiner j{Token{}};
    const auto bytes = encode(j.request(exporter));
    const JoinRequest back = *decode_join_request(bytes);
    REQUIRE(back.csr == j.csr);
    REQUIRE(back.hostname == "host");
    for (size_t n = 0; n < bytes.size(); ++n) REQUIRE_FALSE(decode_join_request(Bytes(bytes).first(n)));

    JoinReply reply{{Errc::bad_token, "the token has expired", -1, -1, {}}, "leaf", "issuer", "root"};
    const auto answer = encode(reply);
    const JoinReply read = *decode_join_reply(answer);
    REQUIRE(read.error.code == Errc::bad_token);
    REQUIRE(read.root_certificate == "root");
    for (size_t n = 0; n < answer.size(); ++n) REQUIRE_FALSE(decode_join_reply(Bytes(answer).first(n)));
}
