// One rank of a job that times all_reduces of 8 bytes beside what the same user does meanwhile; who and how
// many: from the environment.
//
//   urgent PRIORITY COUNT idle|bulk    PRIORITY: -1 (the operation's own), 0, 1 or 2
//   urgent groups COUNT free|withheld  times COUNT turns in which ten groups have an all_reduce of 1 MiB
//   each; withheld:
//                                      while rank 1 does not receive what rank 0 sends it in another group
//   urgent sleep                       opens a group for itself, and waits in a receive until it is ended
//
// bulk: in each rank a thread keeps all_reduces of 64 MiB and messages of 16 MiB in flight, of another group
// in the same session. Rank 0 prints a JSON object: for each all_reduce the microseconds from the last rank's
// call to the last rank's return. Every result is checked. All ranks are on one machine, so that their clocks
// are one.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "nexar.h"

namespace {

constexpr size_t mebibyte = size_t{1} << 20;
constexpr size_t sum_bytes = 64 * mebibyte, message_bytes = 16 * mebibyte, messages = 2;
constexpr auto pause = std::chrono::microseconds(500);  // between two all_reduces that are timed

void must(nexar_status status, const char* what) {
    if (status == NEXAR_OK) return;
    nexar_error error{};
    error.struct_size = sizeof error;
    const bool known = nexar_last_error(&error) == NEXAR_OK;
    std::fprintf(stderr, "urgent: %s: %s %s\n", what, nexar_status_name(status), known ? error.text : "");
    std::exit(EXIT_FAILURE);
}

uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

struct Job {
    nexar_session* session = nullptr;
    nexar_group *group = nullptr, *bulk = nullptr;
    uint32_t rank = 0, size = 0;
};

// What is in flight all the time, in turns of all ranks: rank 0 decides after each turn whether there is
// another.
class Bulk {
  public:
    explicit Bulk(const Job& job) : job_(job) {
        for (void** at : {&in_, &out_}) must(nexar_alloc(job.session, sum_bytes, nullptr, at), "alloc");
        for (void** at : {&sent_, &got_})
            must(nexar_alloc(job.session, messages * message_bytes, nullptr, at), "alloc");
        auto* const values = static_cast<float*>(in_);
        for (size_t i = 0; i < sum_bytes / 4; ++i) values[i] = static_cast<float>(i % 1000);
    }
    void run() {
        for (uint32_t goes_on = 1; goes_on != 0; ++turns_) {
            turn();
            goes_on = over.load() ? 0 : 1;
            must(nexar_broadcast(job_.bulk, &goes_on, 1, NEXAR_U32, 0, nullptr), "broadcast");
        }
        const auto* const values = static_cast<const float*>(out_);
        for (size_t i = 0; i < sum_bytes / 4; ++i)
            if (values[i] != static_cast<float>(i % 1000) * static_cast<float>(job_.size)) std::exit(3);
    }
    size_t turns() const { return turns_; }
    std::atomic<bool> over{false};

  private:
    void turn() {
        nexar_request requests[1 + 2 * messages];
        const uint32_t next = (job_.rank + 1) % job_.size, before = (job_.rank + job_.size - 1) % job_.size;
        size_t n = 0;
        for (size_t m = 0; m < messages; ++m) {
            must(nexar_recv_start(job_.bulk, at(got_, m), message_bytes, NEXAR_U8, before, m, nullptr,
                                  &requests[n++]),
                 "recv");
            must(nexar_send_start(job_.bulk, at(sent_, m), message_bytes, NEXAR_U8, next, m, nullptr,
                                  &requests[n++]),
                 "send");
        }
        must(nexar_all_reduce_start(job_.bulk, in_, out_, sum_bytes / 4, NEXAR_F32, NEXAR_SUM, nullptr,
                                    &requests[n++]),
             "sum");
        for (const nexar_request request : requests) {
            must(nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr), "wait");
            must(nexar_request_free(request), "free");
        }
    }
    static char* at(void* memory, size_t m) { return static_cast<char*>(memory) + m * message_bytes; }

    const Job& job_;
    void *in_ = nullptr, *out_ = nullptr, *sent_ = nullptr, *got_ = nullptr;
    size_t turns_ = 0;
};

// By operation: the call and the return.
std::vector<uint64_t> timed(const Job& job, int32_t priority, size_t count) {
    nexar_op_options options = NEXAR_OP_OPTIONS_INIT;
    options.priority = priority;
    void* memory = nullptr;
    must(nexar_alloc(job.session, 8, nullptr, &memory), "alloc");
    auto* const value = static_cast<uint64_t*>(memory);
    std::vector<uint64_t> times;
    for (size_t i = 0; i < count; ++i) {
        std::this_thread::sleep_for(pause);  // sleep: operations one by one, not a stream of them
        *value = i + job.rank;
        times.push_back(now_ns());
        must(nexar_all_reduce(job.group, value, value, 1, NEXAR_U64, NEXAR_SUM, &options), "all_reduce");
        times.push_back(now_ns());
        if (*value != i * job.size + job.size * (job.size - 1) / 2) std::exit(3);
    }
    return times;
}

void print(const Job& job, size_t count, const std::vector<uint64_t>& all, size_t turns) {
    std::printf(R"({"turns": %zu, "microseconds": [)", turns);
    for (size_t i = 0; i < count; ++i) {
        uint64_t called = 0, returned = 0;
        for (uint32_t rank = 0; rank < job.size; ++rank) {
            called = std::max(called, all[(rank * count + i) * 2]);
            returned = std::max(returned, all[(rank * count + i) * 2 + 1]);
        }
        std::printf("%s%.1f", i != 0 ? ", " : "", static_cast<double>(returned - called) / 1000);
    }
    std::printf("]}\n");
}

void open_job(Job& job) {
    must(nexar_session_open(nullptr, &job.session), "session_open");
    must(nexar_group_open(job.session, nullptr, &job.group), "group_open");
    must(nexar_group_rank(job.group, &job.rank), "rank");
    must(nexar_group_size(job.group, &job.size), "size");
    must(nexar_group_dup(job.group, &job.bulk, nullptr), "dup");
}

int measure(int32_t priority, size_t count, bool with_bulk) {
    Job job;
    open_job(job);
    Bulk bulk(job);
    timed(job, priority, 100);  // not counted
    std::thread beside;
    if (with_bulk) beside = std::thread([&] { bulk.run(); });
    const std::vector<uint64_t> own = timed(job, priority, count);
    bulk.over = true;
    if (with_bulk) beside.join();
    std::vector<uint64_t> all(job.rank == 0 ? own.size() * job.size : 0);
    must(nexar_gather(job.group, own.data(), all.data(), own.size(), NEXAR_U64, 0, nullptr), "gather");
    if (job.rank == 0) print(job, count, all, bulk.turns());
    must(nexar_barrier(job.group, nullptr), "barrier");
    must(nexar_session_close(job.session), "session_close");
    return 0;
}

// What rank 0 sends in a group of its own, and rank 1 receives only at the end: more than is kept of it
// anywhere.
class Withheld {
  public:
    explicit Withheld(const Job& job) : job_(job) {
        for (size_t m = 0; m < count; ++m) memory_.emplace_back(bytes_of(m), static_cast<char>(m));
        requests_.resize(count);
        if (job.rank == 0)
            for (size_t m = 0; m < count; ++m)
                must(nexar_send_start(job.bulk, memory_[m].data(), bytes_of(m), NEXAR_U8, 1, m, nullptr,
                                      &requests_[m]),
                     "send");
    }
    void receive() {
        for (size_t m = 0; m < count; ++m) {
            if (job_.rank == 1) {
                std::vector<char> got(bytes_of(m));
                must(nexar_recv(job_.bulk, got.data(), got.size(), NEXAR_U8, 0, m, nullptr, nullptr), "recv");
                if (got != memory_[m]) std::exit(3);
            } else if (job_.rank == 0) {
                must(nexar_request_wait(requests_[m], NEXAR_TIMEOUT_NONE, nullptr), "wait");
                must(nexar_request_free(requests_[m]), "free");
            }
        }
    }

  private:
    static constexpr size_t count = 200;
    static size_t bytes_of(size_t m) { return m % 2 == 0 ? 4096 : mebibyte; }
    const Job& job_;
    std::vector<std::vector<char>> memory_;
    std::vector<nexar_request> requests_;
};

void turn_of(const std::vector<nexar_group*>& groups, const std::vector<void*>& memory, uint32_t value,
             uint32_t sum) {
    std::vector<nexar_request> requests(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
        *static_cast<uint32_t*>(memory[g]) = value;
        must(nexar_all_reduce_start(groups[g], memory[g], memory[g], mebibyte / 4, NEXAR_U32, NEXAR_SUM,
                                    nullptr, &requests[g]),
             "sum");
    }
    for (size_t g = 0; g < groups.size(); ++g) {
        must(nexar_request_wait(requests[g], NEXAR_TIMEOUT_NONE, nullptr), "wait");
        must(nexar_request_free(requests[g]), "free");
        if (*static_cast<uint32_t*>(memory[g]) != sum) std::exit(3);
    }
}

int measure_groups(size_t count, bool with_withheld) {
    Job job;
    open_job(job);
    std::vector<nexar_group*> groups(10);
    std::vector<void*> memory(groups.size());
    for (nexar_group*& group : groups) must(nexar_group_dup(job.group, &group, nullptr), "dup");
    for (void*& at : memory) must(nexar_alloc(job.session, mebibyte, nullptr, &at), "alloc");
    std::optional<Withheld> withheld;
    if (with_withheld) withheld.emplace(job);
    std::vector<double> times;
    for (size_t i = 0; i < count + 10; ++i) {
        must(nexar_barrier(job.group, nullptr), "barrier");
        const auto value = static_cast<uint32_t>(i);
        const uint64_t begin = now_ns();
        turn_of(groups, memory, value + job.rank, value * job.size + job.size * (job.size - 1) / 2);
        if (i >= 10)
            times.push_back(static_cast<double>(now_ns() - begin) / 1000);  // those before are not counted
    }
    if (withheld) withheld->receive();
    if (job.rank == 0) {
        std::printf(R"({"microseconds": [)");
        for (size_t i = 0; i < times.size(); ++i) std::printf("%s%.1f", i != 0 ? ", " : "", times[i]);
        std::printf("]}\n");
    }
    must(nexar_barrier(job.group, nullptr), "barrier");
    must(nexar_session_close(job.session), "session_close");
    return 0;
}

// In a call, and asleep: nothing comes.
int sleep_for_ever() {
    nexar_session* session = nullptr;
    must(nexar_session_open(nullptr, &session), "session_open");
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    options.name = "asleep";
    options.size = 1;
    nexar_group* group = nullptr;
    must(nexar_group_open(session, &options, &group), "group_open");
    nexar_request request = 0;
    nexar_op_options waits = NEXAR_OP_OPTIONS_INIT;
    waits.timeout_ms = NEXAR_TIMEOUT_NONE;
    char byte = 0;
    must(nexar_recv_start(group, &byte, 1, NEXAR_U8, 0, 1, &waits, &request), "recv");
    std::puts("begun");
    std::fflush(stdout);
    nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && argv[1] == std::string("sleep")) return sleep_for_ever();
    if (argc == 4 && argv[1] == std::string("groups"))
        return measure_groups(std::strtoull(argv[2], nullptr, 10), argv[3] == std::string("withheld"));
    if (argc != 4) {
        std::fprintf(
            stderr,
            "usage: urgent PRIORITY COUNT idle|bulk, urgent groups COUNT free|withheld, or urgent sleep\n");
        return 2;
    }
    return measure(std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10), argv[3] == std::string("bulk"));
}
