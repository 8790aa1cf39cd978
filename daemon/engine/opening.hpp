// Opening: connects the rendezvous to sessions and peers: opens of sessions in, groups out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "engine/context.hpp"
#include "engine/creating.hpp"
#include "engine/snapshot.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::engine {

class Opening {
  public:
    // The outcomes of opens, from poll().
    struct Answer {
        SessionId session;
        uint64_t ticket = 0;
        Error error;
    };
    struct Formed {
        wire::GroupPrepare group;
        struct Local {
            uint32_t rank = 0;
            SessionId session;  // none, if the rank has ended
            uint64_t ticket = 0;
            bool gone = false;  // its process ended before the group was made
            ChargeRef charge;   // none, if it is gone
        };
        std::vector<Local> locals;                  // in rank order
        std::optional<rendezvous::ProofKey> proof;  // none: a local group, or all its ranks here are gone
    };
    struct Lost {  // a member node never joined
        GroupId group;
        NodeId node;
        std::string reason;
    };
    using Event = std::variant<Answer, Formed, Lost>;

    explicit Opening(Context& context);

    // `charge`: for a group. `creation`: of an open that is a create, or null.
    // Its number: no other open of this node ever has it.
    Result<uint64_t> open(const OpenRequest& request, ChargeRef charge, const Creation* creation = nullptr);
    // [R37] It fails with this error, at once or when its attempt is aborted.
    void end(SessionId session, uint64_t ticket, const Error& error);
    bool is_reserved(SessionId session, uint64_t ticket) const;
    std::optional<uint64_t> number_of(SessionId session, uint64_t ticket) const;  // none: no such open
    bool cancel(SessionId session, uint64_t ticket);  // true: it was an open; no event follows
    void session_ended(SessionId session);
    void on_peer_up(const NodeId& node, Incarnation incarnation) {
        machine_.on_peer_up(node, incarnation, context_.now);
    }
    void on_peer_down(const NodeId& node, Incarnation incarnation) {
        machine_.on_peer_down(node, incarnation, context_.now);
    }
    bool on_message(const NodeId& from, const wire::Message& message) {
        return machine_.on_message(from, message, context_.now);
    }
    void set_plan(const wire::PlanTableRecord& plan) { machine_.set_plan(plan); }
    void set_trial(rendezvous::Trial trial) { machine_.set_trial(std::move(trial)); }
    void check_invariants() const;
    void on_time() { machine_.on_time(context_.now); }
    Time wake_at() const { return machine_.wake_at(); }
    // Sends the messages that are due, and returns the next outcome, if there is one.
    std::optional<Event> poll();
    void inquire(const SnapshotScope& scope, bool also);
    bool is_inquiring() const { return machine_.is_inquiring(); }
    // Adds those of the scope to `out`.
    void snapshot(Time now, const SnapshotScope& scope, Snapshot& out);
    uint64_t visited() const { return machine_.visited(); }
    bool awaits(const GroupId& group) const { return machine_.awaits(group); }
    // A formed group is no more, or was not made.
    void group_ended(const GroupId& group) { machine_.group_ended(group); }
    size_t groups() const { return machine_.groups(); }  // formed, and not ended

  private:
    // What the rendezvous does not know of an open; all else is in its row of the same number.
    struct Request {
        SessionId session;
        uint64_t ticket = 0;
        ChargeRef charge;
    };
    Formed formed(const rendezvous::Opened& opened);
    std::optional<Request> take(uint64_t number);
    Result<rendezvous::PayerRef> payer_of(const OpenRequest& request, bool local);
    void pass(const rendezvous::Send& send);
    OpeningSnapshot snapshot_of(Time now, rendezvous::FormingGroup group) const;

    Context& context_;
    rendezvous::Rendezvous machine_;
    std::unordered_map<uint64_t, Request> requests_by_number_;    // opens without an outcome
    std::map<std::pair<SessionId, uint64_t>, uint64_t> numbers_;  // an index of them, by session and ticket
};

}  // namespace nexar::engine
