// See tune_rank.hpp.
#include "nexarctl/tune_rank.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nexarctl {

using nexar::Errc;
using nexar::fail;
using nexar::Result;

Result<Library> Library::load() {
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

Result<void> Library::must(nexar_status status, const char* what) const {
    if (status == NEXAR_OK) return {};
    nexar_error error{};
    error.struct_size = sizeof error;
    const bool known = nexar_last_error(&error) == NEXAR_OK;
    return fail(Errc::io, std::string(what) + ": " + nexar_status_name(status) +
                              (known ? std::string(": ") + error.text : std::string()));
}

Result<std::unique_ptr<Rank>> Rank::open(const Library& library, const RankPlace& place) {
    std::unique_ptr<Rank> out(new Rank(library));
    nexar_session_options session{};
    library.nexar_session_options_init(&session, sizeof session);
    session.socket_path = place.session_socket.c_str();
    NEXAR_TRY_VOID(library.must(library.nexar_session_open(&session, &out->session_), "session"));
    nexar_group_options group{};
    library.nexar_group_options_init(&group, sizeof group);
    group.name = place.group.c_str();
    group.size = place.nodes;
    group.rank = place.index;
    if (place.nodes > 1) group.job_secret = place.secret.c_str();
    NEXAR_TRY_VOID(library.must(library.nexar_group_open(out->session_, &group, &out->group_), "group"));
    NEXAR_TRY_VOID(library.must(
        library.nexar_alloc(out->session_, 2 * probe_bytes_max, nullptr, &out->memory_), "memory"));
    out->size_ = group.size;
    out->rank_ = group.rank;
    return out;
}

Rank::~Rank() {
    if (memory_ != nullptr) library_.nexar_free(session_, memory_);
    if (group_ != nullptr) library_.nexar_group_free(group_);
    if (session_ != nullptr) library_.nexar_session_close(session_);
}

Result<void> Rank::greatest(std::span<uint64_t> values) const {
    return library_.must(library_.nexar_all_reduce(group_, values.data(), values.data(), values.size(),
                                                   NEXAR_U64, NEXAR_MAX, nullptr),
                         "all_reduce");
}

Result<void> Rank::once(Probe probe, uint64_t bytes) const {
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

Result<void> Rank::exchange(Probe probe, uint64_t bytes) const {
    std::vector<uint64_t> given(size_, probe == Probe::to_all ? bytes : 0), taken = given;
    if (probe == Probe::pair && rank_ < 2) given[1 - rank_] = taken[1 - rank_] = bytes;
    if (probe == Probe::shift) given[(rank_ + 1) % size_] = taken[(rank_ + size_ - 1) % size_] = bytes;
    auto* const out = static_cast<std::byte*>(memory_) + probe_bytes_max;
    return library_.must(
        library_.nexar_all_to_allv(group_, memory_, given.data(), out, taken.data(), NEXAR_U8, nullptr),
        "all_to_allv");
}

Result<uint64_t> Rank::median_ns(Probe probe, uint64_t bytes, double seconds, size_t least) const {
    Result<void> result;
    const auto take = [&] {
        return ns_of([&] {
            if (result) result = once(probe, bytes);
        });
    };
    take();  // memory and buffers come with the first
    uint64_t first = take();
    NEXAR_TRY_VOID(greatest({&first, 1}));
    const auto turns =
        static_cast<size_t>(std::clamp(seconds * 1e9 / static_cast<double>(std::max<uint64_t>(1, first)),
                                       static_cast<double>(least), 4000.0));
    std::vector<uint64_t> times;
    for (size_t n = 0; n < turns && result; ++n) times.push_back(take());
    NEXAR_TRY_VOID(result);
    std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
}

}  // namespace nexarctl
