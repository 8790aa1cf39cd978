// One rank of a job that times operations and checks every result; who and how many: from the environment.
//
//   ops_bench [--operations all_reduce,latency,stream] [--memory alloc,ordinary] [--bytes 8,4096]
//             [--seconds PER-MEASUREMENT] [--repetitions AT-MOST]
//
// Rank 0 prints a JSON object per measurement: all times, in microseconds. all_reduce: the call on rank 0, in
// place, after a barrier. latency: half of a message's way from rank 0 to the last rank and back. stream:
// that many messages from rank 0 to the last, begun at once, until the last rank says that it has them all.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "nexar_calls.hpp"

namespace {

constexpr size_t mebibyte = size_t{1} << 20;

struct Options {
    std::vector<std::string> operations = {"all_reduce", "latency", "stream"}, memory = {"alloc", "ordinary"};
    std::vector<std::string> bytes = {"8", "4096"};
    double seconds = 0.2;
    uint64_t repetitions = 200;
};

[[noreturn]] void fail(const std::string& words) {
    std::fprintf(stderr, "ops_bench: %s\n", words.c_str());
    std::exit(EXIT_FAILURE);
}

void must(nexar_status status, const char* what) {
    if (status == NEXAR_OK) return;
    nexar_error error{};
    error.struct_size = sizeof error;
    const bool known = nexar_last_error(&error) == NEXAR_OK;
    fail(std::string(what) + ": " + nexar_status_name(status) +
         (known ? std::string(": ") + error.text : ""));
}

struct Job {
    Job() {
        must(nexar_session_open(nullptr, &session), "session_open");
        must(nexar_group_open(session, nullptr, &group), "group_open");
        must(nexar_group_rank(group, &rank), "group_rank");
        must(nexar_group_size(group, &size), "group_size");
    }
    ~Job() {
        must(nexar_group_free(group), "group_free");
        must(nexar_session_close(session), "session_close");
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    void barrier() const { must(calls::barrier(group), "barrier"); }

    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    uint32_t rank = 0, size = 0;
};

// Memory of one kind, as words.
class Buffer {
  public:
    Buffer(const Job& job, const std::string& kind, size_t bytes) : session_(job.session), size_(bytes / 4) {
        if (kind == "alloc") {
            must(calls::alloc(session_, bytes, &shared_), "alloc");
        } else {
            own_ = std::make_unique<uint32_t[]>(size_);
        }
    }
    ~Buffer() {
        if (shared_ != nullptr) must(nexar_free(session_, shared_), "free");
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() { return shared_ != nullptr ? shared_ : own_.get(); }
    uint32_t* words() { return static_cast<uint32_t*>(data()); }
    float* floats() { return static_cast<float*>(data()); }
    size_t size() const { return size_; }

  private:
    nexar_session* session_;
    size_t size_;
    void* shared_ = nullptr;
    std::unique_ptr<uint32_t[]> own_;
};

double microseconds_of(const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count();
}

// Whole and small, so that sums are exact; no two pages and no two turns are alike.
float summand(size_t i, uint64_t turn) {
    return static_cast<float>((static_cast<uint32_t>(i ^ (i >> 10)) + static_cast<uint32_t>(turn) * 37) &
                              1023);
}

double all_reduce(const Job& job, Buffer& buffer, uint64_t turn) {
    float* const values = buffer.floats();
    const auto own = static_cast<float>(job.rank);
    for (size_t i = 0; i < buffer.size(); ++i) values[i] = summand(i, turn) + own;
    job.barrier();
    const double took = microseconds_of(
        [&] { must(calls::all_reduce(job.group, values, values, buffer.size()), "all_reduce"); });
    const auto ranks = static_cast<float>(job.size), rest = ranks * (ranks - 1) / 2;
    size_t wrong = 0;
    for (size_t i = 0; i < buffer.size(); ++i) wrong += values[i] != summand(i, turn) * ranks + rest;
    if (wrong != 0) fail("all_reduce: " + std::to_string(wrong) + " wrong elements");
    return took;
}

// The words of a message: `from` and `turn` make messages differ, and so does each word's place.
uint32_t word(size_t i, uint32_t from, uint64_t turn) {
    return static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(turn) * 40503u + from;
}
void fill(uint32_t* words, size_t count, uint32_t from, uint64_t turn) {
    for (size_t i = 0; i < count; ++i) words[i] = word(i, from, turn);
}
void check(const uint32_t* words, size_t count, uint32_t from, uint64_t turn) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += words[i] != word(i, from, turn);
    if (wrong != 0) fail("message: " + std::to_string(wrong) + " of its words are wrong");
}

// There and back between rank 0 and the last rank; the others only wait.
double latency(const Job& job, Buffer& out, Buffer& in, uint64_t turn) {
    const uint32_t last = job.size - 1, other = job.rank == 0 ? last : 0;
    const size_t bytes = out.size() * 4;
    fill(out.words(), out.size(), job.rank, turn);
    job.barrier();
    if (job.rank != 0 && job.rank != last) return 0;
    const auto send = [&] { must(calls::send(job.group, out.data(), bytes, other, 1), "send"); };
    const auto receive = [&] { must(calls::recv(job.group, in.data(), bytes, other, 1), "recv"); };
    const double took = microseconds_of([&] {
        if (job.rank == 0) send();
        receive();
        if (job.rank != 0) send();
    });
    check(in.words(), in.size(), other, turn);
    return took / 2;
}

// Begins one request per message of the buffer, then ends them all.
void move_all(size_t messages, const auto& start) {
    std::vector<nexar_request> requests(messages);
    for (size_t m = 0; m < messages; ++m) must(start(m, &requests[m]), "start");
    for (const nexar_request request : requests) must(calls::finish(request), "message");
}

double stream(const Job& job, Buffer& buffer, size_t messages, uint64_t turn) {
    const uint32_t last = job.size - 1;
    const size_t words = buffer.size() / messages, bytes = words * 4;
    const auto message = [&](size_t m) { return buffer.words() + m * words; };
    if (job.rank == 0) {
        for (size_t m = 0; m < messages; ++m) fill(message(m), words, 0, turn * messages + m);
    }
    job.barrier();
    uint64_t all_there = 0;
    if (job.rank == 0) {
        return microseconds_of([&] {
            move_all(messages, [&](size_t m, nexar_request* request) {
                return calls::send_start(job.group, message(m), bytes, last, m, request);
            });
            must(calls::recv(job.group, &all_there, sizeof all_there, last, messages), "recv");
        });
    }
    if (job.rank != last) return 0;
    move_all(messages, [&](size_t m, nexar_request* request) {
        return calls::recv_start(job.group, message(m), bytes, 0, m, request);
    });
    must(calls::send(job.group, &all_there, sizeof all_there, 0, messages), "send");
    for (size_t m = 0; m < messages; ++m) check(message(m), words, 0, turn * messages + m);
    return 0;
}

// As often as the seconds allow, which rank 0 decides for all, by the fastest of some turns that are not
// counted.
std::vector<double> repeated(const Job& job, const Options& options, size_t bytes, const auto& once) {
    const uint64_t uncounted = bytes <= mebibyte ? 4 : 2;
    double each = microseconds_of([&] { once(0); });
    for (uint64_t turn = 1; turn < uncounted; ++turn)
        each = std::min(each, microseconds_of([&] { once(turn); }));
    const double fit =
        std::clamp(options.seconds * 1e6 / each, 2.0, static_cast<double>(options.repetitions));
    auto repetitions = static_cast<uint64_t>(fit);
    must(calls::broadcast(job.group, &repetitions, sizeof repetitions, 0), "broadcast");
    std::vector<double> times;
    for (uint64_t turn = 0; turn < repetitions; ++turn) times.push_back(once(turn + uncounted));
    return times;
}

void print(const std::string& operation, const std::string& memory, size_t bytes, size_t messages,
           const std::vector<double>& times) {
    std::printf(R"({"operation": "%s", "memory": "%s", "bytes": %zu, "messages": %zu, "microseconds": [)",
                operation.c_str(), memory.c_str(), bytes, messages);
    for (size_t i = 0; i < times.size(); ++i) std::printf("%s%.3f", i != 0 ? ", " : "", times[i]);
    std::printf("]}\n");
    std::fflush(stdout);
}

void measure(const Job& job, const Options& options, const std::string& operation, const std::string& memory,
             size_t bytes) {
    size_t messages = 1;
    std::vector<double> times;
    if (operation == "all_reduce") {
        Buffer buffer(job, memory, bytes);
        times = repeated(job, options, bytes, [&](uint64_t turn) { return all_reduce(job, buffer, turn); });
    } else if (operation == "latency") {
        Buffer out(job, memory, bytes), in(job, memory, bytes);
        times = repeated(job, options, bytes, [&](uint64_t turn) { return latency(job, out, in, turn); });
    } else if (operation == "stream") {
        messages = std::clamp(64 * mebibyte / bytes, size_t{2}, size_t{64});
        Buffer buffer(job, memory, bytes * messages);
        times =
            repeated(job, options, bytes, [&](uint64_t turn) { return stream(job, buffer, messages, turn); });
    } else {
        fail("unknown operation '" + operation + "' (allowed: all_reduce, latency, stream)");
    }
    if (job.rank == 0) print(operation, memory, bytes, messages, times);
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

size_t size_from(const std::string& text) {
    const size_t bytes = std::strtoull(text.c_str(), nullptr, 10);
    if (bytes < 8 || bytes % 8 != 0 || bytes > 1024 * mebibyte)
        fail("'" + text + "' is no size (allowed: multiples of 8 up to 1 GiB)");
    return bytes;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        if (name == "--operations")
            options.operations = split(value);
        else if (name == "--memory")
            options.memory = split(value);
        else if (name == "--bytes")
            options.bytes = split(value);
        else if (name == "--seconds")
            options.seconds = std::strtod(value.c_str(), nullptr);
        else if (name == "--repetitions")
            options.repetitions = std::max(2ull, std::strtoull(value.c_str(), nullptr, 10));
        else
            fail("unknown option '" + name +
                 "' (allowed: --operations, --memory, --bytes, --seconds, --repetitions)");
    }
    for (const std::string& kind : options.memory)
        if (kind != "alloc" && kind != "ordinary")
            fail("unknown memory '" + kind + "' (allowed: alloc, ordinary)");
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const Job job;
    if (job.size < 2 && options.operations != std::vector<std::string>{"all_reduce"})
        fail("messages need two ranks; one rank can do --operations all_reduce");
    for (const std::string& operation : options.operations)
        for (const std::string& memory : options.memory)
            for (const std::string& bytes : options.bytes)
                measure(job, options, operation, memory, size_from(bytes));
    job.barrier();
}
