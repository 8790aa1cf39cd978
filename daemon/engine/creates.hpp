// Creates: the calls of this node that wait for a group from a list of ranks (docs/protocol/children.md,
// "Groups from a list").
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>

#include "core/tenant.hpp"
#include "engine/creating.hpp"
#include "engine/opening.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {

class Creates {
  public:
    struct Call {
        SessionId session;
        uint64_t ticket = 0;
        uint64_t number = 0;      // of its open
        ChargeRef list;           // its tenant's, of the entry's list [Y24]
        bool ended_here = false;  // with an error of the engine's, not the rendezvous's
    };
    using Calls = std::map<uint32_t, Call>;  // by rank of the parent
    using Caller = Calls::value_type;
    struct Wanted {  // a call that is there, or begins
        uint32_t rank;
        uint64_t tag;
        std::span<const uint32_t> ranks;
    };
    struct Entry final : Alarm {  // the calls with one list and tag; at least one
        Entry(Creates& owner, Timers& timers, uint64_t user, CreationRef creation)
            : Alarm(timers, user), what(std::move(creation)), owner_(owner) {}
        void on_time() override { owner_.late_(*this); }
        void note_elsewhere(uint32_t rank, uint64_t tag, std::span<const uint32_t> ranks);
        const CreationRef what;
        Calls calls;
        // By tenant that has called: what its calls hold of the list. Few: a rank is one tenant's.
        std::map<uint64_t, std::weak_ptr<const Charge>> lists;
        Duration pause{};      // until the other nodes are asked again
        Time asks_at = never;  // when they are; never: the alarm has fired
        uint32_t asks = 0;     // how often they were, and when last: the newest answers count [Y23]
        Time asked_at{};
        // [Y20] By rank of the parent: the create that it waited in, as an error says it.
        std::map<uint32_t, std::string> elsewhere;
        static constexpr size_t elsewhere_max = 16;

      private:
        Creates& owner_;
    };
    // What ends the calls of one parent, some in a turn [Y21].
    struct Ending {
        // Ranks that have left the parent, with the error of the calls that list them; none: only their own
        // calls end.
        std::map<uint32_t, std::optional<Error>> left;
        Listed gone;               // of these the ones with an error
        std::optional<Error> all;  // the parent has ended
        // The next call to look at. What begins later is refused, or not concerned.
        uint64_t tag = 0, number = 0;
        uint32_t rank = 0;
        bool is_on_its_way = false;
        // A rank has left, or the parent has ended, since the first call was looked at: once more, after the
        // last one. So a departure holds up no earlier one.
        bool again = false;

        void note_another() { again = again || is_on_its_way; }
    };

    // `late`: called when an entry's alarm is due.
    Creates(Timers& timers, Opening& opening, std::function<void(Entry&)> late)
        : timers_(timers), opening_(opening), late_(std::move(late)) {}

    // [Y12] What an attempt has is ended by nobody but the attempt.
    bool waits(const Call& call) const {
        return !call.ended_here && !opening_.is_reserved(call.session, call.ticket);
    }
    // Its open fails with this error, and the call is removed when that open ends.
    void end(Call& call, const Error& error) {
        call.ended_here = true;
        opening_.end(call.session, call.ticket, error);
    }

    Entry* find(const GroupId& parent, uint64_t tag, std::span<const uint32_t> ranks) const;
    Entry* of_rank(const GroupId& parent, uint32_t rank, uint64_t tag) const;  // null: it has no such call
    struct Found {
        Entry* entry = nullptr;  // null: it is no call of a create
        uint32_t rank = 0;
    };
    Found find_call(SessionId session, uint64_t ticket) const;
    // The entries with a tag: at most one for each rank of the parent here.
    auto with_tag(const GroupId& parent, uint64_t tag) const {
        return std::ranges::subrange(entries_.lower_bound({parent, tag, 0}),
                                     entries_.upper_bound({parent, tag, UINT64_MAX})) |
               std::views::values;
    }
    // The creates that a rank waits in, by tag.
    auto all_of_rank(const GroupId& parent, uint32_t rank) const {
        return std::ranges::subrange(by_rank_.lower_bound({parent, rank, 0}),
                                     by_rank_.upper_bound({parent, rank, UINT64_MAX})) |
               std::views::values;
    }
    bool is_alone(const Entry& entry) const;  // no other list has its tag
    // The ranks of the parent that wait here in any create.
    const Listed& ranks_here(const GroupId& parent) const;
    // From where the ending is; null: no more, also not once more. The ending's place moves there.
    Entry* next(const GroupId& parent, Ending& ending) const;
    bool any_of(const GroupId& parent) const;

    Entry& add(const CreationRef& creation, uint32_t rank, const Call& call, uint64_t user);
    bool remove(SessionId session, uint64_t ticket);  // false: there was none
    void remove_session(SessionId session);
    void check_invariants() const;  // for tests; walks all calls

  private:
    using Key = std::tuple<GroupId, uint64_t, uint64_t>;  // parent, tag, number of the entry
    using Entries = std::map<Key, std::unique_ptr<Entry>>;
    struct Place {
        Entries::iterator entry;
        uint32_t rank = 0;
    };
    using ByCall = std::map<std::pair<SessionId, uint64_t>, Place>;
    void remove(ByCall::iterator at);

    // By parent, tag and ranks.
    using List = std::tuple<GroupId, uint64_t, std::span<const uint32_t>>;
    struct Before {
        bool operator()(const List& a, const List& b) const;
    };
    static List list_of(const Creation& creation) { return {creation.parent, creation.tag, creation.ranks}; }

    Timers& timers_;
    Opening& opening_;
    std::function<void(Entry&)> late_;
    Entries entries_;
    std::map<List, Entries::iterator, Before> by_list_;
    ByCall by_call_;                                                     // by session and ticket
    std::map<std::tuple<GroupId, uint32_t, uint64_t>, Entry*> by_rank_;  // by parent, its rank, and tag
    std::map<GroupId, Listed> ranks_here_;                               // by parent, those of by_rank_
    uint64_t last_ = 0;                                                  // the number of the newest entry
};

}  // namespace nexar::engine
