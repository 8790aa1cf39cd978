// The log: one event is one line, whatever its values hold; the threshold; the sink.
#include "core/log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "core/event_limit.hpp"
#include "core/tenant.hpp"

using namespace nexar;

namespace {

struct Captured {
    std::vector<std::pair<Level, std::string>> lines;
    Log log;
    explicit Captured(Level threshold = Level::debug)
        : log([this](Level level, const std::string& line) { lines.emplace_back(level, line); }, threshold) {}
    std::string only() {
        REQUIRE(lines.size() == 1);
        return lines[0].second;
    }
};

std::string value_line(std::string_view value) {
    Captured c;
    c.log.info("e", {field("v", value)});
    return c.only();
}

}  // namespace

TEST_CASE("an event prints its name and its fields in order", "[core]") {
    Captured c;
    c.log.warn("peer_suspected", {field("silent_ms", 612), field("up", true), field("rank", Rank(3)),
                                  field("why", Errc::peer_lost), field("name", "a")});
    CHECK(c.only() == "peer_suspected silent_ms=612 up=true rank=3 why=" +
                          std::string(name_of(Errc::peer_lost)) + " name=a");
    CHECK(c.lines[0].first == Level::warn);
}

TEST_CASE("values that would not be one word are quoted", "[core]") {
    CHECK(value_line("plain-word_1.2:3") == "e v=plain-word_1.2:3");
    CHECK(value_line("two words") == "e v=\"two words\"");
    CHECK(value_line("a=b") == "e v=\"a=b\"");
    CHECK(value_line("") == "e v=\"\"");
    CHECK(value_line("say \"no\"") == "e v=\"say \\\"no\\\"\"");
    CHECK(value_line("C:\\x") == "e v=\"C:\\\\x\"");
}

TEST_CASE("control characters are escaped: no value can forge a line", "[core]") {
    CHECK(value_line("a\nERROR disk_full") == "e v=\"a\\x0aERROR disk_full\"");
    CHECK(value_line("a\r\tb") == "e v=\"a\\x0d\\x09b\"");
    CHECK(value_line("\x1b[2J\x7f") == "e v=\\x1b[2J\\x7f");
    CHECK(value_line(std::string_view("a\0b", 3)) == "e v=a\\x00b");
    CHECK(value_line("a\u009bJ\u202eb\u2067\u061c") ==
          "e v=a\\xc2\\x9bJ\\xe2\\x80\\xaeb\\xe2\\x81\\xa7\\xd8\\x9c");
    CHECK(value_line("\u00a0\u00e9\u2013\u20ac\u4e2d\xe2\x80") ==
          "e v=\u00a0\u00e9\u2013\u20ac\u4e2d\xe2\x80");
    std::string every;
    for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
    for (const char c : value_line(every)) CHECK((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
}

TEST_CASE("two different values never print alike", "[core]") {
    const std::vector<std::string> values = {"\n", "\\x0a", "\"", "\\\"", "\\", "\\\\", "", "\"\"", " "};
    for (size_t i = 0; i < values.size(); ++i)
        for (size_t j = 0; j < i; ++j) CHECK(value_line(values[i]) != value_line(values[j]));
}

TEST_CASE("below the threshold nothing reaches the sink", "[core]") {
    Captured c(Level::warn);
    c.log.debug("d");
    c.log.info("i");
    CHECK(c.lines.empty());
    CHECK_FALSE(c.log.enabled(Level::info));
    CHECK(c.log.enabled(Level::warn));
    c.log.warn("w");
    c.log.error("e");
    c.log.note(Level::debug, "n", {});
    REQUIRE(c.lines.size() == 2);
    CHECK(c.lines[1].second == "e");
}

TEST_CASE("a collected event prints like a direct one", "[core]") {
    Captured c;
    c.log.note(Level::info, "joined", {{"node", "ab"}, {"text", "x y"}});
    CHECK(c.only() == "joined node=ab text=\"x y\"");
}

TEST_CASE("a tenant's noise suppresses that tenant's lines only", "[core][N11][H8]") {
    Tenants tenants;
    TenantRef noisy = tenants.of("", 1);
    const TenantRef quiet = tenants.of("", 2);
    const uint64_t share = tenants.totals().limits.log_lines_per_second();
    CHECK(share == EventLimit::lines_per_second * 30 / 100);
    Captured c;
    const Time begin{std::chrono::seconds(5)};
    const auto log = [&](const TenantRef& tenant, Time now) {
        const size_t before = c.lines.size();
        c.log.warn(tenant.get(), now, "session_closed", {field("pid", 7)});
        return c.lines.size() - before;
    };
    for (int i = 0; i < 1000; ++i) log(noisy, begin + std::chrono::microseconds(i));
    CHECK(c.lines.size() == share);
    CHECK(log(quiet, begin + std::chrono::milliseconds(1)) == 1);
    CHECK(log(nullptr, begin + std::chrono::milliseconds(1)) == 1);
    CHECK(noisy->lines.left_out_in_all() == 1000 - share);
    CHECK(quiet->lines.left_out_in_all() == 0);

    SECTION("after the second the tenant's next line is there, behind the count of those left out") {
        c.lines.clear();
        CHECK(log(noisy, begin + std::chrono::seconds(1)) == 2);
        CHECK(c.lines[0].second ==
              "log_lines_left_out tenant=\"user 1\" count=" + std::to_string(1000 - share));
        CHECK(c.lines[1].second == "session_closed pid=7");
        CHECK(log(noisy, begin + std::chrono::seconds(1)) == 1);
    }
    SECTION("lines of other events count too") {
        c.lines.clear();
        c.log.info(noisy.get(), begin + std::chrono::milliseconds(2), "session_ended", {});
        CHECK(c.lines.empty());
    }
    SECTION("a tenant that comes back is the same one") {
        noisy.reset();
        CHECK(log(tenants.of("", 1), begin + std::chrono::milliseconds(3)) == 0);
    }
}

TEST_CASE("numbers print in full", "[core]") {
    Captured c;
    c.log.info("e", {field("a", std::numeric_limits<uint64_t>::max()),
                     field("b", std::numeric_limits<int64_t>::min()), field("c", uint8_t{7})});
    CHECK(c.only() == "e a=18446744073709551615 b=-9223372036854775808 c=7");
}

TEST_CASE("of one event come so many lines a second, of others all, and the rest is counted", "[core][H11]") {
    EventLimit limit;
    const Time begin{std::chrono::seconds(5)};
    uint64_t passed = 0;
    for (int i = 0; i < 7500; ++i)
        passed += limit.allows("session_opened", begin + std::chrono::microseconds(i));
    CHECK(passed == EventLimit::lines_per_second);
    CHECK(limit.allows("peer_down", begin));
    CHECK_FALSE(limit.poll(begin + std::chrono::milliseconds(999)));
    const auto left_out = limit.poll(begin + std::chrono::seconds(1));
    REQUIRE(left_out);
    CHECK(left_out->event == "session_opened");
    CHECK(left_out->lines == 7500 - EventLimit::lines_per_second);
    CHECK_FALSE(limit.poll(begin + std::chrono::seconds(9)));
    CHECK(limit.allows("session_opened", begin + std::chrono::seconds(1)));
}
