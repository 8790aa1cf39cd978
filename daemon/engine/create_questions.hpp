// CreateQuestions: which calls of creates wait for each other and can never end, because their lists differ,
// and what a missing rank waits in: of one node at once, of several by questions and answers between them
// (docs/protocol/children.md [Y13], [Y18]-[Y20], [Y23]).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/layout.hpp"
#include "engine/context.hpp"
#include "engine/creates.hpp"

namespace nexar::engine {

class Group;

// The engine, as creates need it.
class CreateHost {
  public:
    virtual Group* find_group(const GroupId& id) = 0;                              // null: it has gone
    virtual std::optional<link::Account> account_of(SessionId session) const = 0;  // none: it has ended

  protected:
    ~CreateHost() = default;
};

class CreateQuestions {
  public:
    CreateQuestions(Context& context, CreateHost& host, Creates& creates)
        : context_(context), host_(host), creates_(creates) {}

    // [Y13] On one node both calls are known: those that differ from this one, which begins, end at once.
    // `same`: the create that it joins, or null. Returned: the error of the call that begins.
    std::optional<Error> end_differing_from(const Group& parent, const Creates::Wanted& wanted,
                                            const Creates::Entry* same);
    // The calls of the entry have waited for long: once more asks the other nodes about them.
    void on_late(Creates::Entry& entry);
    // From a node of the group that is the parent.
    void on_query(const Group& group, collectives::NodeIndex from, const wire::CreateQuery& query);
    void on_answer(const Group& group, collectives::NodeIndex from, const wire::CreateAnswer& answer);

  private:
    void end_differing_late(const Group& parent, Creates::Entry& entry);
    Creates::Entry* create_of_rank_here(const GroupFacts& facts, uint32_t rank, uint64_t tag);
    void log_late(const Group* parent, const Creates::Entry& entry);
    void note_elsewhere_here(const Group& parent, Creates::Entry& entry);
    void ask_about(const Group& parent, Creates::Entry& entry);
    bool is_fresh(Creates::Entry& entry, const wire::CreateAnswer& answer);
    Creates::Entry* waits_elsewhere(const Group& group, const Listed& listed, uint64_t tag,
                                    const Creates::Entry* same);
    std::vector<link::Account> accounts_of(std::span<const SessionId> sessions) const;
    bool append_paid(const Group& group, collectives::NodeIndex to, Bytes message,
                     std::span<const link::Account> payers);
    void end_differing(const Group& group, collectives::NodeIndex from, const wire::CreateAnswer& answer,
                       Creates::Entry& entry, const std::vector<uint32_t>& ranks);

    Context& context_;
    CreateHost& host_;
    Creates& creates_;
};

}  // namespace nexar::engine
