// One greedy user, until its end is wanted: its standard input is closed.
//
//   greedy operations COUNT BYTES   keeps so many all_reduces of so many bytes queued at the daemon
//   greedy copies PERCENT BYTES     copies so many bytes again and again, without a daemon
//   greedy files PERCENT BYTES      makes, fills, empties and closes files in memory of so many bytes,
//   without a daemon
//
// PERCENT: of one processor's time; above 100: of several.
//
// Prints a line when that has begun.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
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

// Calls `once` in `part` of each 10 ms; all of the time when it is 1.
void burn(double part, const auto& once) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::duration<double> period{0.01};
    for (auto begin = Clock::now(); !over; begin = Clock::now()) {
        do once();
        while (!over && Clock::now() - begin < period * part);
        if (part < 1)
            std::this_thread::sleep_until(begin + period);  // sleep: the rest of the period is not ours
    }
}

void copy_for_ever(size_t bytes, double part) {
    std::vector<char> from(bytes, 1), to(bytes);
    burn(part, [&] { std::memcpy(to.data(), from.data(), bytes); });
}

// The kernel's work of hostile sessions: fresh pages, holes, mappings that come and go.
void files_for_ever(size_t bytes, double part) {
    const auto size = static_cast<off_t>(bytes);
    burn(part, [&] {
        const int fd = memfd_create("greedy", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, size) != 0) std::exit(EXIT_FAILURE);
        void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) != 0)
            std::exit(EXIT_FAILURE);
        munmap(at, bytes);
        close(fd);
    });
}

void in_threads(size_t percent, size_t bytes, void (*work)(size_t, double)) {
    const size_t threads = (percent + 99) / 100;
    const double part = static_cast<double>(percent) / 100 / static_cast<double>(threads);
    for (size_t i = 0; i < threads; ++i) std::thread(work, bytes, part).detach();
    has_begun();
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // sleep: the threads work
    std::_Exit(EXIT_SUCCESS);
}

void copies(size_t percent, size_t bytes) {
    in_threads(percent, bytes, copy_for_ever);
}

void files(size_t percent, size_t bytes) {
    in_threads(percent, bytes, files_for_ever);
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, void (*)(size_t, size_t)> kinds{
        {"operations", operations}, {"copies", copies}, {"files", files}};
    if (argc != 4 || !kinds.contains(argv[1])) {
        std::fprintf(stderr, "usage: greedy operations|copies|files NUMBER BYTES\n");
        return EXIT_FAILURE;
    }
    std::thread(await_end).detach();
    kinds.at(argv[1])(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
}
