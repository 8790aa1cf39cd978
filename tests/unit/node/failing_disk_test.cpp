// A disk that fails at any write, sync or rename: what an error says is what holds, also after a restart.
#include "faults.hpp"
#include "node/identity.hpp"
#include "temporary.hpp"

using namespace nexar;
using namespace nexar::node;
using namespace nexar::node::test;
using namespace nexar::admission;

namespace {

constexpr WallSeconds now = 1'800'000'000;

std::vector<std::string> files_in(const Folder& folder) {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("state")))
        if (entry.path().filename() != "lock") out.push_back(entry.path().filename());
    return out;
}

// Another cluster, whose issuer admits every joiner.
struct Elsewhere {
    Folder folder;
    StateDir state = open_state(folder.file("state"));
    Identity issuer = init_cluster(state, "elsewhere", now).value();

    Result<Identity> admit(const StateDir& joiner) const {
        const std::string key = make_key().value();
        JoinReply reply;
        reply.certificate =
            sign_leaf(issuer.issuer->key, issuer.issuer->certificate, make_csr(key).value(), now).value();
        reply.issuer_certificate = issuer.issuer->certificate;
        reply.root_certificate = issuer.root_certificate;
        return accept_join(joiner, key, reply, issuer.root_key_hash, now);
    }
};

// As a restart would find it.
void check_plain_member(const StateDir& state, const Identity& joined, const Elsewhere& elsewhere) {
    const auto loaded = load_identity(state, now);
    REQUIRE(loaded);
    REQUIRE(*loaded);
    CHECK((*loaded)->node == joined.node);
    CHECK((*loaded)->cluster == elsewhere.issuer.cluster);
    CHECK_FALSE((*loaded)->issuer);
}

}  // namespace

TEST_CASE("an init that fails anywhere leaves nothing, and the node joins elsewhere as a plain member",
          "[node][H14]") {
    const Elsewhere elsewhere;
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const StateDir state = open_state(folder.file("state"));
        {
            const Disk disk(tried + 1);
            const auto made = init_cluster(state, "mine", now);
            failed = disk.failed();
            CHECK(made.has_value() == !failed);
        }
        if (!failed) break;
        CHECK(files_in(folder) == std::vector<std::string>{});
        CHECK_FALSE(load_identity(state, now)->has_value());
        const auto joined = elsewhere.admit(state);
        REQUIRE(joined);
        check_plain_member(state, *joined, elsewhere);
    }
    CHECK(tried >= 18);  // six files, each written, synced and renamed
}

TEST_CASE("what an init that a crash cut short has left makes no issuer of a node that joins elsewhere",
          "[node][H14]") {
    const Elsewhere elsewhere;
    Folder whole;
    const StateDir other = open_state(whole.file("state"));
    REQUIRE(init_cluster(other, "mine", now));
    const std::vector<std::string> order = {"root.key", "issuer.key", "issuer.crt", "node.key", "root.crt"};
    for (size_t written = 1; written <= order.size(); ++written) {
        INFO("after " << order[written - 1]);
        Folder folder;
        const StateDir state = open_state(folder.file("state"));
        for (size_t i = 0; i < written; ++i)
            REQUIRE(state.write(order[i], other.read(order[i]).value().value()));
        const auto joined = elsewhere.admit(state);
        REQUIRE(joined);
        check_plain_member(state, *joined, elsewhere);
    }
}

TEST_CASE("a join that fails anywhere is no membership, and the next one is whole", "[node][H14]") {
    const Elsewhere elsewhere;
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const StateDir state = open_state(folder.file("state"));
        {
            const Disk disk(tried + 1);
            const auto joined = elsewhere.admit(state);
            failed = disk.failed();
            CHECK(joined.has_value() == !failed);
        }
        if (!failed) break;
        CHECK_FALSE(load_identity(state, now)->has_value());
        const auto joined = elsewhere.admit(state);
        REQUIRE(joined);
        check_plain_member(state, *joined, elsewhere);
    }
    CHECK(tried >= 9);
}

TEST_CASE("after a failure the tokens in memory are those that a restart would find", "[node][H15]") {
    const auto texts = [](const Issuer& issuer) { return issuer.tokens.text(); };
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const StateDir state = open_state(folder.file("state"));
        Identity id = init_cluster(state, "mine", now).value();
        Issuer& issuer = *id.issuer;
        for (int i = 0; i < 3; ++i)
            REQUIRE(change_tokens(state, issuer, [&](TokenBook& tokens) -> Result<void> {
                NEXAR_TRY_VOID(tokens.create(id.root_key_hash, {"10.0.0.1:1"}, now, 60, 2));
                return {};
            }));
        const std::string before = texts(issuer);
        const std::string revoked = hex(issuer.tokens.entries()[1].id);
        {
            const Disk disk(tried + 1);
            const auto done =
                change_tokens(state, issuer, [&](TokenBook& tokens) { return tokens.revoke(revoked); });
            failed = disk.failed();
            CHECK(done.has_value() == !failed);
        }
        const auto loaded = load_identity(state, now);
        REQUIRE(loaded);
        REQUIRE(*loaded);
        CHECK(texts(*(*loaded)->issuer) == texts(issuer));
        CHECK((texts(issuer) == before || issuer.tokens.entries().size() == 2));
        if (failed) {  // it can be repeated
            (void)change_tokens(state, issuer, [&](TokenBook& tokens) { return tokens.revoke(revoked); });
        }
        CHECK(issuer.tokens.entries().size() == 2);
        CHECK(texts(*(*load_identity(state, now))->issuer) == texts(issuer));
    }
    CHECK(tried >= 4);
}

TEST_CASE("a change of the tokens that is refused changes nothing", "[node][H15]") {
    Folder folder;
    const StateDir state = open_state(folder.file("state"));
    Identity id = init_cluster(state, "mine", now).value();
    const auto refused = change_tokens(state, *id.issuer, [&](TokenBook& tokens) -> Result<void> {
        NEXAR_TRY_VOID(tokens.create(id.root_key_hash, {"10.0.0.1:1"}, now, 60, 2));
        return fail(Errc::bad_state, "changed my mind");
    });
    REQUIRE_FALSE(refused);
    CHECK(id.issuer->tokens.entries().empty());
}
