// One rank whose threads share a session, each with a group of its own: they start staged operations, and
// wait for, test and poll their own and each other's requests, so that several threads come to move the same
// bytes.
//
//   staged_client THREADS ROUNDS COUNT SCRATCH_LIMIT      rank, size and the groups' names come from the
//   environment
#include <nexar.h>
#include <poll.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Shared {
    nexar_session* session = nullptr;
    uint64_t threads = 0, rounds = 0, count = 0;
    uint32_t rank = 0, size = 0;
    std::vector<std::atomic<nexar_request>> pending;
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
};

void failed(Shared& shared, const char* what, uint64_t thread, uint64_t round) {
    nexar_error error = NEXAR_ERROR_INIT;
    static_cast<void>(nexar_last_error(&error));
    std::printf("rank %u, thread %llu, round %llu: %s: %s %s\n", shared.rank,
                static_cast<unsigned long long>(thread), static_cast<unsigned long long>(round), what,
                nexar_status_name(error.code), error.text);
    ++shared.failures;
}

uint64_t element(uint64_t rank, uint64_t i, uint64_t thread, uint64_t round) {
    return i * 1009 + rank * 7919 + thread * 31 + round;
}

nexar_group* open_group(Shared& shared, uint64_t thread) {
    const std::string name = std::string(std::getenv("NEXAR_GROUP")) + "-" + std::to_string(thread);
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    options.name = name.c_str();
    options.job_secret = std::getenv("NEXAR_JOB_SECRET");
    options.size = shared.size;
    options.rank = shared.rank;
    nexar_group* group = nullptr;
    if (nexar_group_open(shared.session, &options, &group) != NEXAR_OK) failed(shared, "group", thread, 0);
    return group;
}

// Each round in another way; another thread's request may end, be freed, or become a new one meanwhile.
bool await_end(Shared& shared, uint64_t thread, uint64_t round, nexar_request mine) {
    const nexar_request other = shared.pending[(thread + 1) % shared.threads].load();
    switch ((thread + round) % 4) {
        case 0:
            return nexar_request_wait(mine, 30000, nullptr) == NEXAR_OK;
        case 1:
            while (nexar_request_test(mine, nullptr) == NEXAR_PENDING) {
            }
            return nexar_request_test(mine, nullptr) == NEXAR_OK;
        case 2:
            if (other != 0) static_cast<void>(nexar_request_wait(other, 1000, nullptr));
            return nexar_request_wait(mine, 30000, nullptr) == NEXAR_OK;
        default:
            uint64_t index = 7;
            return nexar_request_wait_any(&mine, 1, 30000, &index, nullptr) == NEXAR_OK && index == 0 &&
                   nexar_request_test(mine, nullptr) == NEXAR_OK;
    }
}

void work(Shared& shared, uint64_t thread) {
    nexar_group* group = open_group(shared, thread);
    std::vector<uint64_t> in(shared.count), apart(shared.count);
    for (uint64_t round = 0; group && round < shared.rounds; ++round) {
        for (uint64_t i = 0; i < shared.count; ++i) in[i] = element(shared.rank, i, thread, round);
        uint64_t* out = round % 2 ? in.data() : apart.data();
        nexar_request request = 0;
        if (nexar_all_reduce_start(group, in.data(), out, shared.count, NEXAR_U64, NEXAR_SUM, nullptr,
                                   &request) != NEXAR_OK)
            return failed(shared, "start", thread, round);
        shared.pending[thread] = request;
        if (!await_end(shared, thread, round, request)) failed(shared, "wait", thread, round);
        shared.pending[thread] = 0;
        if (nexar_request_free(request) != NEXAR_OK) failed(shared, "free", thread, round);
        for (uint64_t i = 0; i < shared.count; ++i) {
            uint64_t want = 0;
            for (uint32_t r = 0; r < shared.size; ++r) want += element(r, i, thread, round);
            if (out[i] == want) continue;
            failed(shared, "wrong", thread, round);
            break;
        }
    }
    nexar_group_free(group);
}

void event_loop(Shared& shared) {
    int fd = -1;
    if (nexar_session_fd(shared.session, &fd) != NEXAR_OK) return failed(shared, "fd", 0, 0);
    while (!shared.stop) {
        nexar_completion some[8];
        uint64_t count = 0;
        if (nexar_session_poll(shared.session, some, sizeof *some, 8, &count) != NEXAR_OK)
            return failed(shared, "poll", 0, 0);
        pollfd wait{fd, POLLIN, 0};
        if (count == 0) ::poll(&wait, 1, 50);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    Shared shared;
    shared.threads = std::strtoull(argv[1], nullptr, 10);
    shared.rounds = std::strtoull(argv[2], nullptr, 10);
    shared.count = std::strtoull(argv[3], nullptr, 10);
    shared.pending = std::vector<std::atomic<nexar_request>>(shared.threads);
    shared.rank = static_cast<uint32_t>(std::atoi(std::getenv("NEXAR_RANK")));
    shared.size = static_cast<uint32_t>(std::atoi(std::getenv("NEXAR_WORLD_SIZE")));
    nexar_session_options options = NEXAR_SESSION_OPTIONS_INIT;
    options.scratch_limit = std::strtoull(argv[4], nullptr, 10);
    if (nexar_session_open(&options, &shared.session) != NEXAR_OK) return failed(shared, "session", 0, 0), 1;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < shared.threads; ++t) threads.emplace_back([&, t] { work(shared, t); });
    std::thread loop([&] { event_loop(shared); });
    for (auto& thread : threads) thread.join();
    shared.stop = true;
    loop.join();
    nexar_session_close(shared.session);
    std::printf("rank %u: %d failures\n", shared.rank, shared.failures.load());
    return shared.failures == 0 ? 0 : 1;
}
