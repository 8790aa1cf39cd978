// dlclose of the library with sessions open: they end with it, and leave nothing in the process.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "nexar.h"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

template <class F>
F function(void* library, const char* name) {
    return reinterpret_cast<F>(::dlsym(library, name));
}

// Loads the library, opens a session with memory in it; null: something failed.
void* load_and_open(const std::string& path) {
    void* library = ::dlopen(NEXAR_C_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    const auto init = function<decltype(&nexar_session_options_init)>(library, "nexar_session_options_init");
    const auto open = function<decltype(&nexar_session_open)>(library, "nexar_session_open");
    const auto alloc = function<decltype(&nexar_alloc)>(library, "nexar_alloc");
    nexar_session_options options;
    init(&options, sizeof options);
    options.socket_path = path.c_str();
    nexar_session* session = nullptr;
    void* memory = nullptr;
    if (open(&options, &session) != NEXAR_OK || alloc(session, 1 << 20, nullptr, &memory) != NEXAR_OK)
        return nullptr;
    std::memset(memory, 1, 1 << 20);
    // A failure, so that this thread has an error to remember.
    if (alloc(session, 0, nullptr, &memory) != NEXAR_ERR_INVALID_ARGUMENT) return nullptr;
    return library;
}

int mappings_of(const char* what) {
    FILE* file = std::fopen("/proc/self/maps", "r");
    char line[1024];
    int count = 0;
    while (file && std::fgets(line, sizeof line, file)) count += std::strstr(line, what) != nullptr;
    if (file) std::fclose(file);
    return count;
}

int descriptors() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        static_cast<void>(entry);
        ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("unloading the library with sessions open leaves no mapping and no descriptor", "[local][D17]") {
    ProcessDaemon daemon;
    Child client([&] {
        const int before = descriptors();
        for (int i = 0; i < 10; ++i) {
            void* library = load_and_open(daemon.path());
            if (!library) return 1;
            if (::dlclose(library) != 0) return 2;
        }
        std::printf("%d mappings, %d of the library, %d descriptors\n", mappings_of("nexar-"),
                    mappings_of("libnexar_c"), descriptors() - before);
        if (mappings_of("nexar-") != 0) return 3;
        if (mappings_of("libnexar_c") != 0) return 4;
        return descriptors() == before ? 0 : 5;
    });
    CHECK(client.wait() == 0);
}

// What the child of a fork finds in its parent's library is not its own to close.
TEST_CASE("a fork's child that unloads the library leaves its parent's session alone", "[local][D17]") {
    ThreadDaemon daemon;
    void* library = load_and_open(daemon.path());
    REQUIRE(library);
    Child child([&] { return ::dlclose(library); });
    CHECK(child.wait() == 0);
    REQUIRE(daemon.counters.sessions == 1);
    nexar_session* session = nullptr;
    const auto init = function<decltype(&nexar_session_options_init)>(library, "nexar_session_options_init");
    const auto open = function<decltype(&nexar_session_open)>(library, "nexar_session_open");
    nexar_session_options options;
    init(&options, sizeof options);
    options.socket_path = daemon.path().c_str();
    REQUIRE(open(&options, &session) == NEXAR_OK);
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 2; }));
    CHECK(::dlclose(library) == 0);
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

// Other threads may still use what nexar_alloc gave while the process ends.
TEST_CASE("exit with sessions open does not take their memory away", "[local][D17]") {
    ProcessDaemon daemon;
    Child client([&] {
        static char* memory = nullptr;
        void* library = load_and_open(daemon.path());
        if (!library) return 1;
        const auto init =
            function<decltype(&nexar_session_options_init)>(library, "nexar_session_options_init");
        const auto open = function<decltype(&nexar_session_open)>(library, "nexar_session_open");
        const auto alloc = function<decltype(&nexar_alloc)>(library, "nexar_alloc");
        nexar_session_options options;
        init(&options, sizeof options);
        options.socket_path = daemon.path().c_str();
        nexar_session* session = nullptr;
        void* given = nullptr;
        if (open(&options, &session) != NEXAR_OK || alloc(session, 4096, nullptr, &given) != NEXAR_OK)
            return 2;
        memory = static_cast<char*>(given);
        std::thread([] {
            auto& word = *reinterpret_cast<std::atomic<char>*>(memory);
            for (;;) ++word;
        }).detach();
        std::exit(0);
    });
    CHECK(client.wait() == 0);
}
