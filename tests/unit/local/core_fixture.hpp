// A SessionCore over plain memory, with an engine that takes everything.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "local/session_core.hpp"
#include "shm/words.hpp"
#include "support/add_region.hpp"
#include "support/control_memory.hpp"
#include "support/regions.hpp"

namespace nexar::test {

using namespace nexar::local;

constexpr Time at{};

// Takes everything and completes nothing by itself; answers group opens at once.
struct Engine final : engine::Service {
    SessionCore* core = nullptr;
    std::vector<engine::OpRequest> ops;
    Regions rows;
    std::vector<uint64_t> cancelled;
    struct Moved {
        uint64_t ticket;
        uint32_t filled, taken;
        bool operator==(const Moved&) const = default;
    };
    std::vector<Moved> moves;
    std::vector<uint32_t> freed_ranks;
    std::vector<std::pair<uint32_t, std::string>> aborts;  // rank, reason
    uint64_t groups = 0;
    std::vector<engine::OpenRequest> opens;

    Result<void> open(Time, const engine::OpenRequest& request) override {
        opens.push_back(request);
        engine::GroupInfo info;
        info.id = {1, 1, ++groups};
        info.epoch = GroupEpoch(1);
        info.size = request.size;
        info.segment_bytes = 4096;
        info.rank = Rank(request.rank < 0 ? 0 : static_cast<uint32_t>(request.rank));
        std::vector<engine::GroupMember> members;
        for (uint32_t r = 0; r < request.size; ++r) members.push_back({Rank(r), NodeId{{7}}, 1});
        info.members = std::move(members);
        core->group_opened(request.ticket, info);
        return {};
    }
    Regions& regions() override { return rows; }
    Result<void> submit(Time, const engine::OpRequest& request) override {
        ops.push_back(request);
        if (ops.size() > 100000) ops.clear();
        return {};
    }
    void cancel(Time, SessionId, uint64_t ticket) override { cancelled.push_back(ticket); }
    void stage(Time, SessionId, uint64_t ticket, uint32_t filled, uint32_t taken) override {
        moves.push_back({ticket, filled, taken});
    }
    Result<void> free_group(Time, SessionId, const GroupId&, uint32_t rank) override {
        freed_ranks.push_back(rank);
        return {};
    }
    Result<void> abort_group(Time, SessionId, const GroupId&, uint32_t rank,
                             const std::string& reason) override {
        aborts.emplace_back(rank, reason);
        return {};
    }
    void session_ended(Time, SessionId, engine::SessionEnd, const std::string&) override {}
};

struct NoWaker final : Waker {
    size_t doorbells = 0;
    void wake_all(uint32_t*) override {}
    void ring_doorbell() override { ++doorbells; }
};

inline nexar_shm_descriptor all_reduce(uint64_t count) {
    nexar_shm_descriptor d{};
    d.kind = NEXAR_OP_ALL_REDUCE;
    d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
    d.group = 1;
    d.epoch = 1;
    d.count = count;
    d.in = {1, 0, 0};
    d.out = {1, 0, 4096};
    return d;
}

struct Fixture {
    ControlMemory memory{16};
    Engine engine;
    NoWaker waker;
    Tenants tenants;
    SessionCore core{{SessionId(5), tenants.of("", 1000), 77, {}}, memory.view(), engine, waker, {}};
    shm::SubmissionProducer producer{memory.view()};
    uint32_t generation = 0;
    std::vector<std::byte> region = std::vector<std::byte>(65536);

    explicit Fixture(const TenantLimits& limits = {}) : tenants(limits) {
        engine.core = &core;
        nexar::test::add_region(core, 15, 1, 1, region.size(),
                                [&] { return nexar::test::memory_of_test(region.data(), region.size()); });
        nexar_shm_group_open open{};
        open.size = 4, open.rank = 2, open.name_bytes = 3;
        memory.view().payload(0).group_open = open;
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_OPEN;
        REQUIRE(ask(0, d) == 0);
        REQUIRE(memory.view().slot(0).result.group == 1);
    }

    uint32_t push(uint32_t slot, const nexar_shm_descriptor& d) {
        ++generation;
        memory.view().slot(slot).descriptor = d;
        memory.view().slot(slot).state = NEXAR_SLOT_WORD(generation, 1u);
        REQUIRE(producer.try_push({slot, generation, NEXAR_ENTRY_SUBMIT}));
        core.drain(at);
        core.check_invariants();
        return generation;
    }
    // The slot's status after a drain; PENDING if it is in flight.
    int32_t ask(uint32_t slot, const nexar_shm_descriptor& d) {
        const uint32_t mine = push(slot, d);
        const auto& shared = memory.view().slot(slot);
        return shared.state == NEXAR_SLOT_WORD(mine, 2u) ? shared.result.status : 1;
    }
    int32_t free_region(uint32_t number) {
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_REGION_FREE;
        d.in.region = number;
        return ask(4, d);
    }
    // While an operation on it is in flight.
    int32_t use_and_free(uint32_t number) {
        auto d = all_reduce(8);
        d.in.region = number;
        push(3, d);
        return free_region(number);
    }
    std::string text(uint32_t slot) {
        const auto& detail = memory.view().detail(slot);
        return {detail.text, detail.text_bytes};
    }
};

}  // namespace nexar::test
