// A machine with one open that waits, and the messages of an attempt with it: the member's side.
#pragma once

#include <map>
#include <vector>

#include "cluster.hpp"
#include "support/proofs.hpp"

namespace nexar::rendezvous {

inline const NodeId self = node_id(3), leader = node_id(0), other = node_id(1), other2 = node_id(8);
inline const GroupId group{leader.prefix(), 2, 3};

struct Member {
    explicit Member(uint32_t size = 2) : machine(config_of(self)) {
        machine.on_peer_up(leader, {}, Time{});
        machine.on_peer_up(other, {}, Time{});
        request = *machine.open({SessionId{1}, key_of("g"), false, "g", size, 0, 9, ms(60'000)}, Time{});
        nonce = std::get<wire::GroupOpen>(sent().at(0)).nonce;
    }
    std::vector<wire::Message> sent() {
        std::vector<wire::Message> out;
        while (const auto action = machine.poll_action()) {
            if (const auto* send = std::get_if<Send>(&*action)) out.push_back(send->message);
            opened += std::holds_alternative<Opened>(*action);
            failed += std::holds_alternative<Failed>(*action);
            disowned += std::holds_alternative<Disowned>(*action);
        }
        return out;
    }
    wire::GroupPrepare prepare() const {
        wire::GroupPrepare out;
        out.group = group;
        out.key = key_of("g");
        out.name = "g";
        out.members = {{request, self, 0, 9, {}, 0, nonce}, {{other, 5}, other, 1, 7, {}, 0, {}}};
        return out;
    }
    // As an honest leader sends it when all members know the secret.
    static wire::GroupCommit commit(const wire::GroupPrepare& prepare, const ProofKey& key = {}) {
        const Proof proof(port(), key, prepare);
        std::map<NodeId, Incarnation> nodes;
        for (const auto& member : prepare.members) nodes[member.node] = member.incarnation;
        wire::GroupCommit out{prepare.group, {}};
        for (const auto& [node, incarnation] : nodes) out.tags.push_back(proof.tag_of(node, incarnation));
        return out;
    }
    wire::GroupCommit commit() const { return commit(prepare()); }
    static const ProofPort& port() {
        static const ProofPort out = test::proof_port();
        return out;
    }
    Rendezvous machine;
    wire::RequestId request;
    wire::Nonce nonce{};
    size_t opened = 0, failed = 0, disowned = 0;
};
template <class T>
size_t count(const std::vector<wire::Message>& messages) {
    size_t n = 0;
    for (const auto& m : messages) n += std::holds_alternative<T>(m);
    return n;
}

}  // namespace nexar::rendezvous
