// The exported functions of include/nexar.h about requests.
#include <cstddef>
#include <cstring>

#include "on_stack.hpp"
#include "opening.hpp"
#include "sleep.hpp"
#include "structs.hpp"
#include "tables.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

Time deadline(int64_t timeout_ms) {
    return timeout_ms < 0 || timeout_ms > timeout_ms_max ? never
                                                         : now() + std::chrono::milliseconds(timeout_ms);
}

Result<void> check_timeout(int64_t ms) {
    if (ms >= 0 || ms == NEXAR_TIMEOUT_DEFAULT || ms == NEXAR_TIMEOUT_NONE) return {};
    return fail(Errc::invalid_argument, "timeout_ms is " + std::to_string(ms) +
                                            "; allowed: 0 and more, NEXAR_TIMEOUT_DEFAULT (-1), "
                                            "NEXAR_TIMEOUT_NONE (-2)");
}

Error freed_error() {
    return Error{Errc::bad_handle, "the request was freed, or never was one", -1, -1, {}};
}

void fill_completion(Session& session, const Slot& slot, const Outcome& outcome, nexar_completion* out,
                     uint32_t size) {
    if (!out) return;
    write_result(out, outcome.completion, size);
    // A caller whose struct has no field for the group's handle cannot free the group, so it is freed with
    // the request.
    constexpr size_t with_group = offsetof(nexar_completion, group) + sizeof out->group;
    if (outcome.completion.status == NEXAR_OK && size >= with_group) session.seen(slot);
}

// The result of nexar_request_test and nexar_request_wait.
nexar_status answer(const char* op, PinnedRequest& pinned, const Outcome& outcome,
                    nexar_completion* completion) {
    if (outcome.freed) return failed(op, freed_error());
    if (completion)
        fill_completion(*pinned.session, pinned.slot, outcome, completion, completion->struct_size);
    return outcome.error ? failed(outcome.context(), *outcome.error) : outcome.completion.status;
}

Error held_error(const std::string& which) {
    return Error{Errc::bad_state,
                 which + " is in an op group that has not ended: nexar_ops_end submits it",
                 -1,
                 -1,
                 {}};
}

// Requests of one session, none of them freed; entries that are 0 are skipped.
struct RequestList {
    static constexpr size_t usual = 64;
    explicit RequestList(size_t count) : slots(count), places(count) {}
    SessionPin session;
    OnStack<Slot, usual> slots;
    OnStack<uint64_t, usual> places;  // of each slot, in the caller's array
};

enum class Inactive : uint8_t { skipped, included };

// `waits`: so none may be in an op group.
Result<RequestList> list_of(const nexar_request* requests, uint64_t count, bool waits, Inactive inactive) {
    if ((!requests && count != 0) || count > NEXAR_SHM_SLOTS_MAX)
        return fail(Errc::invalid_argument, "requests is NULL, or count is " + std::to_string(count) +
                                                "; allowed: 0 to " + std::to_string(NEXAR_SHM_SLOTS_MAX));
    RequestList out(count);
    for (uint64_t i = 0; i < count; ++i) {
        if (requests[i] == 0) continue;
        auto found = request_of(requests[i]);
        if (!found)
            return fail(found.error().code,
                        "request " + std::to_string(i) + " of the array: " + found.error().text);
        PinnedRequest pinned = std::move(*found);
        if (out.session && pinned.session->handle_index != out.session->handle_index)
            return fail(Errc::invalid_argument, "the requests are of several sessions");
        if (pinned.session->is_freed(pinned.slot))
            return fail(Errc::bad_handle, "request " + std::to_string(i) + " of the array was freed");
        if (waits && pinned.session->is_held(pinned.slot))
            return fail(held_error("request " + std::to_string(i) + " of the array"));
        if (!out.session) out.session = std::move(pinned.session);
        if (inactive == Inactive::skipped && out.session->is_inactive(pinned.slot)) continue;
        out.slots.push_back(pinned.slot);
        out.places.push_back(i);
    }
    return out;
}

nexar_status any(const char* op, const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                 uint64_t* index, nexar_completion* completion) {
    if (!index) return failed(op, Errc::invalid_argument, "index is NULL");
    if (auto good = check_result(completion, "nexar_completion"); !good) return failed(op, good.error());
    if (auto good = check_timeout(timeout_ms); !good) return failed(op, good.error());
    auto among = list_of(requests, count, timeout_ms != 0, Inactive::skipped);
    if (!among) return failed(op, among.error());
    if (among->slots.empty())
        return failed(op, Errc::invalid_argument, "count is 0, or all requests are 0 or inactive");
    size_t place = 0;
    switch (among->session->wait_any(among->slots.data(), among->slots.size(), deadline(timeout_ms), place)) {
        case Session::Waited::signal:
            return failed(op, Errc::interrupted, "a signal arrived while waiting");
        case Session::Waited::timed_out:
            return NEXAR_PENDING;
        case Session::Waited::completed:
            break;
    }
    const Outcome outcome = among->session->test(among->slots[place]);
    if (outcome.freed) return failed(op, freed_error());
    *index = among->places[place];
    if (completion)
        fill_completion(*among->session, among->slots[place], outcome, completion, completion->struct_size);
    return NEXAR_OK;
}

// The caller's array of completions: element i is at i * stride and has `stride` bytes.
struct Row {
    nexar_completion* first;
    uint64_t stride;
    nexar_completion* operator[](uint64_t i) const {
        if (!first) return nullptr;
        return reinterpret_cast<nexar_completion*>(reinterpret_cast<std::byte*>(first) + i * stride);
    }
    uint32_t room() const { return static_cast<uint32_t>(stride); }
};

Result<Row> row(nexar_completion* first, uint64_t stride) {
    if (first &&
        (stride < struct_bytes_min || stride > struct_bytes_max || stride % alignof(nexar_completion) != 0))
        return fail(Errc::invalid_argument,
                    "stride is " + std::to_string(stride) + "; it must be sizeof(nexar_completion)");
    return Row{first, stride};
}

struct Some {
    uint64_t* indices;
    uint64_t* count;
    nexar_completion* completions;
    uint64_t stride;
};

nexar_status some(const char* op, const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                  const Some& out) {
    if (!out.indices || !out.count) return failed(op, Errc::invalid_argument, "indices or ended is NULL");
    auto into = row(out.completions, out.stride);
    if (!into) return failed(op, into.error());
    if (auto good = check_timeout(timeout_ms); !good) return failed(op, good.error());
    auto among = list_of(requests, count, timeout_ms != 0, Inactive::skipped);
    if (!among) return failed(op, among.error());
    if (among->slots.empty())
        return failed(op, Errc::invalid_argument, "count is 0, or all requests are 0 or inactive");
    size_t first = 0;
    const auto waited =
        among->session->wait_any(among->slots.data(), among->slots.size(), deadline(timeout_ms), first);
    if (waited == Session::Waited::signal)
        return failed(op, Errc::interrupted, "a signal arrived while waiting");
    uint64_t found = 0;
    for (size_t i = first; waited == Session::Waited::completed && i < among->slots.size(); ++i) {
        const Outcome outcome = among->session->test(among->slots[i]);
        if (outcome.freed) return failed(op, freed_error());
        if (outcome.completion.status == NEXAR_PENDING) continue;
        fill_completion(*among->session, among->slots[i], outcome, (*into)[found], into->room());
        out.indices[found++] = among->places[i];
    }
    *out.count = found;
    return found == 0 ? NEXAR_PENDING : NEXAR_OK;
}

}  // namespace

extern "C" {

nexar_status nexar_request_test(nexar_request request, nexar_completion* completion) {
    auto pinned = request_of(request);
    if (!pinned) return failed("request_test", pinned.error());
    if (auto good = check_result(completion, "nexar_completion"); !good)
        return failed("request_test", good.error());
    return answer("request_test", *pinned, pinned->session->test(pinned->slot), completion);
}

nexar_status nexar_request_wait(nexar_request request, int64_t timeout_ms, nexar_completion* completion) {
    constexpr const char* op = "request_wait";
    auto pinned = request_of(request);
    if (!pinned) return failed(op, pinned.error());
    if (auto good = check_result(completion, "nexar_completion"); !good) return failed(op, good.error());
    if (auto good = check_timeout(timeout_ms); !good) return failed(op, good.error());
    if (timeout_ms != 0 && pinned->session->is_held(pinned->slot))
        return failed(op, held_error("the request"));
    // The wait below is on the slot, which another request may have when this one was freed.
    Outcome outcome = pinned->session->test(pinned->slot);
    if (outcome.freed || outcome.completion.status != NEXAR_PENDING) {
        if (timeout_ms != 0) pinned->session->free_idle_scratch();
        return answer(op, *pinned, outcome, completion);
    }
    const auto waited = pinned->session->wait(pinned->slot, deadline(timeout_ms), true);
    outcome = pinned->session->test(pinned->slot);
    if (timeout_ms != 0) pinned->session->free_idle_scratch();  // that waits for the daemon
    const nexar_status status = answer(op, *pinned, outcome, completion);
    if (status == NEXAR_PENDING && waited == Session::Waited::signal)
        return failed(op, Errc::interrupted, "a signal arrived while waiting");
    return status;
}

nexar_status nexar_request_test_any(const nexar_request* requests, uint64_t count, uint64_t* index,
                                    nexar_completion* completion) {
    return any("request_test_any", requests, count, 0, index, completion);
}

nexar_status nexar_request_wait_any(const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                                    uint64_t* index, nexar_completion* completion) {
    return any("request_wait_any", requests, count, timeout_ms, index, completion);
}

nexar_status nexar_request_test_some(const nexar_request* requests, uint64_t count, uint64_t* indices,
                                     uint64_t* ended, nexar_completion* completions, uint64_t stride) {
    return some("request_test_some", requests, count, 0, {indices, ended, completions, stride});
}

nexar_status nexar_request_wait_some(const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                                     uint64_t* indices, uint64_t* ended, nexar_completion* completions,
                                     uint64_t stride) {
    return some("request_wait_some", requests, count, timeout_ms, {indices, ended, completions, stride});
}

nexar_status nexar_request_wait_all(const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                                    nexar_completion* completions, uint64_t stride) {
    constexpr const char* op = "request_wait_all";
    auto into = row(completions, stride);
    if (!into) return failed(op, into.error());
    if (auto good = check_timeout(timeout_ms); !good) return failed(op, good.error());
    auto all = list_of(requests, count, timeout_ms != 0, Inactive::included);
    if (!all) return failed(op, all.error());
    const Time until = deadline(timeout_ms);
    auto waited = Session::Waited::completed;
    for (const Slot& slot : all->slots) {
        waited = all->session->wait(slot, until, true);
        if (waited == Session::Waited::signal) break;
    }
    bool pending = false;
    std::optional<Outcome> first_failed;
    for (size_t i = 0; i < all->slots.size(); ++i) {
        const Outcome outcome = all->session->test(all->slots[i]);
        if (outcome.freed) return failed(op, freed_error());
        fill_completion(*all->session, all->slots[i], outcome, (*into)[all->places[i]], into->room());
        pending |= outcome.completion.status == NEXAR_PENDING;
        if (outcome.error && !first_failed) first_failed = outcome;
    }
    if (pending && waited == Session::Waited::signal)
        return failed(op, Errc::interrupted, "a signal arrived while waiting");
    if (pending) return NEXAR_PENDING;
    return first_failed ? failed(first_failed->context(), *first_failed->error) : NEXAR_OK;
}

nexar_status nexar_request_cancel(nexar_request request) {
    auto pinned = request_of(request);
    if (!pinned) return failed("request_cancel", pinned.error());
    if (pinned->session->is_freed(pinned->slot)) return failed("request_cancel", freed_error());
    if (pinned->session->is_held(pinned->slot)) return failed("request_cancel", held_error("the request"));
    pinned->session->cancel(pinned->slot);
    return NEXAR_OK;
}

nexar_status nexar_request_free(nexar_request request) {
    auto pinned = request_of(request);
    if (!pinned) return failed("request_free", pinned.error());
    uint64_t unseen = 0;  // a group whose handle was never returned
    auto done = pinned->session->free(pinned->slot, &unseen);
    if (!done) return failed("request_free", done.error());
    if (unseen != 0) static_cast<void>(free_group(unseen));
    return NEXAR_OK;
}

nexar_status nexar_session_poll(nexar_session* handle, nexar_completion* ended, uint64_t stride,
                                uint64_t capacity, uint64_t* count) {
    constexpr const char* op = "session_poll";
    auto session = session_of(handle);
    if (!session) return failed(op, session.error());
    if (!count || (!ended && capacity != 0))
        return failed(op, Errc::invalid_argument, "ended or count is NULL");
    auto into = row(ended, stride);
    if (!into) return failed(op, into.error());
    uint64_t found = 0;
    Slot slots[64];
    while (found < capacity) {
        const size_t got =
            (*session)->poll(slots, static_cast<size_t>(std::min<uint64_t>(capacity - found, 64)));
        if (got == 0) break;
        for (size_t i = 0; i < got; ++i) {
            const Outcome outcome = (*session)->test(slots[i]);
            if (outcome.freed) continue;  // by another thread, just now
            fill_completion(**session, slots[i], outcome, (*into)[found++], into->room());
        }
    }
    *count = found;
    if (found == 0)
        if (auto error = (*session)->unusable()) return failed(op, *error);
    return NEXAR_OK;
}

}  // extern "C"
