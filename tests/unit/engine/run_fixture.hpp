// A group's facts, calls and ports for tests of what a collective run consists of.
#pragma once

#include <cstring>
#include <vector>

#include "core/log.hpp"
#include "engine/context.hpp"
#include "engine/group_facts.hpp"
#include "support/regions.hpp"

namespace nexar::engine {

// Ranks on nodes, by rank; this node is number `self`.
inline GroupFacts facts_of(const std::vector<uint32_t>& placement, uint32_t self = 0) {
    GroupFacts facts;
    facts.id = {1, 2, 3};
    facts.epoch = GroupEpoch(1);
    facts.layout = collectives::Layout(placement);
    facts.self = collectives::NodeIndex(self);
    for (uint32_t node = 0; node < facts.layout.nodes(); ++node) {
        NodeId id;
        id.bytes[0] = static_cast<uint8_t>(node + 1);
        facts.nodes.push_back(id);
        facts.hosts.emplace_back();
        facts.peers.emplace_back(node);
    }
    std::vector<wire::GroupMemberRecord> members;
    for (uint32_t rank = 0; rank < placement.size(); ++rank) {
        wire::GroupMemberRecord member;
        member.node = facts.nodes[facts.layout.node_of(rank).value];
        member.rank = rank;
        member.pid = 100 + rank;
        members.push_back(member);
    }
    facts.members = std::move(members);
    facts.timeouts = {Duration{30'000'000'000}, Duration{20'000'000'000}, Duration{0}};
    return facts;
}

inline OpRequest call_of(const OpDescriptor& descriptor, uint64_t ticket = 1,
                         Duration timeout = Duration{-1}) {
    OpRequest request;
    request.session = SessionId(ticket);
    request.ticket = ticket;
    request.descriptor = descriptor;
    request.timeout = timeout;
    return request;
}

template <class T>
MemoryRef memory_of(std::vector<T>& values) {
    static Regions regions;
    const size_t bytes = values.size() * sizeof(T);
    return {regions.add(RegionKind::memfd, {}, nexar::test::memory_of_test(values.data(), bytes)), 0, bytes};
}

// Of a group on one node: whatever goes elsewhere is a mistake.
struct NoPorts final : Clients, Workers, PeerPort {
    void complete(SessionId, uint64_t, const Outcome&) override { ++unexpected; }
    void group_opened(SessionId, uint64_t, const Result<GroupInfo>&) override { ++unexpected; }
    void stage_done(SessionId, uint64_t, uint32_t) override { ++unexpected; }
    void submit(WorkerJob) override { ++unexpected; }
    void send(link::PeerIndex, Bytes) override { ++unexpected; }
    void append(link::PeerIndex, Bytes, std::optional<link::Account>) override { ++unexpected; }
    bool reserve(link::PeerIndex, link::Account, size_t) override { return ++unexpected == 0; }
    link::LogRoom log_room(link::PeerIndex) const override { return {}; }
    bool reserve_open(link::PeerIndex, link::Account, size_t) override { return ++unexpected == 0; }
    void release(link::PeerIndex, link::Account, size_t) override { ++unexpected; }
    void discard_log(link::PeerIndex, const std::string&) override { ++unexpected; }

    size_t unexpected = 0;
    Log log{[](Level, const std::string&) {}};
    Context context{EngineConfig{}, EnginePorts{*this, *this, *this, {}, log}, 7};
};

}  // namespace nexar::engine
