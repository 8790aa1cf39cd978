// [S3] to the letter: each word that a client may change is read once. A race of two threads would show a
// second read once in a million tries; here every access to the segment faults, is counted, and is done step
// by step.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <vector>

#include "local/session_core.hpp"
#include "shm/words.hpp"
#include "support/add_region.hpp"
#include "support/regions.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NEXAR_SANITIZED
#endif
#endif
#if defined(__x86_64__) && !defined(NEXAR_SANITIZED)

using namespace nexar;
using namespace nexar::local;

namespace {

constexpr uint32_t slots = 16;
constexpr size_t bytes = 65536;  // more than a control segment of so few slots
constexpr int trap_flag = 0x100, was_a_write = 2;

std::byte* memory = nullptr;
uint32_t reads[bytes / 8];

void on_access(int, siginfo_t* info, void* context) {
    auto* at = static_cast<std::byte*>(info->si_addr);
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    if (at < memory || at >= memory + bytes) ::signal(SIGSEGV, SIG_DFL);
    if (at >= memory && at < memory + bytes && (registers[REG_ERR] & was_a_write) == 0)
        ++reads[(at - memory) / 8];
    ::mprotect(memory, bytes, PROT_READ | PROT_WRITE);
    registers[REG_EFL] |= trap_flag;
}
void after_access(int, siginfo_t*, void* context) {
    ::mprotect(memory, bytes, PROT_NONE);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~trap_flag;
}

// Counts every access during its lifetime.
class Watched {
  public:
    Watched() {
        std::memset(reads, 0, sizeof reads);
        struct sigaction action{};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = on_access;
        ::sigaction(SIGSEGV, &action, &segv_);
        action.sa_sigaction = after_access;
        ::sigaction(SIGTRAP, &action, &trap_);
        ::mprotect(memory, bytes, PROT_NONE);
    }
    ~Watched() {
        ::mprotect(memory, bytes, PROT_READ | PROT_WRITE);
        ::sigaction(SIGSEGV, &segv_, nullptr);
        ::sigaction(SIGTRAP, &trap_, nullptr);
    }

  private:
    struct sigaction segv_{}, trap_{};
};

// How often the words of an object were read: the most for one word, and how many were.
struct Reads {
    uint32_t most = 0;
    size_t words = 0;
};
template <class T>
Reads reads_of(const T& object) {
    Reads out;
    const auto first = static_cast<size_t>(reinterpret_cast<const std::byte*>(&object) - memory) / 8;
    for (size_t i = first; i < first + sizeof(T) / 8; ++i) {
        out.most = std::max(out.most, reads[i]);
        out.words += reads[i] > 0 ? 1 : 0;
    }
    return out;
}

struct Engine final : engine::Service {
    std::vector<engine::OpRequest> ops;
    std::vector<engine::OpenRequest> opens;
    size_t stages = 0;
    Regions rows;
    Result<void> open(Time, const engine::OpenRequest& request) override {
        opens.push_back(request);
        return {};
    }
    Result<void> submit(Time, const engine::OpRequest& request) override {
        ops.push_back(request);
        return {};
    }
    Regions& regions() override { return rows; }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override { ++stages; }
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    Result<void> abort_group(Time, SessionId, const GroupId&, uint32_t, const std::string&) override {
        return {};
    }
    void session_ended(Time, SessionId, engine::SessionEnd, const std::string&) override {}
};
struct NoWaker final : Waker {
    void wake_all(uint32_t*) override {}
    void ring_doorbell() override {}
};

}  // namespace

TEST_CASE("descriptor, payload and stage counts are read once, whatever is checked and used",
          "[local][hostile][S3]") {
    memory = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(nexar_shm_control_bytes(slots) <= bytes);
    auto view = *shm::ControlView::over({memory, nexar_shm_control_bytes(slots)}, slots);
    view.initialise();
    Engine engine;
    NoWaker waker;
    Tenants tenants;
    SessionCore core{{SessionId(5), tenants.of("", 1000), 77, {}}, view, engine, waker, {}};
    std::vector<std::byte> region(65536);
    nexar::test::add_region(core, 15, 1, 1, region.size(),
                            [&] { return nexar::test::memory_of_test(region.data(), region.size()); });
    shm::SubmissionProducer producer(view);
    const auto drained = [&](uint32_t slot, uint8_t kind) {
        view.slot(slot).state = NEXAR_SLOT_WORD(1u, 1u);
        REQUIRE(producer.try_push({slot, 1, kind}));
        Watched watched;
        core.drain({});
    };

    auto& open = view.payload(2).group_open;
    open.size = 2, open.rank = 1, open.name_bytes = 5, open.secret_bytes = 17;
    view.slot(2).descriptor.kind = NEXAR_CMD_GROUP_OPEN;
    drained(2, NEXAR_ENTRY_SUBMIT);
    const Reads of_command = reads_of(view.slot(2).descriptor), of_open = reads_of(open);
    REQUIRE(engine.opens.size() == 1);
    CHECK(of_command.most == 1);
    CHECK(of_open.most == 1);
    CHECK(of_open.words == sizeof open / 8);

    engine::GroupInfo info;
    info.id = {1, 1, 1}, info.epoch = GroupEpoch(1), info.size = 2, info.rank = Rank(1),
    info.segment_bytes = 4096;
    info.members = {{Rank(0), NodeId{{7}}, 1}, {Rank(1), NodeId{{7}}, 1}};
    core.group_opened(engine.opens[0].ticket, info);
    auto& d = view.slot(3).descriptor;
    d.kind = NEXAR_OP_ALL_REDUCE, d.priority = 255, d.group = 1, d.epoch = 1, d.count = 4000,
    d.flags = NEXAR_SHM_FLAG_STAGED_IN;
    d.in = {1, 0, 0}, d.out = {1, 0, 32768}, d.stage_windows = 2;
    drained(3, NEXAR_ENTRY_SUBMIT);
    const Reads of_op = reads_of(d);
    REQUIRE(engine.ops.size() == 1);
    CHECK(of_op.most == 1);
    CHECK(of_op.words == sizeof d / 8);

    view.slot(3).stage_filled = 1;
    view.slot(3).stage_taken = 0;
    drained(3, NEXAR_ENTRY_STAGE);
    CHECK(engine.stages == 1);
    // The two counts may share a word: each is read once.
    CHECK(reads[static_cast<size_t>(reinterpret_cast<std::byte*>(&view.slot(3).stage_filled) - memory) / 8] <=
          2);

    d.kind = 200;  // a refusal reads no more often
    view.slot(4).descriptor = d;
    drained(4, NEXAR_ENTRY_SUBMIT);
    CHECK(reads_of(view.slot(4).descriptor).most == 1);
    ::munmap(memory, bytes);
}

#endif
