// A disk that fails at any write, sync or rename: what an error says is what holds, also after a restart.
#include <set>

#include "clusters.hpp"
#include "node/token_ledger.hpp"
#include "support/faults.hpp"

using namespace nexar;
using namespace nexar::node;
using namespace nexar::test;
using namespace nexar::node::test;
using namespace nexar::admission;

namespace {

constexpr WallSeconds now = 1'800'000'000;

std::vector<std::string> files_in(const Folder& folder) {
    const std::set<std::string> ignored = {"lock", "incarnation", "reset-secret"};
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file("state")))
        if (!ignored.contains(entry.path().filename())) out.push_back(entry.path().filename());
    return out;
}

// Another cluster, whose issuer admits every joiner.
struct Elsewhere {
    Folder folder;
    writers::StateDir state = open_state(folder.file("state"));
    Identity issuer = init_cluster(state, "elsewhere", now).value();

    Result<Identity> admit(const writers::StateDir& joiner) const {
        const Secret key = make_key().value();
        return join_cluster(joiner, key, reply_of(issuer, key, now), issuer.root_key_hash, now);
    }
};

// As a restart would find it.
void check_plain_member(const writers::StateDir& state, const Identity& joined, const Elsewhere& elsewhere) {
    const auto loaded = load_identity(state, now);
    REQUIRE(loaded);
    REQUIRE(*loaded);
    CHECK((*loaded)->node == joined.node);
    CHECK((*loaded)->cluster == elsewhere.issuer.cluster);
    CHECK_FALSE((*loaded)->issuer);
}

}  // namespace

TEST_CASE("an init that fails anywhere leaves nothing, and the node joins elsewhere as a plain member [K7]",
          "[node][H14]") {
    const Elsewhere elsewhere;
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const writers::StateDir state = open_state(folder.file("state"));
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
    CHECK(tried == 32);  // eight files, each written, synced and renamed, and the directory synced
}

TEST_CASE("what an init that a crash cut short has left makes no issuer of a node that joins elsewhere",
          "[node][H14]") {
    const Elsewhere elsewhere;
    Folder whole;
    const writers::StateDir other = open_state(whole.file("state"));
    REQUIRE(init_cluster(other, "mine", now));
    const std::vector<std::string> order = {"root.key", "issuer.key", "issuer.crt", "node.key", "root.crt"};
    for (size_t written = 1; written <= order.size(); ++written) {
        INFO("after " << order[written - 1]);
        Folder folder;
        const writers::StateDir state = open_state(folder.file("state"));
        for (size_t i = 0; i < written; ++i) REQUIRE(write(state, order[i], text_of(other, order[i])));
        const auto joined = elsewhere.admit(state);
        REQUIRE(joined);
        check_plain_member(state, *joined, elsewhere);
    }
}

TEST_CASE("a join that fails anywhere is no membership, and the next one is whole [K7]", "[node][H14]") {
    const Elsewhere elsewhere;
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const writers::StateDir state = open_state(folder.file("state"));
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

TEST_CASE("after a failure the tokens in memory are those that a restart would find [K4] [K6]",
          "[node][H15]") {
    size_t tried = 0;
    for (bool failed = true; failed; ++tried) {
        INFO("call number " << tried + 1 << " fails");
        REQUIRE(tried < 100);
        Folder folder;
        const writers::StateDir state = open_state(folder.file("state"));
        Identity id = init_cluster(state, "mine", now).value();
        TokenBook& tokens = id.issuer->tokens;
        DirectDisk direct(state);
        TokenLedger ledger(tokens, direct);
        for (int i = 0; i < 3; ++i)
            REQUIRE(ledger
                        .change([&](TokenBook& book) -> Result<void> {
                            NEXAR_TRY_VOID(book.create(id.root_key_hash, {"10.0.0.1:1"}, now, 60, 2));
                            return {};
                        })
                        .outcome()
                        ->result);
        const Secret before = tokens.text();
        const std::string revoked = hex(tokens.entries()[1].id);
        const auto revoke = [&](TokenBook& book) { return book.revoke(revoked); };
        {
            const Disk disk(tried + 1);
            const auto done = ledger.change(revoke);
            failed = disk.failed();
            REQUIRE(done.outcome());
            CHECK(done.outcome()->result.has_value() == !failed);
        }
        CHECK((*load_identity(state, now))->issuer->tokens.text() == tokens.text());
        CHECK((tokens.text() == before || tokens.entries().size() == 2));
        if (failed) (void)ledger.change(revoke);  // it can be repeated
        CHECK(tokens.entries().size() == 2);
        CHECK((*load_identity(state, now))->issuer->tokens.text() == tokens.text());
    }
    CHECK(tried == 5);  // the four calls of one write, and a success
}
