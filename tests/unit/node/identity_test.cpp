// A node's identity on disk: made, loaded, and refused with the name of the file that is damaged.
#include "node/identity.hpp"

#include "clusters.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace nexar::node::test;
using namespace nexar::node;
using namespace nexar::admission;

namespace {

constexpr WallSeconds now = 1'800'000'000;

struct Made {
    Folder folder;
    writers::StateDir state = open_state(folder.file("state"));
    Identity id = [this] {
        auto made = init_cluster(state, "test cluster", now);
        if (!made) FAIL(made.error().text);
        return std::move(*made);
    }();
};

}  // namespace

TEST_CASE("an identity that is set aside is there no more, its keys are kept, and the node can make another",
          "[node][U11]") {
    Made m;
    const auto leave = [&] { return bool(m.state.apply(files_of_leave(m.state, "").value()).result); };
    REQUIRE(leave());
    CHECK_FALSE(load_identity(m.state, now).value());
    for (const char* file : {"node.crt", "node.key", "root.crt", "root.key", "issuer.key", "issuer.crt"}) {
        CAPTURE(file);
        CHECK_FALSE(m.state.read(file).value());
        CHECK(m.state.read(std::string(set_aside_prefix) + file).value());
    }
    const auto again = init_cluster(m.state, "another", now);
    REQUIRE(again);
    CHECK(again->node != m.id.node);
    REQUIRE(leave());  // it replaces the one that was set aside before
    CHECK(m.state.read("left.node.key").value()->text() == again->node_key.text());
}

TEST_CASE("a node that leaves keeps what its configuration asked for, without the secret", "[node][A12]") {
    Made m;
    const auto token = m.id.issuer->tokens.create(m.id.root_key_hash, {"10.0.0.1:7654"}, now, 60, 1);
    REQUIRE(token);
    const std::string text(token->text().text());
    const std::string entry = configured_entry(text, false);
    CHECK(entry == "token " + admission::hex(token->id));
    CHECK((configured_entry("", true) == "init" && configured_entry("", false).empty()));
    CHECK(configured_entry("no token", false).empty());
    REQUIRE(m.state.apply(files_of_leave(m.state, entry).value()).result);
    CHECK(m.state.read(left_entry_file).value()->text() == entry);
    REQUIRE(m.state.apply(files_of_leave(m.state, "").value()).result);  // of a later one: nothing
    CHECK_FALSE(m.state.read(left_entry_file).value());
}

TEST_CASE("what init makes is loaded as the same identity", "[node]") {
    Made m;
    CHECK(m.id.cluster_name() == "test cluster");
    const auto loaded = load_identity(m.state, now);
    REQUIRE(loaded);
    REQUIRE(*loaded);
    CHECK((*loaded)->node == m.id.node);
    CHECK((*loaded)->cluster == m.id.cluster);
    CHECK((*loaded)->root_key_hash == m.id.root_key_hash);
    CHECK((*loaded)->issuer);
    CHECK(node_id_of_key(m.id.node_key).value() == m.id.node);
}

TEST_CASE("an empty directory is no identity and no error", "[node]") {
    Folder folder;
    const writers::StateDir state = open_state(folder.file("state"));
    const auto none = load_identity(state, now);
    REQUIRE(none);
    CHECK_FALSE(*none);
}

TEST_CASE("a damaged file is named in the error, whichever it is", "[node]") {
    Made m;
    for (const std::string name :
         {"node.key", "node.crt", "root.crt", "issuer.key", "issuer.crt", "tokens"}) {
        const auto whole = text_of(m.state, name);
        std::string cut = whole.substr(0, whole.size() / 2), flipped = whole;
        if (!flipped.empty()) flipped[flipped.size() / 2] ^= 0x11;
        for (const std::string& text : {std::string(), std::string("not what it should be\n"), cut}) {
            if (name == "tokens" && text.empty()) continue;  // no tokens is fine
            INFO(name << " is '" << text << "'");
            REQUIRE(write(m.state, name, text));
            const auto loaded = load_identity(m.state, now);
            REQUIRE_FALSE(loaded);
            CHECK(contains(loaded.error().text, name));
            CHECK_FALSE(contains(loaded.error().text, "PRIVATE KEY"));
        }
        if (name != "tokens") {
            REQUIRE(write(m.state, name, flipped));
            CHECK_FALSE(load_identity(m.state, now));
        }
        REQUIRE(write(m.state, name, whole));
        REQUIRE(load_identity(m.state, now));
    }
}

TEST_CASE("a missing file is named, but no certificate at all is no identity", "[node]") {
    Made m;
    for (const std::string name : {"node.key", "root.crt", "issuer.crt"}) {
        const std::string whole = text_of(m.state, name);
        REQUIRE(remove(m.state, name));
        const auto loaded = load_identity(m.state, now);
        REQUIRE_FALSE(loaded);
        CHECK(contains(loaded.error().text, m.state.path() + "/" + name));
        REQUIRE(write(m.state, name, whole));
    }
    REQUIRE(remove(m.state, "issuer.key"));
    CHECK_FALSE((*load_identity(m.state, now))->issuer);
}

TEST_CASE("files of two clusters do not mix", "[node]") {
    Made m, other;
    for (const std::string name : {"node.key", "node.crt", "root.crt", "issuer.key", "issuer.crt"}) {
        INFO(name);
        const std::string whole = text_of(m.state, name);
        REQUIRE(write(m.state, name, text_of(other.state, name)));
        CHECK_FALSE(load_identity(m.state, now));
        REQUIRE(write(m.state, name, whole));
    }
}

TEST_CASE("an issuer's files of another cluster make no issuer: the start names them", "[node][H14]") {
    Made m, other;
    for (const std::string name : {"issuer.key", "issuer.crt"})
        REQUIRE(write(m.state, name, text_of(other.state, name)));
    const auto loaded = load_identity(m.state, now);
    REQUIRE_FALSE(loaded);
    CHECK(contains(loaded.error().text, "issuer.crt"));
    CHECK(contains(loaded.error().text, "issuer of this cluster"));
}

TEST_CASE("an expired certificate is reported as expired", "[node]") {
    Made m;
    REQUIRE(remove(m.state, "issuer.key"));
    CHECK(load_identity(m.state, now + leaf_seconds - 7200));
    const auto late = load_identity(m.state, now + leaf_seconds + 7200);
    REQUIRE_FALSE(late);
    CHECK(contains(late.error().text, "expired 7200 s ago"));
    CHECK(contains(late.error().text, "join again with a new token"));
}

TEST_CASE("an issuer whose own leaf expired while it was down signs itself a new one", "[node]") {
    Made m;
    const WallSeconds late = now + leaf_seconds + 7200;
    const auto loaded = load_identity(m.state, late, 5000);
    REQUIRE(loaded);
    REQUIRE(*loaded);
    CHECK((*loaded)->node == m.id.node);
    CHECK(expiry_of_certificate((*loaded)->certificate).value() == late + 5000);
    CHECK((*loaded)->leaf_unsaved);
    REQUIRE(
        m.state.apply({certificate_change((*loaded)->certificate, (*loaded)->issuer_certificate)}).result);
    const auto again = load_identity(m.state, late + 4000);
    CHECK((*again)->certificate == (*loaded)->certificate);
    CHECK_FALSE((*again)->leaf_unsaved);
}

TEST_CASE("a renewed certificate replaces the old one and its issuer at once", "[node][A10]") {
    Made m;
    const Secret issuer_key = make_key().value();
    const Secret root_key(text_of(m.state, "root.key"));
    const std::string other = make_issuer(root_key, m.id.root_certificate, issuer_key, now).value();
    const std::string leaf = sign_leaf(issuer_key, other, make_csr(m.id.node_key).value(), now + 100).value();
    REQUIRE(m.state.apply({certificate_change(leaf, other)}).result);
    const auto loaded = load_identity(m.state, now + 100);
    REQUIRE(loaded);
    CHECK((*loaded)->node == m.id.node);
    CHECK((*loaded)->certificate == leaf);
    CHECK((*loaded)->issuer_certificate == other);
    REQUIRE(write(m.state, "node.crt", leaf));  // half of it
    CHECK(contains(load_identity(m.state, now + 100).error().text, "node.crt"));
}

TEST_CASE("a reply that fits our key and the token's root is written and loaded", "[node]") {
    Made m;
    Folder folder;
    const writers::StateDir state = open_state(folder.file("joined"));
    const Secret key = make_key().value();
    const auto joined = join_cluster(state, key, reply_of(m.id, key, now), m.id.root_key_hash, now);
    REQUIRE(joined);
    CHECK(joined->node == node_id_of_key(key).value());
    CHECK(joined->cluster == m.id.cluster);
    CHECK_FALSE(joined->issuer);
    CHECK((*load_identity(state, now))->node == joined->node);
}

TEST_CASE("a reply with a foreign key, root or issuer is refused, and nothing is written", "[node]") {
    Made m, other;
    Folder folder;
    const writers::StateDir state = open_state(folder.file("joined"));
    const Secret key = make_key().value(), foreign = make_key().value();
    const JoinReply good = reply_of(m.id, key, now);
    std::vector<JoinReply> bad(6, good);
    bad[0] = reply_of(m.id, foreign, now);                       // certifies somebody else
    bad[1] = reply_of(other.id, key, now);                       // another cluster's, whole
    bad[2].root_certificate = other.id.root_certificate;         // another root than the token names
    bad[3].issuer_certificate = other.id.issuer->certificate;    // does not sign the leaf
    bad[4].certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n";  // no certificate
    bad[5].error = Error{Errc::bad_token, "the token is used up", -1, -1, {}};
    for (size_t i = 0; i < bad.size(); ++i) {
        INFO("case " << i);
        CHECK_FALSE(join_cluster(state, key, bad[i], m.id.root_key_hash, now));
        CHECK_FALSE(*load_identity(state, now));
    }
    CHECK(join_cluster(state, key, bad[5], m.id.root_key_hash, now).error().code == Errc::bad_token);
    CHECK_FALSE(join_cluster(state, key, good, m.id.root_key_hash, now + leaf_seconds + 7200));
    CHECK(join_cluster(state, key, good, m.id.root_key_hash, now));
}
