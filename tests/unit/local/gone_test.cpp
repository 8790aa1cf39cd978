// Which files are gone is known also when the kernel had no room for its news [S19].
#include "local/gone.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <ios>
#include <memory>
#include <set>
#include <sstream>
#include <streambuf>
#include <string>

using namespace nexar;
using local::Gone;
using loop::Fd;

namespace {

Fd memfd() {
    Fd out(::memfd_create("test", MFD_CLOEXEC));
    REQUIRE(out);
    return out;
}

// More files than the kernel keeps news of go.
void overflow(Gone& gone) {
    size_t most = 0;
    std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> most;
    REQUIRE(most > 0);
    for (size_t i = 0; i <= most; ++i) {
        const Fd file = memfd();
        REQUIRE(gone.watch(file.get()));
    }
}

}  // namespace

TEST_CASE("[S19] what was kept for files is released when they are gone, though news of it were lost",
          "[local]") {
    Gone gone;
    Fd here = memfd(), gone_later = memfd();
    auto first = std::make_shared<int>(), second = std::make_shared<int>();
    const auto watch = [&](const Fd& file) {
        const auto number = gone.watch(file.get());
        REQUIRE(number);
        return *number;
    };
    gone.keep(watch(here), first);
    gone.keep(watch(gone_later), second);
    overflow(gone);
    gone_later.reset();

    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    gone.look();  // nothing shows which are left
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(first.use_count() == 2);
    CHECK(second.use_count() == 2);

    gone.look();
    CHECK(first.use_count() == 2);
    CHECK(second.use_count() == 1);
    here.reset();
    gone.look();
    CHECK(first.use_count() == 1);
    CHECK(gone.empty());
}

namespace {

// Gives some text; the next read fails.
class FailingText final : public std::streambuf {
  public:
    explicit FailingText(std::string text) : text_(std::move(text)) {
        setg(text_.data(), text_.data(), text_.data() + text_.size());
    }

  private:
    int_type underflow() override { throw std::ios_base::failure("no memory"); }
    std::string text_;
};

}  // namespace

TEST_CASE("[S19] what a list that was not read whole lacks is not taken for gone", "[local]") {
    const std::string text = "pos:\t0\nflags:\t02004000\ninotify wd:1f ino:1 sdev:1\ninotify wd:2 ino:2\n";
    std::istringstream whole(text), empty(""), none("pos:\t0\n");
    CHECK(local::watched_in(whole) == std::set<int>{0x1f, 2});
    CHECK(local::watched_in(none) == std::set<int>{});
    CHECK_FALSE(local::watched_in(empty));  // it begins with a line of another kind
    for (const size_t length : {size_t{0}, size_t{40}, text.size()}) {
        FailingText part(text.substr(0, length));
        std::istream fails(&part);
        CHECK_FALSE(local::watched_in(fails));
    }
    std::ifstream missing("/proc/self/fdinfo/no-such");
    CHECK_FALSE(local::watched_in(missing));
}
