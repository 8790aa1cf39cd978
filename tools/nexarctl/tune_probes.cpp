// See tune_probes.hpp.
#include "nexarctl/tune_probes.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "nexar.h"
#include "reduce/reduce.hpp"

namespace nexarctl {

namespace coll = nexar::collectives;
using nexar::Errc;
using nexar::fail;
using nexar::OpKind;
using nexar::Result;

namespace {

// clang-format off
#define NEXARCTL_CALLS(X)                                                                    \
    X(nexar_session_options_init) X(nexar_session_open) X(nexar_session_close)               \
    X(nexar_group_options_init) X(nexar_group_open) X(nexar_group_free)                      \
    X(nexar_alloc) X(nexar_free) X(nexar_all_reduce) X(nexar_all_to_allv)                    \
    X(nexar_reduce_scatter) X(nexar_op_options_init)                                         \
    X(nexar_last_error) X(nexar_status_name)
// clang-format on

// Owner: the process; a library that has been used stays.
struct Library {
#define NEXARCTL_CALL(name) decltype(&::name) name = nullptr;
    NEXARCTL_CALLS(NEXARCTL_CALL)
#undef NEXARCTL_CALL

    static Result<Library> load() {
        const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
        const std::string beside = (program / ".." / NEXAR_LIBRARY_FOLDER / NEXAR_LIBRARY_NAME).string();
        const std::string built = (program / "../../libnexar_c" / NEXAR_LIBRARY_NAME).string();
        void* handle = nullptr;
        for (const std::string& path : {beside, built, std::string(NEXAR_LIBRARY_NAME)})
            if (handle == nullptr) handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            return fail(Errc::not_found, std::string(NEXAR_LIBRARY_NAME) +
                                             " is not installed: tune measures as a "
                                             "program does, through that library");
        Library out;
        bool complete = true;
#define NEXARCTL_CALL(call)                                                 \
    out.call = reinterpret_cast<decltype(&::call)>(::dlsym(handle, #call)); \
    complete = complete && out.call != nullptr;
        NEXARCTL_CALLS(NEXARCTL_CALL)
#undef NEXARCTL_CALL
        if (!complete) return fail(Errc::unsupported, std::string(NEXAR_LIBRARY_NAME) + " lacks a function");
        return out;
    }

    Result<void> must(nexar_status status, const char* what) const {
        if (status == NEXAR_OK) return {};
        nexar_error error{};
        error.struct_size = sizeof error;
        const bool known = nexar_last_error(&error) == NEXAR_OK;
        return fail(Errc::io, std::string(what) + ": " + nexar_status_name(status) +
                                  (known ? std::string(": ") + error.text : std::string()));
    }
};

constexpr uint64_t memory_bytes = 16 << 20;
constexpr uint64_t shift_bytes = 4 << 20;

enum class Probe : uint8_t {
    reduce,       // all_reduce of so many bytes
    fixed_order,  // the same along the deterministic tree
    scatter,      // its first half: a reduce_scatter
    to_all,       // all_to_allv, so many bytes to each
    pair,         // so many bytes between ranks 0 and 1, both ways, by all_to_allv
    shift,        // so many bytes from each rank to the next, by all_to_allv
};

// A session with one group, and memory for the longest operation.
class Rank {
  public:
    static Result<std::unique_ptr<Rank>> open(const Library& library, const TuneJob& job, bool alone) {
        std::unique_ptr<Rank> out(new Rank(library));
        nexar_session_options session{};
        library.nexar_session_options_init(&session, sizeof session);
        session.socket_path = job.session_socket.c_str();
        NEXAR_TRY_VOID(library.must(library.nexar_session_open(&session, &out->session_), "session"));
        nexar_group_options group{};
        library.nexar_group_options_init(&group, sizeof group);
        const std::string own = job.group + "-alone";
        group.name = alone ? own.c_str() : job.group.c_str();
        group.size = alone ? 1 : job.nodes;
        group.rank = alone ? 0 : job.index;
        if (!alone) group.job_secret = job.secret.c_str();
        NEXAR_TRY_VOID(library.must(library.nexar_group_open(out->session_, &group, &out->group_), "group"));
        NEXAR_TRY_VOID(library.must(
            library.nexar_alloc(out->session_, 2 * memory_bytes, nullptr, &out->memory_), "memory"));
        out->size_ = group.size;
        out->rank_ = group.rank;
        return out;
    }
    ~Rank() {
        if (memory_ != nullptr) library_.nexar_free(session_, memory_);
        if (group_ != nullptr) library_.nexar_group_free(group_);
        if (session_ != nullptr) library_.nexar_session_close(session_);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    // The greatest value of all ranks, by place.
    Result<void> greatest(std::span<uint64_t> values) const {
        return library_.must(library_.nexar_all_reduce(group_, values.data(), values.data(), values.size(),
                                                       NEXAR_U64, NEXAR_MAX, nullptr),
                             "all_reduce");
    }
    Result<void> once(Probe probe, uint64_t bytes) const {
        if (probe >= Probe::to_all) return exchange(probe, bytes);
        nexar_op_options options{};
        library_.nexar_op_options_init(&options, sizeof options);
        if (probe != Probe::reduce) options.flags = NEXAR_FLAG_DETERMINISTIC;
        if (probe == Probe::scatter)
            return library_.must(library_.nexar_reduce_scatter(group_, memory_, memory_, bytes / 4 / size_,
                                                               NEXAR_F32, NEXAR_SUM, &options),
                                 "reduce_scatter");
        return library_.must(
            library_.nexar_all_reduce(group_, memory_, memory_, bytes / 4, NEXAR_F32, NEXAR_SUM, &options),
            "all_reduce");
    }

  private:
    Result<void> exchange(Probe probe, uint64_t bytes) const {
        std::vector<uint64_t> given(size_, probe == Probe::to_all ? bytes : 0), taken = given;
        if (probe == Probe::pair && rank_ < 2) given[1 - rank_] = taken[1 - rank_] = bytes;
        if (probe == Probe::shift) given[(rank_ + 1) % size_] = taken[(rank_ + size_ - 1) % size_] = bytes;
        auto* const out = static_cast<std::byte*>(memory_) + memory_bytes;
        return library_.must(
            library_.nexar_all_to_allv(group_, memory_, given.data(), out, taken.data(), NEXAR_U8, nullptr),
            "all_to_allv");
    }
    explicit Rank(const Library& library) : library_(library) {}
    Library library_;
    nexar_session* session_ = nullptr;
    nexar_group* group_ = nullptr;
    void* memory_ = nullptr;
    uint32_t size_ = 0, rank_ = 0;
};

uint64_t ns_of(const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
            .count());
}

// The median; all ranks take as many turns, of about `seconds` in all.
Result<uint64_t> median_ns(const Rank& rank, Probe probe, uint64_t bytes, double seconds) {
    Result<void> result;
    const auto take = [&] {
        return ns_of([&] {
            if (result) result = rank.once(probe, bytes);
        });
    };
    take();  // memory and buffers come with the first
    uint64_t first = take();
    NEXAR_TRY_VOID(rank.greatest({&first, 1}));
    const auto turns = static_cast<size_t>(
        std::clamp(seconds * 1e9 / static_cast<double>(std::max<uint64_t>(1, first)), 5.0, 4000.0));
    std::vector<uint64_t> times;
    for (size_t n = 0; n < turns && result; ++n) times.push_back(take());
    NEXAR_TRY_VOID(result);
    std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
}

// Per byte that is combined: a copy and a sum. What comes from another processor lies in no cache near this
// one, and what is longer is no question of the algorithm.
uint32_t memory_ps() {
    constexpr size_t floats = (4 << 20) / sizeof(float);
    std::vector<float> a(floats, 1), b(floats, 2), c(floats, 3);
    uint64_t best = UINT64_MAX;
    for (int n = 0; n < 20; ++n)
        best = std::min(best, ns_of([&] {
                            std::ranges::copy(a, c.begin());
                            nexar::reduce::reduce_into(b.data(), c.data(), floats, nexar::reduce::Dtype::f32,
                                                       nexar::reduce::ReduceOp::sum);
                        }));
    return static_cast<uint32_t>(std::max<uint64_t>(1, best * 1000 / (floats * sizeof(float))));
}

// Of an all_reduce of so many bytes, as this group cuts it.
coll::Plan plan_of(const PlanQuestion& question, uint64_t bytes) {
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    return coll::plan({OpKind::all_reduce, bytes / 4, 4, 0}, layout, question.table);
}

// The longest that goes with control.
uint64_t longest_small(const PlanQuestion& question) {
    for (uint64_t bytes = 256 << 10; bytes > 64; bytes /= 2)
        if (plan_of(question, bytes).cls == nexar::Class::small) return bytes;
    return 64;
}

coll::Terms terms(const PlanQuestion& question, coll::Algorithm algorithm, uint64_t bytes, uint32_t rounds) {
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    return terms_of(algorithm, {layout.nodes(), 1, bytes, question.table.chunk_bytes, rounds});
}

Result<Timed> timed(const Rank& rank, const PlanQuestion& question, uint64_t bytes, double seconds) {
    Timed out;
    const coll::Plan plan = plan_of(question, bytes);
    out.terms = terms(question, plan.algorithm, bytes, (plan.segments + plan.lanes - 1) / plan.lanes);
    NEXAR_TRY(out.ns, median_ns(rank, Probe::reduce, bytes, seconds));
    return out;
}

// All ranks' greatest: who has no part in the exchange of two is early.
Result<void> exchanges(const Rank& rank, Times& times, double seconds) {
    std::array<uint64_t, 2> both{};
    NEXAR_TRY(both[0], median_ns(rank, Probe::pair, shift_bytes, seconds));
    NEXAR_TRY(both[1], median_ns(rank, Probe::shift, shift_bytes, seconds));
    NEXAR_TRY_VOID(rank.greatest(both));
    times.shift_bytes = shift_bytes;
    times.pair_ns = both[0];
    times.shift_ns = both[1];
    return {};
}

}  // namespace

Result<Tuning> measure(const TuneJob& job) {
    NEXAR_TRY(const Library library, Library::load());
    Tuning out;
    Times& times = out.times;
    {
        NEXAR_TRY(const auto alone, Rank::open(library, job, true));
        NEXAR_TRY(times.host_ns, median_ns(*alone, Probe::reduce, 8, job.seconds / 10));
    }
    times.memory_ps = memory_ps();
    NEXAR_TRY(const auto rank, Rank::open(library, job, false));
    NEXAR_TRY(const PlanQuestion question, job.plan_of_group());
    const coll::Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    if (layout.nodes() != job.nodes)
        return fail(Errc::bad_state, "the ranks are on " + std::to_string(layout.nodes()) + " of " +
                                         std::to_string(job.nodes) + " hosts: start one tune on each");
    out.small_bytes = longest_small(question);
    // All take as many turns, so the longest time that a host was given is everybody's.
    auto milliseconds = static_cast<uint64_t>(job.seconds * 1000);
    NEXAR_TRY_VOID(rank->greatest({&milliseconds, 1}));
    const double seconds = static_cast<double>(milliseconds) / 1000 / 8;
    NEXAR_TRY(times.small_short, timed(*rank, question, 8, seconds));
    const uint64_t few = 4 * job.nodes;  // an element of each rank
    times.small_scatter.terms = terms(question, coll::Algorithm::tree_reduce_scatter, few, 1);
    NEXAR_TRY(times.small_scatter.ns, median_ns(*rank, Probe::scatter, few, seconds));
    times.small_steps.terms = terms(question, coll::Algorithm::tree_all_reduce, few, 1);
    NEXAR_TRY(times.small_steps.ns, median_ns(*rank, Probe::fixed_order, few, seconds));
    NEXAR_TRY(times.small_long, timed(*rank, question, out.small_bytes, seconds));
    // An all_to_allv goes by the shards, however short it is.
    times.bulk_short.terms = terms(question, coll::Algorithm::pairwise_all_to_allv, 0, 1);
    NEXAR_TRY(times.bulk_short.ns, median_ns(*rank, Probe::to_all, 8, seconds));
    out.bulk_bytes = std::min(memory_bytes, question.table.segment_bytes);  // by one shard
    NEXAR_TRY(times.bulk_long, timed(*rank, question, out.bulk_bytes, seconds));
    if (job.nodes > 2) NEXAR_TRY_VOID(exchanges(*rank, times, seconds));

    // The slowest link and host.
    const coll::CostModel own = fit(times, job.nodes);
    std::array<uint64_t, 6> slowest{own.small.start_ns,   own.small.ps_per_byte,  own.bulk.start_ns,
                                    own.bulk.ps_per_byte, own.memory_ps_per_byte, own.shared_ps_per_byte};
    NEXAR_TRY_VOID(rank->greatest(slowest));
    const auto narrow = [&](size_t i) { return static_cast<uint32_t>(slowest[i]); };
    out.model = {{narrow(0), narrow(1)}, {narrow(2), narrow(3)}, narrow(4), narrow(5)};
    return out;
}

}  // namespace nexarctl
