// The engines of a few nodes for tests of what a start asks for: meshes, workers and peers are played here,
// at once and in memory, and what they ask for is not counted.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <vector>

#include "core/log.hpp"
#include "engine/engine.hpp"
#include "engine/local_job.hpp"
#include "support/allocations.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

// What the ports ask for while one exists is not the engine's.
class Excused {
  public:
    explicit Excused(size_t& sum) : sum_(sum) {}
    ~Excused() { sum_ += test::allocations() - before_; }
    Excused(const Excused&) = delete;
    Excused& operator=(const Excused&) = delete;

  private:
    size_t& sum_;
    const size_t before_ = test::allocations();
};

inline uint64_t thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class StartNodes;

class StartNode final : Clients, Workers, PeerPort, MeshPort {
  public:
    StartNode(StartNodes& all, uint32_t index, const EngineConfig& config)
        : all_(all),
          index_(index),
          engine(config, EnginePorts{*this, *this, *this, {this}, log_}, index + 1) {}

  private:
    void complete(SessionId, uint64_t, const Outcome& outcome) override;
    void group_opened(SessionId, uint64_t, const Result<GroupInfo>&) override {}
    void stage_done(SessionId, uint64_t, uint32_t) override {}
    void submit(WorkerJob job) override;
    void send(link::PeerIndex, Bytes) override {}
    void append(link::PeerIndex to, Bytes message, std::optional<link::Account>) override;
    bool reserve(link::PeerIndex, link::Account, size_t) override { return true; }
    bool reserve_open(link::PeerIndex, link::Account, size_t) override { return true; }
    void release(link::PeerIndex, link::Account, size_t) override {}
    link::LogRoom log_room(link::PeerIndex) const override { return {}; }
    void discard_log(link::PeerIndex, const std::string&) override {}
    void post(link::Batch batch) override;
    void withdraw(const link::OpKey&) override {}
    void retract(const link::OpKey&) override {}
    void forget_group(const GroupId&) override {}

    StartNodes& all_;
    uint32_t index_;
    Log log_{[](Level, const std::string&) {}};

  public:
    Engine engine;
};

class StartNodes {
  public:
    StartNodes(const std::vector<uint32_t>& placement, const wire::PlanTableRecord& plan,
               size_t seq_window = EngineConfig{}.seq_window);
    void add_group(const GroupId& id);  // of all ranks, as `group` is

    // Counts what the engine asks for.
    Result<void> submit(uint32_t rank, OpRequest& request) {
        request.ticket = ++tickets_;
        const size_t before = test::allocations(), excused_before = excused;
        Result<void> result = nodes_[placement_[rank]]->engine.submit(now_, request);
        asked += test::allocations() - before - (excused - excused_before);
        return result;
    }
    // Until nothing moves.
    void settle();
    void pass(Duration time) { now_ += time; }
    void cancel(uint32_t rank, uint64_t ticket) {
        nodes_[placement_[rank]]->engine.cancel(now_, session(rank), ticket);
    }
    static SessionId session(uint32_t rank) { return SessionId(1000 + rank); }
    const GroupId group{7, 8, 9};

    size_t asked = 0;    // by engines
    size_t excused = 0;  // by ports
    size_t succeeded = 0, failed = 0;
    size_t turns = 0;                      // of loops that an engine asked for
    uint64_t answers = 0, answers_ns = 0;  // about late ranks: how many, and the engines' time for them

  private:
    friend class StartNode;
    struct Sent {
        uint32_t from;
        uint64_t handle;
        link::SendSpec spec;
    };
    struct Awaited {
        uint32_t to;
        uint64_t handle;
        link::RecvSpec spec;
        std::optional<link::TransferKey> forward;
    };
    struct Input {
        uint32_t node;
        std::optional<wire::Message> message;  // from `peer`; empty: the end of a transfer or a job
        uint32_t peer = 0;
        uint64_t handle = 0;
        bool is_job = false;
    };
    void move_some();
    bool next_turns();
    void move(Sent& sent, Awaited& awaited);
    static NodeId id_of(uint32_t node) {
        NodeId out;
        out.bytes[0] = static_cast<uint8_t>(node + 1);
        return out;
    }

    std::vector<uint32_t> placement_;
    wire::PlanTableRecord plan_;
    std::vector<std::unique_ptr<StartNode>> nodes_;
    std::vector<Sent> sent_;
    std::vector<Awaited> awaited_;
    std::deque<Input> inputs_;
    TenantRef tenant_ = Tenants().of("", 1000);
    Time now_ = Time{} + Duration{1'000'000'000};
    uint64_t tickets_ = 0;
};

inline void StartNode::complete(SessionId, uint64_t, const Outcome& outcome) {
    ++(outcome.error.code == Errc::ok ? all_.succeeded : all_.failed);
}

inline void StartNode::submit(WorkerJob job) {
    const Excused excused(all_.excused);
    run_here(job);
    all_.inputs_.push_back({index_, {}, 0, job.handle, true});
}

// The codec's and the log's memory is not counted here either.
inline void StartNode::append(link::PeerIndex to, Bytes message, std::optional<link::Account>) {
    const Excused excused(all_.excused);
    auto decoded = wire::decode(message);
    if (!decoded)
        FAIL("a message that no peer can read");  // REQUIRE would be most of the instructions of a count
    const size_t before = test::allocations();
    const auto again = wire::encode(*decoded);
    all_.excused += test::allocations() - before;  // what the engine's own encode() asked for
    all_.inputs_.push_back({to.value, std::move(*decoded), index_});
}

inline void StartNode::post(link::Batch batch) {
    const Excused excused(all_.excused);
    uint64_t handle = batch.first_handle;
    for (link::RecvSpec& recv : batch.recvs) {
        std::optional<link::TransferKey> forward;
        if (recv.forward) forward = batch.sends[*recv.forward].key;
        all_.awaited_.push_back({index_, handle++, std::move(recv), forward});
    }
    for (link::SendSpec& send : batch.sends) all_.sent_.push_back({index_, handle++, std::move(send)});
}

inline StartNodes::StartNodes(const std::vector<uint32_t>& placement, const wire::PlanTableRecord& plan,
                              size_t seq_window)
    : placement_(placement), plan_(plan) {
    const uint32_t nodes = 1 + *std::ranges::max_element(placement);
    for (uint32_t node = 0; node < nodes; ++node) {
        EngineConfig config;
        config.self = id_of(node);
        config.seq_window = seq_window;
        nodes_.push_back(std::make_unique<StartNode>(*this, node, config));
        for (uint32_t peer = 0; peer < nodes; ++peer)
            if (peer != node)
                nodes_[node]->engine.on_peer_up(now_, link::PeerIndex(peer), id_of(peer), Incarnation{});
    }
    add_group(group);
}

inline void StartNodes::add_group(const GroupId& id) {
    wire::GroupPrepare prepare;
    prepare.group = id;
    prepare.name = "g";
    prepare.plan = plan_;
    prepare.timeouts = {30000, 30000, 0};
    for (uint32_t rank = 0; rank < placement_.size(); ++rank)
        prepare.members.push_back({{}, id_of(placement_[rank]), rank, 100 + rank, {}, known_features()});
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
        std::vector<SessionId> local;
        for (uint32_t rank = 0; rank < placement_.size(); ++rank)
            if (placement_[rank] == node) local.push_back(session(rank));
        REQUIRE(nodes_[node]->engine.install_group(now_, prepare, local, tenant_));
    }
}

inline void StartNodes::move(Sent& sent, Awaited& awaited) {
    std::vector<std::byte> bytes;
    for (const link::Extent& extent : sent.spec.memory)
        bytes.insert(bytes.end(), extent.data(), extent.data() + extent.bytes);
    if (bytes.size() != link::bytes_of(awaited.spec.memory) || sent.spec.agreement != awaited.spec.agreement)
        FAIL("two sides of a transfer that differ");
    const std::byte* from = bytes.data();
    for (const link::Extent& extent : awaited.spec.memory) {
        for (size_t at = 0; at < extent.bytes; at += sizeof(uint64_t)) {
            const size_t width = std::min(extent.bytes - at, sizeof(uint64_t));
            uint64_t old = 0, value = 0;
            std::memcpy(&old, extent.data() + at, width);
            std::memcpy(&value, from + at, width);
            if (awaited.spec.reduce) value += old;  // u64 sums only
            std::memcpy(extent.data() + at, &value, width);
        }
        from += extent.bytes;
    }
    inputs_.push_back({awaited.to, {}, 0, awaited.handle});
    inputs_.push_back({sent.from, {}, 0, sent.handle});
}

// One transfer whose sides are both there.
inline void StartNodes::move_some() {
    for (size_t a = 0; a < awaited_.size(); ++a)
        for (size_t s = 0; s < sent_.size(); ++s) {
            const bool pair = sent_[s].spec.ready && sent_[s].spec.key == awaited_[a].spec.key &&
                              sent_[s].spec.to.value == awaited_[a].to &&
                              awaited_[a].spec.from.value == sent_[s].from;
            if (!pair) continue;
            move(sent_[s], awaited_[a]);
            const auto forward = awaited_[a].forward;
            const uint32_t at = awaited_[a].to;
            sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(s));
            awaited_.erase(awaited_.begin() + static_cast<ptrdiff_t>(a));
            for (Sent& next : sent_)
                if (forward && next.from == at && next.spec.key == *forward) next.spec.ready = true;
            return;
        }
}

// False: no engine wants one.
inline bool StartNodes::next_turns() {
    bool any = false;
    for (const auto& node : nodes_) {
        if (node->engine.wake_at() > now_) continue;
        node->engine.on_time(now_);
        ++turns;
        any = true;
    }
    return any;
}

inline void StartNodes::settle() {
    while (true) {
        if (inputs_.empty()) move_some();
        if (inputs_.empty() && next_turns()) continue;
        if (inputs_.empty()) return;
        const Input input = std::move(inputs_.front());
        inputs_.pop_front();
        Engine& engine = nodes_[input.node]->engine;
        link::MeshEvent event{};
        event.kind = link::MeshEvent::Kind::done;
        event.handle = input.handle;
        const size_t before = test::allocations(), excused_before = excused;
        const bool is_answer = input.message && std::holds_alternative<wire::ArrivalReply>(*input.message);
        const uint64_t begin = is_answer ? thread_ns() : 0;
        if (input.message)
            engine.on_message(now_, link::PeerIndex(input.peer), *input.message);
        else if (input.is_job)
            engine.on_worker_done(now_, input.handle);
        else
            engine.on_mesh_event(now_, event);
        answers += is_answer;
        if (is_answer) answers_ns += thread_ns() - begin;
        asked += test::allocations() - before - (excused - excused_before);
    }
}

}  // namespace nexar::engine
