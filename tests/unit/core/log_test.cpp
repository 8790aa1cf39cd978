// The log: one event is one line, whatever its values hold; the threshold; the sink.
#include "core/log.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "core/event_limit.hpp"
#include "core/line_writer.hpp"

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

TEST_CASE("numbers print in full", "[core]") {
    Captured c;
    c.log.info("e", {field("a", std::numeric_limits<uint64_t>::max()),
                     field("b", std::numeric_limits<int64_t>::min()), field("c", uint8_t{7})});
    CHECK(c.only() == "e a=18446744073709551615 b=-9223372036854775808 c=7");
}

namespace {

// What to_stderr writes, with a pipe in stderr's place.
std::string through_stderr(const std::function<void(Log&)>& use) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const int saved = dup(2);
    dup2(ends[1], 2);
    {
        auto log = Log::to_stderr(Level::info);
        use(*log);
        log->flush();
    }
    dup2(saved, 2);
    close(saved);
    close(ends[1]);
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        out.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    return out;
}

}  // namespace

TEST_CASE("stderr gets one line per event, and braces in values are only text", "[core]") {
    unsetenv("JOURNAL_STREAM");
    const std::string out = through_stderr([](Log& log) {
        log.info("odd", {field("v", "{} {0} %v %n")});
        log.debug("hidden");
    });
    CHECK(out.ends_with(" odd v=\"{} {0} %v %n\"\n"));
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
}

TEST_CASE("the journal gets priorities instead of times", "[core]") {
    setenv("JOURNAL_STREAM", "1:2", 1);
    const std::string out = through_stderr([](Log& log) {
        log.info("i");
        log.warn("w");
        log.error("e");
    });
    unsetenv("JOURNAL_STREAM");
    CHECK(out == "<6>i\n<4>w\n<3>e\n");
}

TEST_CASE("a reader that has stopped delays nobody, and gets the number of lines that it missed",
          "[core][H11]") {
    unsetenv("JOURNAL_STREAM");
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const int saved = dup(2);
    dup2(ends[1], 2);
    close(ends[1]);
    // In a process of its own: where the writer waits, the alarm ends it.
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        alarm(20);
        auto log = Log::to_stderr(Level::debug);
        const std::string long_value(1000, 'x');
        for (int i = 0; i < 5000; ++i) log->debug("filler", {field("v", long_value)});  // a pipe holds 64 KiB
        log.reset();  // and nobody waits at the end
        _exit(0);
    }
    dup2(saved, 2);
    close(saved);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    close(ends[0]);
}

TEST_CASE("lines that were dropped are counted once there is room again", "[core][H11]") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    LineWriter writer(ends[1]);
    const std::string line(999, 'x');
    uint64_t pushed = 0, read_lines = 0, dropped = 0;
    // Until pipe, batch in progress and waiting lines are all full: then there is no room for a count.
    for (uint64_t taken = 1; taken != 0; dropped += taken) {
        REQUIRE(pushed < 60000);
        for (int i = 0; i < 3000; ++i, ++pushed) writer.push(line + "\n");
        taken = writer.take_dropped();
    }
    char buffer[1000];
    size_t have = 0;
    while (read_lines + dropped < pushed) {
        const ssize_t n = read(ends[0], buffer + have, sizeof buffer - have);
        REQUIRE(n > 0);
        have += static_cast<size_t>(n);
        if (have < sizeof buffer) continue;
        REQUIRE(std::string_view(buffer, 999) == line);
        have = 0;
        ++read_lines;
        dropped += writer.take_dropped();
    }
    CHECK(read_lines + dropped == pushed);
    CHECK(dropped > 0);
    CHECK(read_lines >= LineWriter::bytes_max / 1000);
    close(ends[0]);
    writer.push("nobody reads this\n");
    close(ends[1]);
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

TEST_CASE("churn is limited on the way to stderr", "[core][H11]") {
    unsetenv("JOURNAL_STREAM");
    const std::string out = through_stderr([](Log& log) {
        for (int i = 0; i < 1000; ++i) log.info("session_opened", {field("n", i)});
        log.error("group_failed");
    });
    // On a busy machine the thousand may take more than a second.
    CHECK(std::count(out.begin(), out.end(), '\n') < 900);
    CHECK(out.find(" group_failed\n") != std::string::npos);
}
