// One line of the admin protocol.
#include "control/request.hpp"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

using namespace nexar;
using namespace nexar::control;
using nlohmann::json;

TEST_CASE("a request is a command and arguments, which may be left out") {
    const auto full = parse_request(R"({"command": "groups", "arguments": {"group": "digits"}})");
    REQUIRE(full->command == "groups");
    REQUIRE(json::parse(full->arguments) == json{{"group", "digits"}});

    REQUIRE(parse_request(R"({"command":"status"})")->arguments == "{}");
}

TEST_CASE("what is not a request is refused with the reason, whatever it is") {
    for (const char* line : {"", "status", "[]", "null", "{", "{}", R"({"command": 7})", R"({"command": ""})",
                             R"({"command": "x", "arguments": []})", R"({"command": "x", "force": true})",
                             "{\"command\": \"\xff\xfe\"}", R"({"command": "x"} trailing)"}) {
        CAPTURE(line);
        const auto request = parse_request(line);
        REQUIRE(!request);
        REQUIRE(request.error().code == Errc::protocol_error);
        REQUIRE(request.error().text.find("\"status\"") != std::string::npos);
    }
    REQUIRE(!parse_request(R"({"command": ")" + std::string(65, 'x') + "\"}"));
}

TEST_CASE("nesting is limited, also thirty thousand levels deep, and brackets inside strings do not count",
          "[C2]") {
    const std::string deep(30000, '[');
    REQUIRE(parse_request(R"({"command": "x", "arguments": {"a": )" + deep).error().text.find("16 levels") !=
            std::string::npos);

    REQUIRE(parse_request(R"({"command": "x", "arguments": {"a": ")" + std::string(40, '[') + R"(\"["}})"));
}

TEST_CASE("an answer is one line of JSON, whatever bytes the error's text holds") {
    Error error{Errc::peer_lost, "line one\nline \"two\" \xff", 3, -1, "abc"};
    const std::string line = answer_line(std::unexpected(error));

    REQUIRE(line.find('\n') == line.size() - 1);
    const json parsed = json::parse(line);
    REQUIRE(parsed["ok"] == false);
    REQUIRE(parsed["error"]["name"] == "PEER_LOST");
    REQUIRE(parsed["error"]["code"] == -601);
    REQUIRE(parsed["error"]["rank"] == 3);
    REQUIRE(parsed["error"]["node"] == "abc");
}

TEST_CASE("a result printed over several lines still makes one") {
    const std::string line = answer_line(std::string("{\n  \"a\": 1\n}"));
    REQUIRE(line.find('\n') == line.size() - 1);
    REQUIRE(json::parse(line) == json{{"ok", true}, {"result", {{"a", 1}}}});
    REQUIRE(json::parse(answer_line(std::string())) == json{{"ok", true}, {"result", nullptr}});
}
