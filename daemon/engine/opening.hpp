// Opening: the rendezvous of this node, driven. It takes the opens of sessions to it and groups out of it.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "engine/context.hpp"
#include "engine/snapshot.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::engine {

class Opening {
  public:
    // What came of the opens. Given one at a time by poll().
    struct Answer {
        SessionId session;
        uint64_t ticket = 0;
        Error error;
    };
    struct Formed {
        wire::GroupPrepare group;
        struct Local {
            uint32_t rank = 0;
            SessionId session;  // of a rank that is gone: none
            uint64_t ticket = 0;
            bool gone = false;  // its process ended before the group was there
        };
        std::vector<Local> locals;  // in rank order
    };
    struct Lost {  // a member node never joined
        GroupId group;
        NodeId node;
        std::string reason;
    };
    using Event = std::variant<Answer, Formed, Lost>;

    explicit Opening(Context& context);

    Result<void> open(const OpenRequest& request);
    bool cancel(SessionId session, uint64_t ticket);  // true: it was one; no event follows
    void session_ended(SessionId session);
    void on_peer_up(const NodeId& node, Incarnation life) { machine_.on_peer_up(node, life, context_.now); }
    void on_peer_down(const NodeId& node, Incarnation life) {
        machine_.on_peer_down(node, life, context_.now);
    }
    bool on_message(const NodeId& from, const wire::Message& message) {
        return machine_.on_message(from, message, context_.now);
    }
    void check_invariants() const { machine_.check_invariants(); }
    void on_time() { machine_.on_time(context_.now); }
    Time wake_at() const { return machine_.wake_at(); }
    // Sends what is due; then what was decided, or nothing.
    std::optional<Event> poll();
    size_t pending() const { return asked_.size(); }
    std::vector<OpeningSnapshot> snapshot() const;
    bool awaits(const GroupId& group) const { return machine_.awaits(group); }

  private:
    struct Asked {
        SessionId session;
        uint64_t ticket = 0;
    };
    Formed formed(const rendezvous::Opened& opened);

    Context& context_;
    rendezvous::Rendezvous machine_;
    std::unordered_map<uint64_t, Asked> asked_;  // by the request's number
};

}  // namespace nexar::engine
