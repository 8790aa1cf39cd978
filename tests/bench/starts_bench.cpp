// One rank of a job that compares persistent operations and op groups with operations of their own, in
// alternation; who and how many: from the environment. Rank 0 prints medians and quartiles.
//
//   tests/bench/cluster --nodes 1 --ranks 2 -- build/release/tests/bench/starts_bench [SECONDS]
//
// start: all_reduce of 8 bytes in memory of nexar_alloc; the call that starts it, and from there to its end,
// after a barrier. 32: as many of them, from the first call to the end of the last.
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "nexar.h"

namespace {

constexpr size_t many = 32;

void must(nexar_status status) {
    if (status == NEXAR_OK) return;
    nexar_perror("starts_bench");
    std::exit(EXIT_FAILURE);
}

double now_us() {
    const std::chrono::duration<double, std::micro> out = std::chrono::steady_clock::now().time_since_epoch();
    return out.count();
}

// Instructions of this thread, outside the kernel; 0 where the machine does not count them.
class Instructions {
  public:
    Instructions() {
        perf_event_attr wanted{};
        wanted.type = PERF_TYPE_HARDWARE;
        wanted.size = sizeof wanted;
        wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
        wanted.exclude_kernel = wanted.exclude_hv = 1;
        fd_ = static_cast<int>(::syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0));
    }
    ~Instructions() {
        if (fd_ >= 0) ::close(fd_);
    }
    Instructions(const Instructions&) = delete;
    uint64_t count() const {
        uint64_t out = 0;
        return fd_ >= 0 && ::read(fd_, &out, sizeof out) == sizeof out ? out : 0;
    }

  private:
    int fd_ = -1;
};

struct Samples {
    const char* what;
    std::vector<double> call_us{}, all_us{}, instructions{};
};

double quantile(std::vector<double>& values, double at) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[static_cast<size_t>(at * static_cast<double>(values.size() - 1))];
}

void print(Samples& s) {
    std::printf("%-28s call %7.2f us   to the end %8.2f us (%.2f .. %.2f)   instructions of the call %6.0f\n",
                s.what, quantile(s.call_us, 0.5), quantile(s.all_us, 0.5), quantile(s.all_us, 0.25),
                quantile(s.all_us, 0.75), quantile(s.instructions, 0.5));
}

struct Rank {
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    uint32_t rank = 0;
    uint64_t* values = nullptr;
    nexar_request persistent[many] = {}, started[many] = {};
    Instructions instructions;

    Rank() {
        must(nexar_session_open(nullptr, &session));
        must(nexar_group_open(session, nullptr, &group));
        must(nexar_group_rank(group, &rank));
        void* memory = nullptr;
        must(nexar_alloc(session, many * 64, nullptr, &memory));
        values = static_cast<uint64_t*>(memory);
        for (size_t i = 0; i < many; ++i)
            must(
                nexar_all_reduce_init(group, at(i), at(i), 1, NEXAR_U64, NEXAR_MAX, nullptr, persistent + i));
    }
    uint64_t* at(size_t i) const { return values + i * 8; }
    nexar_status start(size_t i) {
        return nexar_all_reduce_start(group, at(i), at(i), 1, NEXAR_U64, NEXAR_MAX, nullptr, started + i);
    }

    void measure(Samples& into, auto begin, auto end) {
        must(nexar_barrier(group, nullptr));
        const uint64_t before = instructions.count();
        const double began = now_us();
        begin();
        const double called = now_us();
        const uint64_t after = instructions.count();
        end();
        into.all_us.push_back(now_us() - began);
        into.call_us.push_back(called - began);
        into.instructions.push_back(static_cast<double>(after - before));
    }
    void finish_started(size_t count) {
        must(nexar_request_wait_all(started, count, NEXAR_TIMEOUT_NONE, nullptr, 0));
        for (size_t i = 0; i < count; ++i) must(nexar_request_free(started[i]));
    }
};

}  // namespace

int main(int argc, char** argv) {
    const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 5;
    Rank me;
    Samples one{"start"}, persistent{"start, persistent"}, each{"32 one by one"},
        grouped{"32 in an op group"}, all{"32 persistent, start_all"};
    for (const double until = now_us() + seconds * 1e6;;) {
        uint64_t go = now_us() < until;
        must(nexar_broadcast(me.group, &go, 1, NEXAR_U64, 0, nullptr));
        if (go == 0) break;
        me.measure(one, [&] { must(me.start(0)); }, [&] { me.finish_started(1); });
        me.measure(
            persistent, [&] { must(nexar_request_start(me.persistent[0])); },
            [&] { must(nexar_request_wait(me.persistent[0], NEXAR_TIMEOUT_NONE, nullptr)); });
        me.measure(
            each,
            [&] {
                for (size_t i = 0; i < many; ++i) must(me.start(i));
            },
            [&] { me.finish_started(many); });
        me.measure(
            grouped,
            [&] {
                must(nexar_ops_begin(me.session));
                for (size_t i = 0; i < many; ++i) must(me.start(i));
                must(nexar_ops_end(me.session));
            },
            [&] { me.finish_started(many); });
        me.measure(
            all, [&] { must(nexar_request_start_all(me.persistent, many)); },
            [&] { must(nexar_request_wait_all(me.persistent, many, NEXAR_TIMEOUT_NONE, nullptr, 0)); });
    }
    if (me.rank != 0) return 0;
    for (Samples* s : {&one, &persistent, &each, &grouped, &all}) print(*s);
    std::printf("%zu rounds\n", one.all_us.size());
}
