// The engine's ports of a Member, for its own files. The engine is there before the cluster: until then there
// are no peers, so nothing that goes through these ports has an addressee.
#pragma once

#include <utility>

#include "node/member.hpp"

namespace nexar::node {

// A bulk shard's mesh: every call is a command for the shard.
class Member::ShardMesh final : public engine::MeshPort {
  public:
    explicit ShardMesh(shards::Lending& lending) : lending_(&lending) {}
    shards::Shard* shard = nullptr;  // null: in no cluster
    void post(link::Batch batch) override {
        if (!shard) return;
        lending_->posting(loop::Loop::now(), batch, *shard);
        shard->post(std::move(batch));
    }
    void withdraw(const link::OpKey& op) override {
        if (shard) shard->post(shards::Withdraw{op});
    }
    void retract(const link::OpKey& op) override {
        if (shard) shard->post(shards::Retract{op});
    }
    void forget_group(const GroupId& group) override {
        if (shard) shard->post(shards::ForgetGroup{group});
    }

  private:
    shards::Lending* lending_;
};

// The control plane: the loop's own mesh, and messages to peers.
class Member::PlaneRelay final : public engine::MeshPort, public engine::PeerPort {
  public:
    ControlPlane* plane = nullptr;  // null: in no cluster
    void post(link::Batch batch) override {
        if (plane) plane->post(std::move(batch));
    }
    void withdraw(const link::OpKey& op) override {
        if (plane) plane->withdraw(op);
    }
    void retract(const link::OpKey& op) override {
        if (plane) plane->retract(op);
    }
    void forget_group(const GroupId& group) override {
        if (plane) plane->forget_group(group);
    }
    void send(PeerIndex peer, Bytes message) override {
        if (plane) plane->send(peer, message);
    }
    void append(PeerIndex peer, Bytes message, std::optional<link::Account> account) override {
        if (plane) plane->append(peer, message, account);
    }
    bool reserve(PeerIndex peer, link::Account account, size_t bytes) override {
        return plane && plane->reserve(peer, account, bytes);
    }
    bool reserve_open(PeerIndex peer, link::Account account, size_t bytes) override {
        return plane && plane->reserve_open(peer, account, bytes);
    }
    void release(PeerIndex peer, link::Account account, size_t bytes) override {
        if (plane) plane->release(peer, account, bytes);
    }
    link::LogRoom log_room(PeerIndex peer) const override {
        return plane ? plane->log_room(peer) : link::LogRoom{};
    }
    void discard_log(PeerIndex peer, const std::string& why) override {
        if (plane) plane->discard_log(peer, why);
    }
};

}  // namespace nexar::node
