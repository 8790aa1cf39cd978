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

}  // namespace

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
        if (failed) {  // it can be said again
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
