// From an event to stderr: the pattern, the limit of one event's lines, and a reader that has stopped.
#include "writers/stderr_log.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <functional>
#include <string>

using namespace nexar;
using namespace nexar::writers;

namespace {

// What log_to_stderr writes, with a pipe in stderr's place.
std::string through_stderr(const std::function<void(Log&)>& use) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const int saved = dup(2);
    dup2(ends[1], 2);
    {
        auto log = log_to_stderr(Level::info);
        use(*log);
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

TEST_CASE("stderr gets one line per event, and braces in values are only text", "[writers]") {
    unsetenv("JOURNAL_STREAM");
    const std::string out = through_stderr([](Log& log) {
        log.info("odd", {field("v", "{} {0} %v %n")});
        log.debug("hidden");
    });
    CHECK(out.ends_with(" odd v=\"{} {0} %v %n\"\n"));
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
}

TEST_CASE("the journal gets priorities instead of times", "[writers]") {
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
          "[writers][H11]") {
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
        auto log = log_to_stderr(Level::debug);
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

TEST_CASE("churn is limited on the way to stderr", "[writers][H11]") {
    unsetenv("JOURNAL_STREAM");
    const std::string out = through_stderr([](Log& log) {
        for (int i = 0; i < 1000; ++i) log.info("session_opened", {field("n", i)});
        log.error("group_failed");
    });
    // On a busy machine the thousand may take more than a second.
    CHECK(std::count(out.begin(), out.end(), '\n') < 900);
    CHECK(out.find(" group_failed\n") != std::string::npos);
}
