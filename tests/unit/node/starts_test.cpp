// What a start takes from the state directory: the next incarnation, and the secret of the resets.
#include "node/starts.hpp"

#include "support/temporary.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace nexar::node;
using writers::StateDir;

TEST_CASE("each start has a higher incarnation, and a nonce of its own [K8]", "[node]") {
    Folder folder;
    std::vector<Incarnation> seen;
    for (int start = 0; start < 4; ++start) {
        const StateDir state = open_state(folder.file("state"));
        Starts starts = Starts::read(state).value();
        seen.push_back(starts.next());
        REQUIRE(state.apply(starts.files()).result);
    }
    for (size_t i = 0; i < seen.size(); ++i) {
        CHECK(seen[i].counter == i + 1);
        for (size_t j = 0; j < i; ++j) CHECK(seen[i].nonce != seen[j].nonce);
    }
}

TEST_CASE("a damaged incarnation file is named, not guessed at", "[node]") {
    Folder folder;
    const StateDir state = open_state(folder.file("state"));
    for (const std::string text :
         {"", "\n", "x", "12abc", "-3", " 4", "1\n2\n", "99999999999999999999999", "18446744073709551615"}) {
        INFO("'" << text << "'");
        folder.put("state/incarnation", text);
        const auto next = Starts::read(state);
        REQUIRE_FALSE(next);
        CHECK(contains(next.error().text, folder.file("state") + "/incarnation"));
        CHECK(folder.get("state/incarnation") == text);
    }
    folder.put("state/incarnation", "41");
    CHECK(Starts::read(state)->next().counter == 42);
}

TEST_CASE("the reset secret is the same after a restart, another one per port and per node", "[node]") {
    Folder folder, elsewhere;
    const StateDir state = open_state(folder.file("state")), other = open_state(elsewhere.file("state"));
    const Starts first = Starts::read(state).value();
    REQUIRE(state.apply(first.files()).result);
    const Starts again = Starts::read(state).value();
    CHECK(again.reset_secret(7654) == first.reset_secret(7654));
    CHECK(again.reset_secret(7655) != first.reset_secret(7654));
    CHECK(Starts::read(other)->reset_secret(7654) != first.reset_secret(7654));
    REQUIRE(write(state, "reset-secret", "short"));
    CHECK(contains(Starts::read(state).error().text, "reset-secret"));
}
