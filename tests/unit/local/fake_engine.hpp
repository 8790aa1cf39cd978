// An engine for tests of the local path: groups of sessions of one daemon, u64 sums, messages, deadlines,
// cancels. One thread, no cleverness; what it gets wrong a test of daemon/local may not depend on.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "engine/clients.hpp"

namespace nexar::test {

class FakeEngine final : public engine::Service {
  public:
    engine::Clients* clients = nullptr;
    size_t sessions_ended = 0;
    size_t ops_seen = 0, groups_freed = 0;

    Result<void> open(Time now, const engine::OpenRequest& request) override {
        auto& waiting = opening_[request.name];
        waiting.push_back({request, now + request.timeout});
        if (waiting.size() < request.size) return {};
        engine::GroupInfo info;
        info.id = {1, 2, ++groups_made_};
        info.size = request.size;
        if (refuses(request.name)) info.segment_bytes = 65536;
        auto members = std::move(waiting);
        opening_.erase(request.name);
        Group& group = groups_[info.id];
        group.name = request.name;
        std::vector<engine::GroupMember> listed;
        for (uint32_t r = 0; r < info.size; ++r) {
            listed.push_back({Rank(r), node, members[r].request.pid});
            group.sessions.push_back(members[r].request.session);
        }
        info.members = std::move(listed);
        for (uint32_t r = 0; r < info.size; ++r) {
            info.rank = Rank(r);
            clients->group_opened(members[r].request.session, members[r].request.ticket, info);
        }
        return {};
    }

    Result<void> submit(Time now, const engine::OpRequest& request) override {
        ++ops_seen;
        auto found = groups_.find(request.group);
        if (found == groups_.end()) return fail(Errc::closed, "no such group");
        Group& group = found->second;
        if (group.lost.code != Errc::ok) return fail(group.lost);
        if (refuses(group.name)) return fail(Errc::mismatch, "refused");
        Time until = request.timeout > Duration::zero() ? now + request.timeout : never;
        if (group.name == "slow") until = now + slow_takes;
        pending_.push_back({request, request.rank, until});
        if (group.name != "stuck" && group.name != "slow") match(group);
        return {};
    }

    void stage(Time, SessionId, uint64_t, uint32_t, uint32_t) override {}  // it moves nothing by segments

    void cancel(Time, SessionId session, uint64_t ticket) override {
        end_where(
            [&](const Pending& p) {
                return p.request.session == session && p.request.ticket == ticket &&
                       groups_[p.request.group].name != "slow";
            },
            {Errc::cancelled, "cancelled", -1, -1, {}});
        for (auto& [name, waiting] : opening_)
            std::erase_if(waiting, [&](const Opening& o) {
                if (o.request.session != session || o.request.ticket != ticket) return false;
                clients->group_opened(session, ticket, fail(Errc::cancelled, "cancelled"));
                return true;
            });
    }

    Result<void> free_group(Time, SessionId session, const GroupId& group, uint32_t rank) override {
        ++groups_freed;
        end_where(
            [&](const Pending& p) {
                return p.request.session == session && p.request.group == group && p.rank == rank;
            },
            {Errc::closed, "the group was freed", -1, -1, {}});
        return {};
    }

    Result<void> abort_group(Time now, SessionId session, const GroupId& group, uint32_t rank,
                             const std::string&) override {
        return free_group(now, session, group, rank);
    }

    void session_ended(Time, SessionId session, engine::SessionEnd how, const std::string& reason) override {
        ++sessions_ended;
        last_crashed = how != engine::SessionEnd::closed;
        pending_.remove_if([&](const Pending& p) { return p.request.session == session; });
        for (auto& [name, waiting] : opening_)
            std::erase_if(waiting, [&](const Opening& o) { return o.request.session == session; });
        for (auto& [id, group] : groups_)
            for (uint32_t r = 0; r < group.sessions.size(); ++r)
                if (group.sessions[r] == session) {
                    group.lost = {Errc::peer_lost, "rank " + std::to_string(r) + " is gone: " + reason, r, -1,
                                  node.hex()};
                    end_where([&, which = id](const Pending& p) { return p.request.group == which; },
                              group.lost);
                }
    }

    Regions& regions() override { return regions_; }

    void on_time(Time now) {
        end_where([&](const Pending& p) { return now >= p.until; },
                  {Errc::timed_out, "late: rank 1", 1, -1, {}});
        for (auto& [name, waiting] : opening_)
            std::erase_if(waiting, [&](const Opening& o) {
                if (now < o.until) return false;
                clients->group_opened(o.request.session, o.request.ticket,
                                      fail(Errc::group_incomplete, "1 is missing"));
                return true;
            });
    }
    Time wake_at() const {
        Time at = never;
        for (const auto& p : pending_) at = std::min(at, p.until);
        for (const auto& [name, waiting] : opening_)
            for (const auto& o : waiting) at = std::min(at, o.until);
        return at;
    }
    size_t pending() const { return pending_.size(); }
    NodeId node{{0xab, 0xcd}};
    bool last_crashed = false;

  private:
    // A group named "stuck" never ends an operation by itself; "slow" ends it then, whatever its deadline.
    static constexpr Duration slow_takes{10'700'000'000};
    // Of such a group operations are staged where they are long, and all of them end at once.
    static bool refuses(const std::string& group) { return group == "refused"; }

    struct Opening {
        engine::OpenRequest request;
        Time until;
    };
    struct Group {
        std::string name;
        std::vector<SessionId> sessions;
        Error lost;
    };
    struct Pending {
        engine::OpRequest request;
        uint32_t rank;
        Time until;
    };

    template <class Predicate>
    void end_where(Predicate predicate, const Error& error) {
        std::vector<Pending> ended;
        pending_.remove_if([&](const Pending& p) {
            if (!predicate(p)) return false;
            ended.push_back(p);
            return true;
        });
        engine::Outcome outcome;
        outcome.error = error;
        for (const auto& p : ended) clients->complete(p.request.session, p.request.ticket, outcome);
    }

    // The oldest op of each rank, when every rank has one; messages when both ends are there.
    void match(Group& group) {
        const GroupId id = pending_.back().request.group;
        while (match_messages(id)) {
        }
        for (;;) {
            std::vector<std::list<Pending>::iterator> first(group.sessions.size(), pending_.end());
            for (auto p = pending_.begin(); p != pending_.end(); ++p)
                if (p->request.group == id && !is_message(*p) && first[p->rank] == pending_.end())
                    first[p->rank] = p;
            if (std::find(first.begin(), first.end(), pending_.end()) != first.end()) return;
            std::vector<Pending> ops;
            for (auto at : first) {
                ops.push_back(*at);
                pending_.erase(at);
            }
            carry_out(ops);
        }
    }

    static bool is_message(const Pending& p) { return !row_of(p.request.descriptor.kind).collective; }

    void carry_out(const std::vector<Pending>& ops) {
        const auto& d = ops[0].request.descriptor;
        const uint64_t size = ops.size(), block = d.count;
        const auto in = [&](size_t r) {
            return reinterpret_cast<const uint64_t*>(ops[r].request.in.place().resolve());
        };
        const auto total = [&](uint64_t i) {
            uint64_t sum = 0;
            for (size_t r = 0; r < size; ++r) sum += in(r)[i];
            return sum;
        };
        std::vector<uint64_t> result;
        if (d.kind == engine::OpKind::all_reduce || d.kind == engine::OpKind::reduce)
            for (uint64_t i = 0; i < block; ++i) result.push_back(total(i));
        if (d.kind == engine::OpKind::reduce_scatter)
            for (uint64_t i = 0; i < size * block; ++i) result.push_back(total(i));
        if (d.kind == engine::OpKind::all_gather)
            for (size_t r = 0; r < size; ++r) result.insert(result.end(), in(r), in(r) + block);
        if (d.kind == engine::OpKind::broadcast && block != 0) result.assign(in(d.root), in(d.root) + block);
        for (size_t r = 0; r < size; ++r) {
            const auto& out = ops[r].request.out;
            const uint64_t from = d.kind == engine::OpKind::reduce_scatter ? r * block : 0;
            if (out.bytes != 0) std::memcpy(out.place().resolve(), result.data() + from, out.bytes);
        }
        for (const auto& op : ops) clients->complete(op.request.session, op.request.ticket, {});
    }

    bool match_messages(const GroupId& id) {
        for (auto recv = pending_.begin(); recv != pending_.end(); ++recv) {
            if (recv->request.group != id || recv->request.descriptor.kind != engine::OpKind::recv) continue;
            for (auto send = pending_.begin(); send != pending_.end(); ++send) {
                const auto& s = send->request;
                const auto& r = recv->request;
                if (s.group != id || s.descriptor.kind != engine::OpKind::send || s.peer != recv->rank)
                    continue;
                if (r.peer != engine::any_rank && r.peer != send->rank) continue;
                if (!r.any_tag && r.tag != s.tag) continue;
                engine::Outcome outcome;
                outcome.bytes = s.in.bytes;
                outcome.source = send->rank;
                outcome.tag = s.tag;
                if (s.in.bytes > r.out.bytes)
                    outcome.error = {Errc::mismatch, "the message is longer", -1, -1, {}};
                if (s.in.bytes != 0 && s.in.bytes <= r.out.bytes)
                    std::memcpy(r.out.place().resolve(), s.in.place().resolve(), s.in.bytes);
                const auto a = *send, b = *recv;
                pending_.erase(send);
                pending_.erase(recv);
                clients->complete(a.request.session, a.request.ticket, {});
                clients->complete(b.request.session, b.request.ticket, outcome);
                return true;
            }
        }
        return false;
    }

    std::map<std::string, std::vector<Opening>> opening_;
    std::map<GroupId, Group> groups_;
    std::list<Pending> pending_;
    uint64_t groups_made_ = 0;
    Regions regions_;
};

}  // namespace nexar::test
