// One greedy user, until its end is wanted: its standard input is closed.
//
//   greedy operations COUNT BYTES   keeps so many all_reduces of so many bytes queued at the daemon
//   greedy copies COUNT BYTES       copies so many bytes again and again in so many threads, without a daemon
//
// Prints a line when that has begun.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "nexar_calls.hpp"

namespace {

using calls::defaults;

constexpr size_t groups = 4;

std::atomic<bool> over{false};

void must(nexar_status status, const char* what) {
    if (status == NEXAR_OK) return;
    std::fprintf(stderr, "greedy: %s: %s\n", what, nexar_status_name(status));
    std::exit(EXIT_FAILURE);
}

void has_begun() {
    std::puts("begun");
    std::fflush(stdout);
}

void await_end() {
    char byte;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    over = true;
}

nexar_group* open_group(nexar_session* session, size_t number) {
    const std::string name = "greedy" + std::to_string(number);
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    options.name = name.c_str();
    options.size = 1;
    options.collective_timeout_ms = NEXAR_TIMEOUT_NONE;
    nexar_group* group = nullptr;
    must(nexar_group_open(session, &options, &group), "group_open");
    return group;
}

void operations(size_t count, size_t bytes) {
    nexar_session_options options = NEXAR_SESSION_OPTIONS_INIT;
    options.slots = static_cast<uint32_t>(2 * count);
    nexar_session* session = nullptr;
    must(nexar_session_open(&options, &session), "session_open");
    void *in = nullptr, *out = nullptr;
    must(calls::alloc(session, bytes, &in), "alloc");
    must(calls::alloc(session, bytes, &out), "alloc");
    std::vector<nexar_group*> all;
    for (size_t i = 0; i < groups; ++i) all.push_back(open_group(session, i));
    std::vector<nexar_request> queued(count);
    const auto start = [&](size_t i) {
        must(nexar_all_reduce_start(all[i % groups], in, out, bytes / 4, NEXAR_F32, NEXAR_SUM,
                                    NEXAR_BENCH_START(&queued[i])),
             "all_reduce_start");
    };
    for (size_t i = 0; i < count; ++i) start(i);
    has_begun();
    for (size_t i = 0; !over; i = (i + 1) % count) {
        must(calls::finish(queued[i]), "all_reduce");
        start(i);
    }
    std::_Exit(EXIT_SUCCESS);
}

void copies(size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i)
        std::thread([bytes] {
            std::vector<char> from(bytes, 1), to(bytes);
            while (!over) std::memcpy(to.data(), from.data(), bytes);
        }).detach();
    has_begun();
    while (!over)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // sleep: the copying threads work
    std::_Exit(EXIT_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string kind = argc == 4 ? argv[1] : "";
    if (kind != "operations" && kind != "copies") {
        std::fprintf(stderr, "usage: greedy operations|copies COUNT BYTES\n");
        return EXIT_FAILURE;
    }
    std::thread(await_end).detach();
    (kind == "copies" ? copies : operations)(std::strtoull(argv[2], nullptr, 10),
                                             std::strtoull(argv[3], nullptr, 10));
}
