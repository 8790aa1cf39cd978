// The nodes of one group under a random schedule: messages in order for each pair, delivered one at a time
// in any order between pairs; processes fail, nodes stop at any message, links are cut. What finds failures
// (membership/) is an oracle here that becomes right in the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/random.hpp"
#include "membership/group_lifecycle.hpp"

namespace nexar::membership {

struct LifecycleScenario {
    uint32_t nodes = 3;
    uint64_t seed = 0;
    LifecycleSabotage sabotage{};
    bool stuck = false;  // one collective that every rank handed over never ends on one node
    // Each node that stops, and after how many messages of its own.
    std::map<uint32_t, size_t> stops_after;
    std::vector<uint32_t> process_fails;                   // one rank of each of these nodes
    std::vector<std::pair<uint32_t, uint32_t>> links_cut;  // both nodes run
    std::optional<uint32_t> wrongly_lost;                  // it runs: it was stopped, and continues
    std::set<uint32_t> departs;                            // nodes whose ranks leave before the failure

    bool sabotage_free() const {
        const auto& s = sabotage;
        return !(s.accept_before_ended || s.forget_accepted || s.accept_any_ballot || s.cut_at_own_count);
    }
};

class LifecycleCluster {
  public:
    explicit LifecycleCluster(LifecycleScenario scenario)
        : scenario_(std::move(scenario)), random_(scenario_.seed) {
        const uint32_t n = scenario_.nodes;
        suspects_.assign(n, std::vector<bool>(n));
        cut_ = suspects_;
        for (uint32_t i = 0; i < n; ++i) {
            GroupLifecycle::Config config{{}, GroupEpoch(1), n, i};
            config.agreement_limit = Duration{1'000'000'000'000};  // not needed here
            nodes_.push_back(std::make_unique<Node>(*this, i, config, scenario_.sabotage));
            nodes_[i]->posted = 3 + random_.below(4);
            nodes_[i]->ended = random_.below(3);
        }
        for (const uint32_t i : scenario_.departs) nodes_[i]->departed = true;
    }

    // Runs until no event is left. Returns what was wrong, or nothing.
    std::string run() {
        for (const uint32_t i : scenario_.process_fails) process_fails(i);
        for (const auto& [a, b] : scenario_.links_cut) cut_[a][b] = cut_[b][a] = true;
        for (const auto& [i, after] : scenario_.stops_after)
            if (after == 0) stop(i);
        size_t idle = 0;
        for (size_t step = 0; step < 20'000 && idle < 6; ++step) {
            bool moved = random_.one_in(6)   ? oracle_at_random()
                         : random_.one_in(4) ? progress_at_random()
                                             : deliver();
            if (!moved) moved = everything_once();
            if (!moved) pass_time();
            idle = moved ? 0 : idle + 1;
            if (!wrong_.empty()) return wrong_;
        }
        return fault();
    }

    const std::optional<wire::Cut>& decided(uint32_t node) const { return nodes_[node]->machine.decided(); }
    uint64_t handed_over() const {
        uint64_t least = UINT64_MAX;
        for (const auto& node : nodes_) least = std::min({least, node->posted, node->handed});
        return least;
    }

  private:
    struct RankGone {
        uint32_t node;
        uint64_t handed;
    };
    using OnWire = std::variant<RankGone, wire::Message>;

    struct Node final : LifecycleHost {
        Node(LifecycleCluster& c, uint32_t i, const GroupLifecycle::Config& config, LifecycleSabotage s)
            : cluster(c), index(i), machine(*this, config, s) {}
        bool suspects(uint32_t node) const override { return cluster.suspects_[index][node]; }
        uint64_t handed_over() const override { return std::min(frozen ? frozen_at : posted, handed_seen); }
        uint64_t ended_below() const override { return ended; }
        void freeze() override {
            frozen = true;
            frozen_at = posted;
        }
        void run_below(uint64_t seq) override { limit = seq; }
        void cut(const wire::Cut& c) override {
            ++cuts;
            const bool excluded = std::ranges::find(c.failed.excluded, index) != c.failed.excluded.end();
            if (!excluded && ended < c.seq && c.seq != UINT64_MAX)
                cluster.wrong("node " + std::to_string(index) + " ended at a cut above what is over there");
        }

        LifecycleCluster& cluster;
        uint32_t index;
        GroupLifecycle machine;
        uint64_t posted = 0, ended = 0, limit = 0, frozen_at = 0;
        uint64_t handed = UINT64_MAX;       // of its rank that failed
        uint64_t handed_seen = UINT64_MAX;  // of all ranks whose failure it knows
        size_t sent = 0, cuts = 0;
        bool stopped = false, frozen = false, departed = false;
    };

    void wrong(const std::string& what) {
        if (wrong_.empty()) wrong_ = what;
    }

    void process_fails(uint32_t i) {
        Node& node = *nodes_[i];
        if (node.stopped) return;
        node.handed = random_.below(node.posted + 1);
        for (uint32_t to = 0; to < nodes_.size(); ++to)
            if (to != i) links_[{i, to}].push_back(RankGone{i, node.handed});
        learn(node, {i, node.handed});
    }

    void learn(Node& node, const RankGone& gone) {
        node.handed_seen = std::min(node.handed_seen, gone.handed);
        if (!node.departed)
            node.machine.on_failure({lost("process on " + std::to_string(gone.node)), {}}, now_);
        flush(node);
    }

    static Error lost(const std::string& what) { return {Errc::peer_lost, what, 0, -1, {}}; }

    void stop(uint32_t i) {
        nodes_[i]->stopped = true;
        for (uint32_t to = 0; to < nodes_.size(); ++to) {
            auto& link = links_[{i, to}];
            if (!link.empty()) link.resize(link.size() - random_.below(link.size() + 1));
        }
    }

    void flush(Node& node) {
        if (scenario_.sabotage_free()) node.machine.check_invariants();
        while (auto out = node.machine.poll_send()) {
            if (node.stopped) continue;
            links_[{node.index, out->to}].push_back(std::move(out->message));
            const auto at = scenario_.stops_after.find(node.index);
            if (at != scenario_.stops_after.end() && ++node.sent >= at->second) stop(node.index);
        }
    }

    bool deliver() {
        std::vector<std::pair<uint32_t, uint32_t>> ready;
        for (const auto& [ends, link] : links_)
            if (!link.empty() && !nodes_[ends.second]->stopped && !cut_[ends.first][ends.second])
                ready.push_back(ends);
        if (ready.empty()) return false;
        const auto ends = ready[random_.below(ready.size())];
        auto& link = links_[ends];
        const OnWire words = std::move(link.front());
        link.pop_front();
        Node& node = *nodes_[ends.second];
        if (const auto* gone = std::get_if<RankGone>(&words))
            learn(node, *gone);
        else
            receive(node, ends.first, std::get<wire::Message>(words));
        return true;
    }

    void receive(Node& node, uint32_t from, const wire::Message& message) {
        if (node.departed) {
            if (!std::holds_alternative<wire::GroupDeparted>(message) &&
                !std::holds_alternative<wire::GroupEnd>(message))
                links_[{node.index, from}].push_back(wire::GroupDeparted{});
            return;
        }
        const Result<void> result = node.machine.on_message(from, message, now_);
        if (!result) wrong("refused: " + result.error().text);
        flush(node);
    }

    bool oracle_at_random() {
        return oracle(static_cast<uint32_t>(random_.below(nodes_.size())),
                      static_cast<uint32_t>(random_.below(nodes_.size())));
    }
    bool progress_at_random() { return progress(*nodes_[random_.below(nodes_.size())]); }
    bool everything_once() {
        bool moved = deliver();
        for (const auto& node : nodes_) moved = progress(*node) || moved;
        for (uint32_t a = 0; a < nodes_.size() && !moved; ++a)
            for (uint32_t b = 0; b < nodes_.size() && !moved; ++b) moved = oracle(a, b);
        return moved;
    }

    // A suspicion, or its decision.
    bool oracle(uint32_t a, uint32_t b) {
        Node& node = *nodes_[a];
        if (a == b || node.stopped || node.departed || node.machine.excludes(b)) return false;
        const bool gone = nodes_[b]->stopped || scenario_.wrongly_lost == b;
        if (!gone && !cut_[a][b]) return false;
        if (!suspects_[a][b]) {
            suspects_[a][b] = true;
            node.machine.on_reach_changed(now_);
        } else if (node.machine.state() == GroupLifecycle::State::ended) {
            return false;
        } else if (gone || !third_party(a, b)) {
            node.machine.on_failure({lost("node " + std::to_string(b)), b}, now_);
        } else {
            const uint32_t high = std::max(a, b);
            if (node.machine.excludes(high)) return false;
            node.machine.on_failure({{Errc::link_lost,
                                      "link " + std::to_string(std::min(a, b)) + "-" + std::to_string(high),
                                      0,
                                      1,
                                      {}},
                                     high},
                                    now_);
        }
        flush(node);
        return true;
    }

    // A running node that both reach: it can confirm that both run.
    bool third_party(uint32_t a, uint32_t b) const {
        for (uint32_t c = 0; c < nodes_.size(); ++c)
            if (c != a && c != b && !nodes_[c]->stopped && !cut_[a][c] && !cut_[b][c]) return true;
        return false;
    }

    // A collective ends on a node: all ranks have handed it over, and it may run.
    bool progress(Node& node) {
        const bool may_run = !node.frozen || node.ended < node.limit;
        if (node.stopped || node.ended >= handed_over() || !may_run) return false;
        if (scenario_.stuck && node.index == nodes_.size() - 1 && node.ended == stuck_at) return false;
        ++node.ended;
        node.machine.on_progress(now_);
        flush(node);
        return true;
    }

    void pass_time() {
        now_ += Duration{6'000'000'000};
        for (auto& node : nodes_) {
            if (node->stopped || now_ < node->machine.wake_at()) continue;
            node->machine.on_time(now_);
            flush(*node);
        }
    }

    std::string fault() const {
        for (const auto& node : nodes_) {
            const auto& cut = node->machine.decided();
            const std::string name = "node " + std::to_string(node->index);
            if (!cut) {
                if (!node->stopped && !node->departed) return name + " has not ended";
                continue;
            }
            if (node->cuts != 1) return name + " was cut " + std::to_string(node->cuts) + " times";
            for (uint32_t other = 0; other < node->index; ++other)
                if (const std::string differs = compare(*node, *nodes_[other]); !differs.empty())
                    return differs;
        }
        return {};
    }

    // Two sides of a partition may differ, and one that is excluded from those that have all stopped since.
    std::string compare(const Node& a, const Node& b) const {
        const auto &cut = a.machine.decided(), &other = b.machine.decided();
        if (!other || (cut_[a.index][b.index] && !third_party(a.index, b.index))) return {};
        if (a.machine.excludes(b.index) && b.machine.excludes(a.index)) return {};
        if (a.stopped && (a.machine.excludes(b.index) || b.machine.excludes(b.index))) return {};
        if (b.stopped && (b.machine.excludes(a.index) || a.machine.excludes(a.index))) return {};
        if (other->seq == cut->seq && other->failed.error.text == cut->failed.error.text) return {};
        return "node " + std::to_string(a.index) + " ended at " + std::to_string(cut->seq) + " (" +
               cut->failed.error.text + "), node " + std::to_string(b.index) + " at " +
               std::to_string(other->seq) + " (" + other->failed.error.text + ")";
    }

  public:
    static constexpr uint64_t stuck_at = 2;

  private:
    LifecycleScenario scenario_;
    Random random_;
    Time now_{};
    std::vector<std::unique_ptr<Node>> nodes_;
    std::map<std::pair<uint32_t, uint32_t>, std::deque<OnWire>> links_;  // from, to
    std::vector<std::vector<bool>> suspects_, cut_;
    std::string wrong_;
};

}  // namespace nexar::membership
