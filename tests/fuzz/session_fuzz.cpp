// A client's control segment, scribbled over while the session reads it. The input is a sequence of actions:
// scribble a word anywhere, submit a slot with a descriptor of these bytes, or end what the engine was asked.
#include <cstring>
#include <memory>

#include "core/bytes.hpp"
#include "local/session_core.hpp"
#include "shm/words.hpp"
#include "support/add_region.hpp"
#include "support/control_memory.hpp"

namespace {

using namespace nexar;

constexpr uint32_t slots = 16;

struct Engine final : engine::Service {
    Regions rows;
    local::SessionCore* core = nullptr;
    std::vector<uint64_t> tickets;

    Result<void> open(Time, const engine::OpenRequest& request) override {
        engine::GroupInfo info;
        info.size = request.size;
        info.rank = Rank(0);
        info.members = std::vector<engine::GroupMember>(std::min<size_t>(request.size, 4096));
        core->group_opened(request.ticket, info);
        return {};
    }
    // Touches what it was handed, as the workers would: memory that is not the region's shows.
    Result<void> submit(Time, const engine::OpRequest& request) override {
        for (const MemoryRef* m : {&request.in, &request.out})
            if (m->bytes > 0) *m->place().resolve() = *(m->place() + (m->bytes - 1)).resolve();
        tickets.push_back(request.ticket);
        return {};
    }
    Regions& regions() override { return rows; }
    void cancel(Time, SessionId, uint64_t) override {}
    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t) override { return {}; }
    Result<void> abort_group(Time, SessionId, const GroupId&, uint32_t, const std::string&) override {
        return {};
    }
    void session_ended(Time, SessionId, engine::SessionEnd, const std::string&) override {}
};
struct NoWaker final : local::Waker {
    void wake_all(uint32_t*) override {}
    void ring_doorbell() override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    test::ControlMemory memory(slots);
    Engine engine;
    NoWaker waker;
    Tenants tenants;
    local::SessionCore core({SessionId(5), tenants.of("", 1000), 77, {}}, memory.view(), engine, waker, {});
    engine.core = &core;
    auto region = std::make_shared<std::array<std::byte, 4096>>();
    test::add_region(core, slots - 1, 1, 1, region->size(),
                     [&] { return RegionMemory{region->data(), region->size(), {}, region}; });
    shm::SubmissionProducer producer(memory.view());
    uint32_t generation = 1;
    Reader in(std::as_bytes(std::span(data, size)));
    while (in.left() > 0 && !core.broken()) {
        const auto action = in.get<uint8_t>();
        if (action % 4 == 0) {
            const size_t at = in.get<uint16_t>();
            memory.words()[at % memory.words().size()] = in.get<uint64_t>();
        } else if (action % 4 == 3 && !engine.tickets.empty()) {
            core.complete(engine.tickets.back(), {});
            engine.tickets.pop_back();
        } else {
            const uint32_t slot = action / 4 % (slots + 1);
            nexar_shm_descriptor d{};
            const Bytes bytes = in.take(std::min(sizeof d, in.left()));
            if (!bytes.empty()) std::memcpy(&d, bytes.data(), bytes.size());
            if (slot < slots) {
                memory.view().slot(slot).descriptor = d;
                memory.view().slot(slot).state = NEXAR_SLOT_WORD(++generation, 1u);
            }
            const auto kind = action % 4 == 1 ? NEXAR_ENTRY_SUBMIT : NEXAR_ENTRY_CANCEL;
            producer.try_push({slot, generation, static_cast<uint8_t>(kind)});
        }
        core.drain({});
        core.check_invariants();
    }
    return 0;
}
