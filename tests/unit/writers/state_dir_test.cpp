// The state directory: private, one daemon's alone, and never half-written.
#include "writers/state_dir.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "support/faults.hpp"
#include "support/temporary.hpp"

using namespace nexar;
using namespace nexar::test;
using writers::StateDir;

namespace {

mode_t mode_of(const std::string& path) {
    struct stat s{};
    REQUIRE(stat(path.c_str(), &s) == 0);
    return s.st_mode & 07777;
}

// In a process of its own: 0 means that all went as it should.
int in_child(const std::function<int()>& what) {
    const pid_t pid = fork();
    if (pid == 0) _exit(what());
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

constexpr int not_permitted = 77;

// A write that does not fit leaves the old text, no other file, and an error that names the file.
int failing_write(const std::string& path) {
    auto state = StateDir::open(path);
    if (!state) return 1;
    if (text_of(*state, "item") != "old text") return 2;
    const auto end = write(*state, "item", std::string(200'000, 'x'));
    if (end) return 3;
    if (end.error().code != Errc::io || !contains(end.error().text, path + "/item")) return 4;
    if (text_of(*state, "item") != "old text") return 5;
    if (std::filesystem::exists(path + "/item.new")) return 6;
    if (!write(*state, "item", "newer")) return 7;  // there is room for this
    return text_of(*state, "item") == "newer" ? 0 : 8;
}

}  // namespace

TEST_CASE("the directory is made with its parents, private, and so are its files", "[node][A6]") {
    Folder folder;
    const std::string path = folder.file("a/b/state");
    umask(0);
    const StateDir state = open_state(path);
    umask(022);
    CHECK(mode_of(path) == 0700);
    REQUIRE(write(state, "node.key", "secret"));
    CHECK(mode_of(path + "/node.key") == 0600);
    CHECK(text_of(state, "node.key") == "secret");
    CHECK(!*state.read("nothing"));
    CHECK(remove(state, "node.key"));
    CHECK(remove(state, "node.key"));  // gone is gone
    CHECK(!*state.read("node.key"));
}

TEST_CASE("a directory that others may read is made private", "[node]") {
    Folder folder;
    std::filesystem::create_directory(folder.file("state"));
    chmod(folder.file("state").c_str(), 0755);
    open_state(folder.file("state"));
    CHECK(mode_of(folder.file("state")) == 0700);
}

TEST_CASE("a second daemon is refused while the first one runs, and accepted afterwards", "[node]") {
    Folder folder;
    {
        const StateDir first = open_state(folder.file("state"));
        const auto second = StateDir::open(folder.file("state"));
        REQUIRE_FALSE(second);
        CHECK(second.error().code == Errc::bad_state);
        CHECK(contains(second.error().text, folder.file("state") + ": stop that one"));
    }
    CHECK(StateDir::open(folder.file("state")));
}

TEST_CASE("a path that cannot be a directory is named", "[node]") {
    Folder folder;
    folder.put("file", "x");
    for (const char* path : {"file", "file/below"}) {
        const auto state = StateDir::open(folder.file(path));
        REQUIRE_FALSE(state);
        CHECK(contains(state.error().text, folder.file(path)));
    }
}

TEST_CASE("a file above 1 MiB is refused", "[node]") {
    Folder folder;
    const StateDir state = open_state(folder.file("state"));
    folder.put("state/large", std::string((1 << 20) + 1, 'x'));
    CHECK_FALSE(state.read("large"));
    folder.put("state/large", std::string(1 << 20, 'x'));
    CHECK(state.read("large"));
}

TEST_CASE("a write that fails in the middle leaves the old file whole", "[node]") {
    Folder folder;
    REQUIRE(write(open_state(folder.file("state")), "item", "old text"));
    CHECK(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return not_permitted;
              return failing_write(folder.file("state"));
          }) == 0);
    CHECK(folder.get("state/item") == "newer");
}

TEST_CASE("a full disk leaves the old file whole", "[node]") {
    Folder folder;
    std::filesystem::create_directory(folder.file("disk"));
    const int end = in_child([&] {
        if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("tmpfs", folder.file("disk").c_str(), "tmpfs", 0, "size=64k") != 0)
            return not_permitted;
        auto state = StateDir::open(folder.file("disk"));
        if (!state || !write(*state, "item", "old text")) return 20;
        auto moved = std::make_unique<StateDir>(std::move(*state));
        moved.reset();  // gives the lock back
        return failing_write(folder.file("disk"));
    });
    if (end == not_permitted) SKIP("no mount namespaces here");
    CHECK(end == 0);
}

TEST_CASE("a batch is made in order up to the first failure, and says how far it came [K2] [K4]",
          "[writers]") {
    const storage::Batch batch = {{"a", Secret("new")}, {"gone", std::nullopt}, {"b", Secret("new")}};
    // Calls: write, sync, rename and the directory's sync for each content, a sync for the removal.
    const size_t applied_by_call[] = {0, 0, 0, 1, 2, 2, 2, 2, 3};
    for (size_t call = 1; call <= std::size(applied_by_call) + 1; ++call) {
        INFO("call number " << call << " fails");
        Folder folder;
        const StateDir state = open_state(folder.file("state"));
        for (const char* file : {"a", "b", "gone"}) REQUIRE(write(state, file, "old"));
        storage::Outcome outcome;
        {
            const Disk disk(call);
            outcome = state.apply(batch);
            REQUIRE(disk.failed() == (call <= std::size(applied_by_call)));
        }
        CHECK(outcome.result.has_value() == (call > std::size(applied_by_call)));
        if (call <= std::size(applied_by_call)) CHECK(outcome.applied == applied_by_call[call - 1]);
        CHECK(text_of(state, "a") == (outcome.applied >= 1 ? "new" : "old"));
        CHECK(text_of(state, "gone") == (outcome.applied >= 2 ? "" : "old"));
        CHECK(text_of(state, "b") == (outcome.applied >= 3 ? "new" : "old"));
        for (const char* file : {"a.new", "b.new"}) CHECK_FALSE(*state.read(file));
    }
}
