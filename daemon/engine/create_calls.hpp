// CreateCalls: how the calls that create a group from a list of ranks begin and end on this node
// (docs/protocol/children.md [Y9]-[Y12], [Y20]-[Y22], [Y24]). Each is an open of the rendezvous with a list
// beside it; the answer of the open ends it, and so does the parent, or a listed rank that leaves it. What
// the nodes ask each other while it waits: create_questions.hpp.
#pragma once

#include <cstddef>
#include <map>

#include "engine/create_questions.hpp"
#include "engine/creates.hpp"
#include "engine/opening.hpp"

namespace nexar::engine {

struct LocalRank;

class CreateCalls {
  public:
    CreateCalls(Context& context, CreateHost& host, Opening& opening, Timers& timers)
        : context_(context),
          host_(host),
          opening_(opening),
          creates_(timers, opening, [this](Creates::Entry& entry) { questions_.on_late(entry); }),
          questions_(context, host, creates_) {}
    CreateCalls(const CreateCalls&) = delete;
    CreateCalls& operator=(const CreateCalls&) = delete;

    // Requires: the request has a list. `charge`: for the group.
    Result<void> begin(const OpenRequest& request, const ChargeRef& charge);
    // Its open has ended: with the group, or without. Null or false: that open was no create.
    CreationRef take(SessionId session, uint64_t ticket);
    bool remove(SessionId session, uint64_t ticket) { return creates_.remove(session, ticket); }
    void remove_session(SessionId session) { creates_.remove_session(session); }
    // The error of an open, as the ranks of the parent know it. Requires: before remove().
    Error explained(const Opening::Answer& answer) const;

    // What ends the calls of a parent [Y12]. None ends before end_some().
    void rank_left(const Group& parent, uint32_t rank);
    void parent_ended(const Group& parent, const Error& error);
    bool has_ends() const { return !ending_.empty(); }
    void end_some(size_t& left);  // [Y21] at most `left`, and subtracts their number

    void on_query(const Group& parent, collectives::NodeIndex from, const wire::CreateQuery& query) {
        questions_.on_query(parent, from, query);
    }
    void on_answer(const Group& parent, collectives::NodeIndex from, const wire::CreateAnswer& answer) {
        questions_.on_answer(parent, from, answer);
    }
    void check_invariants() const { creates_.check_invariants(); }

  private:
    Result<CreationRef> begin_creation(const Group& parent, const LocalRank& local,
                                       const CreateRequest& wanted);
    Result<ChargeRef> charge_for_list(const Group& parent, const OpenRequest& request) const;
    bool end_next(const GroupId& parent, Creates::Ending& end, size_t& left);

    Context& context_;
    CreateHost& host_;
    Opening& opening_;
    Creates creates_;
    CreateQuestions questions_;
    std::map<GroupId, Creates::Ending> ending_;  // by parent: what ends its calls [Y21]
    GroupId served_;                             // the parent of ending_ whose turn it was
};

}  // namespace nexar::engine
