// Whose question is answered next.
#include "node/questions.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

using namespace nexar;
using namespace nexar::node;

namespace {

const auto all = [](const Question&) { return true; };

struct Asked {
    Questions questions;
    std::vector<std::shared_ptr<int>> connections;

    void ask(uint32_t uid, const std::string& command, Time until = {}) {
        connections.push_back(std::make_shared<int>());
        questions.add({command, {}, TenantName{"", uid}, uid, connections.back(), {}, until});
    }
    std::vector<uint32_t> take_all() {
        std::vector<uint32_t> out;
        while (const auto question = questions.take(all)) out.push_back(question->uid);
        return out;
    }
};

}  // namespace

TEST_CASE("users' questions are answered in turns, however many one of them has", "[N17]") {
    Asked asked;
    for (int i = 0; i < 8; ++i) asked.ask(2001, "groups");
    for (const uint32_t uid : {2002u, 2003u, 2002u}) asked.ask(uid, "status");

    CHECK(asked.take_all() ==
          std::vector<uint32_t>{2001, 2002, 2003, 2001, 2002, 2001, 2001, 2001, 2001, 2001, 2001});
    CHECK(asked.questions.empty());

    SECTION("and who asks again has had his turn") {
        asked.ask(2001, "groups");
        asked.ask(2002, "groups");
        REQUIRE(asked.questions.take(all)->uid == 2002);
        asked.ask(2002, "groups");
        REQUIRE(asked.questions.take(all)->uid == 2001);
    }
}

TEST_CASE("a question that waits for other nodes holds up no other one", "[N17]") {
    Asked asked;
    asked.ask(2001, "groups", Time(Duration{5}));
    asked.ask(2001, "status");
    asked.ask(2002, "ops", Time(Duration{3}));
    const auto is_due = [](const Question& question) { return question.until == Time{}; };

    CHECK(asked.questions.next() == Time{});
    CHECK(asked.questions.take(is_due)->command == "status");
    CHECK_FALSE(asked.questions.take(is_due));
    CHECK(asked.questions.next() == Time(Duration{3}));
    CHECK(asked.questions.has("ops"));
    CHECK_FALSE(asked.questions.has("status"));
}

TEST_CASE("a question whose asker has gone is not answered", "[N17]") {
    Asked asked;
    asked.ask(2001, "groups");
    asked.ask(2002, "groups");
    asked.connections[0].reset();

    CHECK(asked.take_all() == std::vector<uint32_t>{2002});
}
