// What every program of tools/bench measures, and how: nexar, its peers and the limits are measured by the
// same lines, so that their times can be compared.
//
//   PROGRAM [--operations all_reduce,idle,cold,latency,stream] [--memory alloc,ordinary] [--bytes 8,4096]
//           [--only OPERATION:MEMORY:BYTES,...] [--seconds PER-MEASUREMENT] [--repetitions AT-MOST]
//
// Rank 0 prints a JSON object per measurement: all times, in microseconds. all_reduce: the call on rank 0, in
// place, after a barrier. idle: the same after all ranks have slept for 10 ms, from the last one's call to
// rank 0's return (the ranks are on one machine, and have one clock). cold: the same after all ranks have
// computed, and read more than the processor's caches hold. latency: half of a message's way from rank 0 to
// the last rank and back. stream: that many messages from rank 0 to the last, begun at once, until the last
// rank says that it has them all.
//
// With the times come processor seconds, of all counted turns together: application_seconds is what every
// rank used within its own call, daemon_seconds what the processes in BENCH_DAEMONS (their numbers, with
// commas) used within the call of rank 0.
//
// A Job, the template parameter, has rank, size, barrier(), broadcast(uint64_t&) from rank 0,
// all_reduce(float*, count), send and recv(data, bytes, peer, tag), send_start and recv_start with the same
// arguments, finish(what they return), and allocate(bytes), deallocate(data) for memory of its own kind, or
// nullptr.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace measured {

inline constexpr size_t mebibyte = size_t{1} << 20;
inline constexpr uint32_t message_tag = 1, total_tag = 1000;  // a stream has its messages' numbers
inline constexpr std::chrono::milliseconds idle_pause{10};

[[noreturn]] inline void fail(const std::string& words) {
    std::fprintf(stderr, "bench: %s\n", words.c_str());
    std::exit(EXIT_FAILURE);
}

inline std::vector<std::string> split(const std::string& text, char mark) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(mark, at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

// What a program computes over between two operations: it reads each line of twice the largest cache, at most
// 1 GiB, so that nothing of what an operation needs is left there.
class Sweep {
  public:
    Sweep()
        : data_(std::clamp<size_t>(2 * cache_bytes(), 8 * mebibyte, 1024 * mebibyte) / sizeof(uint64_t), 1) {}
    void operator()() {
        constexpr size_t line = 64 / sizeof(uint64_t);
        uint64_t sum = 0;
        for (size_t i = 0; i < data_.size(); i += line) sum += data_[i];
        data_[0] = sum;  // so it is computed
    }

  private:
    // Zero: the machine does not say.
    static size_t cache_bytes() {
        return static_cast<size_t>(
            std::max({0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE)}));
    }
    std::vector<uint64_t> data_;
};

// The processor time of this process, and of daemons.
class Processors {
  public:
    Processors() {
        const char* const named = std::getenv("BENCH_DAEMONS");
        if (named == nullptr || *named == '\0') return;
        for (const std::string& pid : split(named, ',')) {
            clockid_t clock{};
            if (clock_getcpuclockid(std::atoi(pid.c_str()), &clock) != 0)
                fail("no daemon has the pid " + pid);
            daemons_.push_back(clock);
        }
    }
    static double own() { return seconds(CLOCK_PROCESS_CPUTIME_ID); }
    double daemons() const {
        double sum = 0;
        for (const clockid_t clock : daemons_) sum += seconds(clock);
        return sum;
    }

  private:
    static double seconds(clockid_t clock) {
        timespec time{};
        if (clock_gettime(clock, &time) != 0) fail("a daemon has ended");
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    }
    std::vector<clockid_t> daemons_;
};

struct Taken {
    double microseconds = 0, application = 0, daemons = 0;  // the others: seconds of a processor
};

// All ranks read the same clocks before the work, so that none begins later than the others for it.
Taken taken_by(const Processors& processors, const auto& work) {
    const double daemons = processors.daemons(), own = Processors::own();
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return {took.count(), Processors::own() - own, processors.daemons() - daemons};
}

struct Options {
    std::vector<std::string> operations = {"all_reduce", "latency", "stream"}, memory = {"alloc", "ordinary"};
    std::vector<std::string> bytes = {"8", "4096"};
    std::vector<std::string> only;
    double seconds = 0.2;
    uint64_t repetitions = 200;
};

inline size_t size_from(const std::string& text) {
    const size_t bytes = std::strtoull(text.c_str(), nullptr, 10);
    if (bytes < 8 || bytes % 8 != 0 || bytes > 1024 * mebibyte)
        fail("'" + text + "' is no size (allowed: multiples of 8 up to 1 GiB)");
    return bytes;
}

inline Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        if (name == "--operations")
            options.operations = split(value, ',');
        else if (name == "--memory")
            options.memory = split(value, ',');
        else if (name == "--bytes")
            options.bytes = split(value, ',');
        else if (name == "--only")
            options.only = split(value, ',');
        else if (name == "--seconds")
            options.seconds = std::strtod(value.c_str(), nullptr);
        else if (name == "--repetitions")
            options.repetitions = std::max(2ull, std::strtoull(value.c_str(), nullptr, 10));
        else
            fail("unknown option '" + name +
                 "' (allowed: --operations, --memory, --bytes, --only, --seconds, --repetitions)");
    }
    return options;
}

// Memory of one kind, as words.
template <class Job>
class Buffer {
  public:
    Buffer(Job& job, const std::string& kind, size_t bytes) : job_(job), size_(bytes / 4) {
        if (kind == "alloc")
            shared_ = job.allocate(bytes);
        else if (kind == "ordinary")
            own_ = std::make_unique<uint32_t[]>(size_);
        if (data() == nullptr)
            fail("unknown memory '" + kind + "' (allowed: alloc, where it is offered; ordinary)");
    }
    ~Buffer() {
        if (shared_ != nullptr) job_.deallocate(shared_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() { return shared_ != nullptr ? shared_ : own_.get(); }
    uint32_t* words() { return static_cast<uint32_t*>(data()); }
    float* floats() { return static_cast<float*>(data()); }
    size_t size() const { return size_; }

  private:
    Job& job_;
    size_t size_;
    void* shared_ = nullptr;
    std::unique_ptr<uint32_t[]> own_;
};

// Whole and small, so that sums are exact; no two pages and no two turns are alike.
inline float summand(size_t i, uint64_t turn) {
    return static_cast<float>((static_cast<uint32_t>(i ^ (i >> 10)) + static_cast<uint32_t>(turn) * 37) &
                              1023);
}

// The words of a message: `from` and `turn` make messages differ, and so does each word's place.
inline uint32_t word(size_t i, uint32_t from, uint64_t turn) {
    return static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(turn) * 40503u + from;
}
inline void fill(uint32_t* words, size_t count, uint32_t from, uint64_t turn) {
    for (size_t i = 0; i < count; ++i) words[i] = word(i, from, turn);
}
inline void check(const uint32_t* words, size_t count, uint32_t from, uint64_t turn) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += words[i] != word(i, from, turn);
    if (wrong != 0) fail("message: " + std::to_string(wrong) + " of its words are wrong");
}

template <class Job>
class Measurements {
  public:
    Measurements(Job& job, const Options& options) : job_(job), options_(options) {}

    void all() {
        for (const std::string& cell : options_.only) {
            const std::vector<std::string> parts = split(cell, ':');
            if (parts.size() != 3) fail("'" + cell + "': want OPERATION:MEMORY:BYTES");
            measure(parts[0], parts[1], size_from(parts[2]));
        }
        if (!options_.only.empty()) return;
        for (const std::string& operation : options_.operations)
            for (const std::string& memory : options_.memory)
                for (const std::string& bytes : options_.bytes) measure(operation, memory, size_from(bytes));
    }

  private:
    void measure(const std::string& operation, const std::string& memory, size_t bytes) {
        size_t messages = 1;
        std::vector<Taken> turns;
        if (operation == "all_reduce") {
            Buffer buffer(job_, memory, bytes);
            turns = repeated(bytes, [&](uint64_t turn) { return all_reduce(buffer, turn); });
        } else if (operation == "idle") {
            Buffer buffer(job_, memory, bytes);
            const auto sleeps = [] { std::this_thread::sleep_for(idle_pause); };  // sleep: measured
            turns = repeated(bytes, [&](uint64_t turn) { return all_reduce_after(sleeps, buffer, turn); });
        } else if (operation == "cold") {
            Buffer buffer(job_, memory, bytes);
            Sweep sweep;
            turns = repeated(bytes, [&](uint64_t turn) { return all_reduce_after(sweep, buffer, turn); });
        } else if (operation == "latency") {
            Buffer out(job_, memory, bytes), in(job_, memory, bytes);
            turns = repeated(bytes, [&](uint64_t turn) { return latency(out, in, turn); });
        } else if (operation == "stream") {
            messages = std::clamp(64 * mebibyte / bytes, size_t{2}, size_t{64});
            Buffer buffer(job_, memory, bytes * messages);
            turns = repeated(bytes, [&](uint64_t turn) { return stream(buffer, messages, turn); });
        } else {
            fail("unknown operation '" + operation + "' (allowed: all_reduce, idle, cold, latency, stream)");
        }
        print(operation, memory, bytes, messages, turns);
    }

    Taken all_reduce(Buffer<Job>& buffer, uint64_t turn) {
        fill_summands(buffer, turn);
        job_.barrier();
        const Taken took = taken_by(processors_, [&] { job_.all_reduce(buffer.floats(), buffer.size()); });
        check_sums(buffer, turn);
        return took;
    }

    // From the last rank's call: what taken_by() asks of the kernel before it is no part of that.
    Taken all_reduce_after(auto&& pause, Buffer<Job>& buffer, uint64_t turn) {
        fill_summands(buffer, turn);
        job_.barrier();
        pause();
        uint64_t begin = 0, end = 0;
        Taken took = taken_by(processors_, [&] {
            begin = clock_ns();
            job_.all_reduce(buffer.floats(), buffer.size());
            end = clock_ns();
        });
        check_sums(buffer, turn);
        took.microseconds = static_cast<double>(end - latest(begin)) / 1e3;
        return took;
    }
    static uint64_t clock_ns() {
        return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    }
    // At rank 0: of all ranks.
    uint64_t latest(uint64_t own) {
        if (job_.rank != 0) job_.send(&own, sizeof own, 0, total_tag);
        uint64_t other = 0;
        for (uint32_t rank = 1; job_.rank == 0 && rank < job_.size; ++rank) {
            job_.recv(&other, sizeof other, rank, total_tag);
            own = std::max(own, other);
        }
        return own;
    }

    void fill_summands(Buffer<Job>& buffer, uint64_t turn) {
        const auto own = static_cast<float>(job_.rank);
        for (size_t i = 0; i < buffer.size(); ++i) buffer.floats()[i] = summand(i, turn) + own;
    }
    void check_sums(Buffer<Job>& buffer, uint64_t turn) {
        const float* const values = buffer.floats();
        const auto ranks = static_cast<float>(job_.size), rest = ranks * (ranks - 1) / 2;
        size_t wrong = 0;
        for (size_t i = 0; i < buffer.size(); ++i) wrong += values[i] != summand(i, turn) * ranks + rest;
        if (wrong != 0) fail("all_reduce: " + std::to_string(wrong) + " wrong elements");
    }

    // There and back between rank 0 and the last rank; the others only wait.
    Taken latency(Buffer<Job>& out, Buffer<Job>& in, uint64_t turn) {
        const uint32_t last = job_.size - 1, other = job_.rank == 0 ? last : 0;
        const size_t bytes = out.size() * 4;
        fill(out.words(), out.size(), job_.rank, turn);
        job_.barrier();
        if (job_.rank != 0 && job_.rank != last) return {};
        Taken took = taken_by(processors_, [&] {
            if (job_.rank == 0) job_.send(out.data(), bytes, other, message_tag);
            job_.recv(in.data(), bytes, other, message_tag);
            if (job_.rank != 0) job_.send(out.data(), bytes, other, message_tag);
        });
        check(in.words(), in.size(), other, turn);
        took.microseconds /= 2;
        return took;
    }

    // Begins one request per message of the buffer, then ends them all.
    void move_all(size_t messages, const auto& start) {
        std::vector<decltype(start(size_t{}))> requests;
        requests.reserve(messages);
        for (size_t m = 0; m < messages; ++m) requests.push_back(start(m));
        for (auto& request : requests) job_.finish(request);
    }

    Taken stream(Buffer<Job>& buffer, size_t messages, uint64_t turn) {
        const uint32_t last = job_.size - 1;
        const size_t words = buffer.size() / messages, bytes = words * 4;
        const auto message = [&](size_t m) { return buffer.words() + m * words; };
        const auto end_tag = static_cast<uint32_t>(messages);
        if (job_.rank == 0)
            for (size_t m = 0; m < messages; ++m) fill(message(m), words, 0, turn * messages + m);
        job_.barrier();
        if (job_.rank != 0 && job_.rank != last) return {};
        uint64_t all_there = 0;
        const Taken took = taken_by(processors_, [&] {
            move_all(messages, [&](size_t m) {
                const auto tag = static_cast<uint32_t>(m);
                return job_.rank == 0 ? job_.send_start(message(m), bytes, last, tag)
                                      : job_.recv_start(message(m), bytes, 0, tag);
            });
            if (job_.rank == 0)
                job_.recv(&all_there, sizeof all_there, last, end_tag);
            else
                job_.send(&all_there, sizeof all_there, 0, end_tag);
        });
        if (job_.rank == last)
            for (size_t m = 0; m < messages; ++m) check(message(m), words, 0, turn * messages + m);
        return took;
    }

    // As often as the seconds allow, which rank 0 decides for all, by the fastest of some turns that are not
    // counted. A turn's whole time decides, with filling and checking.
    std::vector<Taken> repeated(size_t bytes, const auto& once) {
        const uint64_t uncounted = bytes <= mebibyte ? 4 : 2;
        const auto whole = [&](uint64_t turn) {
            return taken_by(processors_, [&] { once(turn); }).microseconds;
        };
        double each = whole(0);
        for (uint64_t turn = 1; turn < uncounted; ++turn) each = std::min(each, whole(turn));
        const double fit =
            std::clamp(options_.seconds * 1e6 / each, 2.0, static_cast<double>(options_.repetitions));
        auto repetitions = static_cast<uint64_t>(fit);
        job_.broadcast(repetitions);
        std::vector<Taken> turns;
        for (uint64_t turn = 0; turn < repetitions; ++turn) turns.push_back(once(turn + uncounted));
        return turns;
    }

    // At rank 0: of all ranks together.
    double total(double own) {
        if (job_.rank != 0) {
            job_.send(&own, sizeof own, 0, total_tag);
            return own;
        }
        for (uint32_t rank = 1; rank < job_.size; ++rank) {
            double other = 0;
            job_.recv(&other, sizeof other, rank, total_tag);
            own += other;
        }
        return own;
    }

    void print(const std::string& operation, const std::string& memory, size_t bytes, size_t messages,
               const std::vector<Taken>& turns) {
        double application = 0, daemons = 0;
        for (const Taken& turn : turns) application += turn.application, daemons += turn.daemons;
        application = total(application);
        if (job_.rank != 0) return;
        std::printf(R"({"operation": "%s", "memory": "%s", "bytes": %zu, "messages": %zu, )"
                    R"("application_seconds": %.9f, "daemon_seconds": %.9f, "microseconds": [)",
                    operation.c_str(), memory.c_str(), bytes, messages, application, daemons);
        for (size_t i = 0; i < turns.size(); ++i)
            std::printf("%s%.3f", i != 0 ? ", " : "", turns[i].microseconds);
        std::printf("]}\n");
        std::fflush(stdout);
    }

    Job& job_;
    const Options& options_;
    Processors processors_;
};

template <class Job>
void run(Job& job, const Options& options) {
    if (job.size < 2 && options.operations != std::vector<std::string>{"all_reduce"})
        fail("messages need two ranks; one rank can do --operations all_reduce");
    Measurements<Job>(job, options).all();
    job.barrier();
}

}  // namespace measured
