// Engine::Impl: the parts of the engine, for its own files only: engine.cpp (its inputs), engine_groups.cpp
// (the begin and the removal of groups), engine_children.cpp (groups from groups), engine_ends.cpp,
// engine_messages.cpp (messages of other nodes), engine_snapshot.cpp.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/create_calls.hpp"
#include "engine/early_messages.hpp"
#include "engine/engine.hpp"
#include "engine/finished_groups.hpp"
#include "engine/group.hpp"
#include "engine/group_index.hpp"
#include "engine/opening.hpp"
#include "engine/watch.hpp"
#include "membership/failure_texts.hpp"

namespace nexar::engine {

class Engine::Impl final : public GroupHost, private CreateHost {
  public:
    Impl(const EngineConfig& config, const EnginePorts& ports, uint64_t seed)
        : context(config, ports, seed),
          watch(context, Time{}),
          opening(context),
          creates(context, *this, opening, timers),
          early(config.early_bytes_per_peer_max),
          finished(config.finished_groups_max, config.finished_members_max) {}

    // The time of an input. A turn of the loop has one time for all of its inputs.
    void set_time(Time now) {
        if (now != context.now) refill_ends();
        context.now = now;
    }
    // As set_time(), and the loop begins a turn, also where its time is the one before's.
    void begin_turn(Time now) {
        if (now == context.now) refill_ends();
        set_time(now);
    }
    void turn();  // every input begins with the time and ends with this
    void reach_changed(const Watch::Reach& reach);
    void on_opening(const Opening::Answer& answer);
    void on_opening(const Opening::Formed& formed);
    void on_opening(const Opening::Lost& lost);
    Error with_host(Error error) const;  // with the host's name
    Group* find(const GroupId& id) {
        const auto it = groups.find(id);
        return it == groups.end() ? nullptr : it->second.get();
    }
    void remove_finished();
    // [G11]
    bool has_ends() const {
        return !ending.empty() || !departing.empty() || !giving_up.empty() || creates.has_ends();
    }
    void refill_ends() {
        ends_left = context.config.ends_per_turn_max;
        creates_first = !creates_first;
    }
    void end_some();
    void depart();
    void depart_all() {
        while (!departing.empty()) depart();
    }
    void detach(SessionId session, const GroupId& id);
    void unlist(const Group& group, LocalRank& local);
    Result<void> make_group(const wire::GroupPrepare& prepare, std::vector<LocalRank> local,
                            const rendezvous::ProofKey& secret, const Creation* creation = nullptr);
    Group& begin_group(GroupFacts facts, std::vector<LocalRank> local);
    static GroupInfo info_of(const GroupFacts& facts);
    bool awaits(link::PeerIndex from, const GroupId& group);
    Result<GroupFacts> facts_of(const wire::GroupPrepare& prepare) const;
    Result<GroupFacts> place(GroupFacts facts) const;
    std::vector<membership::GroupNode> nodes_to_watch(const GroupFacts& facts);
    void keep_early(link::PeerIndex from, const GroupId& group, const wire::Message& message);
    void replay_early(const GroupId& group);
    void answer_for_ended_group(link::PeerIndex to, const GroupId& group, uint32_t epoch);
    void refuse_late(link::PeerIndex from, const wire::MessageOffer& offer);
    void report_not_made(const Opening::Formed& formed, const Error& why);
    void answer_all(const Opening::Formed& formed, const Error& why);
    void dispatch(link::PeerIndex from, const wire::Message& message);
    void log_discarded(link::PeerIndex peer);
    void log_has_room();
    void check_invariants() const;

    // GroupHost
    void peer_unreachable(link::PeerIndex peer, const std::string& reason) override {
        watch.suspect(peer, reason);
    }
    bool has_session(SessionId session) const override { return sessions.contains(session); }
    bool reachable(link::PeerIndex peer) const override { return watch.reachable(peer); }
    void complete(SessionId session, uint64_t ticket, const Outcome& outcome) override {
        const auto it = sessions.find(session);
        if (it == sessions.end()) return;
        it->second.requests.erase(ticket);
        context.ports.clients.complete(session, ticket, outcome);
    }
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override {
        if (sessions.contains(session)) context.ports.clients.stage_done(session, ticket, done);
    }

    void node_excluded(const GroupId& group, const NodeId& node) override { watch.on_excluded(group, node); }
    void group_cut(const GroupId& group, uint64_t seq, const Error& error) override;
    void group_finished(const GroupId& group) override { finishing.push_back(group); }
    void rank_left(const GroupId& group, uint32_t rank) override;
    void group_ending(const GroupId& group) override { ending.push_back(group); }
    void children_coming(const Family& family, const GroupId& parent) override;
    void children_done(const Family& family) override;
    Result<GroupInfo> make_child(GroupFacts facts, std::vector<LocalRank> local) override;
    void give_up_child(const GroupId& id, const Error& error) override;
    size_t groups_max() const override { return context.config.groups_max; }
    size_t groups_now() const override { return groups.size(); }

    // CreateHost
    Group* find_group(const GroupId& id) override { return find(id); }
    std::optional<link::Account> account_of(SessionId session) const override {
        const auto it = sessions.find(session);
        return it == sessions.end() ? std::nullopt : std::optional(it->second.account);
    }

    Context context;
    Timers timers;
    Watch watch;
    Opening opening;
    CreateCalls creates;  // opens that have a list
    EarlyMessages early;
    FinishedGroups finished;           // removed groups
    std::map<Family, GroupId> coming;  // of collectives that make groups: their parents [Y5]
    std::map<GroupId, std::unique_ptr<Group>> groups;
    GroupIndex group_index;  // of groups; without ranks that have left [N17]
    std::unordered_map<NodeId, std::set<GroupId>> groups_of_node;  // of other nodes
    std::vector<GroupId> finishing;                                // to be removed at the turn's end
    struct Departure {
        GroupId group;
        SessionId session;
        uint32_t rank;
        Leaving how;
        std::string reason;
    };
    std::deque<Departure> departing;                  // ranks of ended sessions
    std::deque<std::pair<GroupId, Error>> giving_up;  // children that no rank here has got
    std::deque<GroupId> ending;  // groups with something for Group::end_some(); may have ids twice
    size_t ends_left = 0;        // in this turn
    bool creates_first = false;  // in this turn: end_some()
    uint64_t groups_visited = 0;
    uint64_t rows_looked_at = 0;  // by snapshots
    bool stopping = false;  // [F17]: its ranks do not leave, they go with the daemon, and so do their groups
    struct Session {
        std::vector<GroupId> groups;  // one for each of its ranks
        link::Account account;        // its tenant's number
        TenantRef tenant;
        struct Request {
            GroupId group;
            uint64_t seq = 0;  // of a collective
        };
        // By ticket: operations in flight, so that to cancel one costs the same however many there are.
        std::unordered_map<uint64_t, Request, std::hash<uint64_t>, std::equal_to<>,
                           Recycled<std::pair<const uint64_t, Request>>>
            requests;
    };
    std::unordered_map<SessionId, Session> sessions;
};

}  // namespace nexar::engine
