// Random programs that tests/oracle draws, with all inputs and results as numpy has them
// (tests/oracle/simulator.py has the format, and starts this): over networks that reorder, split, delay, and
// lose channels with what is in them. NEXAR_SIM_PROGRAMS names the file. In some programs a rank dies, leaves
// or aborts: then every call's end goes to the file NEXAR_SIM_OUTCOMES, for tests/oracle/allowed.py to judge;
// that each call ends, and that what succeeds has the right data, is judged here.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "family.hpp"
#include "oracle_creates.hpp"
#include "oracle_text.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

class Performance {
  public:
    Performance(uint64_t seed, Text& text) : cluster_(seed, shape(seed)), text_(text) {
        const bool breaks = seed % 3 == 0;
        for (std::vector<Item>& items : text.items)
            for (Item& item : items)  // of the performance before
                item.call = nullptr, item.open.reset(), item.is_freed = item.is_skipped = false,
                item.called = {};
        make_groups();
        for (int i = 0; breaks && i < 8; ++i)
            cluster_.clock.after(cluster_.clock.some(3ms), [this] {
                const auto a = static_cast<uint32_t>(cluster_.clock.random.below(nodes));
                cluster_.break_channel(a, (a + 1) % nodes, cluster_.clock.some(500us));
            });
        next_.assign(text.items.size(), 0);
        gone_.assign(text.items.size(), false);
        paused_.assign(text.items.size(), Time{});
        deadlines_.assign(text.items.size(), Duration{-1});
        for (uint32_t rank = 0; rank < text.items.size(); ++rank) schedule(rank, 100us);
        const bool finished = cluster_.run();
        INFO(cluster_.unfinished());
        REQUIRE(finished);
    }
    void look() {
        for (std::vector<Item>& items : text_.items)
            for (const Item& item : items)
                if (is_expected(item)) look(item);
        cluster_.check();
    }
    // A line for each call that ended: RANK STEP WHAT NAME CULPRIT BEGAN ENDED GROUP TEXT, times in
    // nanoseconds; GROUP: which one a create made, or -.
    void write_outcomes(std::ostream& file) const {
        file << "performance " << text_.seed << "\n";
        for (const std::vector<Item>& items : text_.items)
            for (const Item& item : items) {
                if (item.open && !creates_.is_pending(item))
                    write(file, item, creates_.error_of(item), item.called, creates_.ended_at(item),
                          creates_.group_of(item));
                // Before what the rank calls in the same moment.
                if (item.what == "lose" && item.called != Time{})
                    write(file, item, {}, item.called, item.called - 1ns);
                if (item.call != nullptr && item.call->ended)
                    write(file, item, item.call->outcome.error, item.call->submitted, item.call->finished);
            }
    }

  private:
    static constexpr uint32_t nodes = 4;
    static constexpr const char* reason = "the seed wants it";  // allowed.py looks for it

    static void write(std::ostream& file, const Item& item, const Error& error, Time began, Time ended,
                      const std::optional<GroupId>& made = {}) {
        const auto time = [](Time at) { return at.time_since_epoch().count(); };
        const std::string what = item.what == "lose" ? "leave" : item.what;
        file << item.rank << ' ' << item.step << ' ' << what << ' ' << name_of(error.code) << ' '
             << error.rank << ' ' << time(began) << ' ' << time(ended) << ' ';
        if (made)
            file << made->creator << '-' << made->incarnation << '-' << made->counter;
        else
            file << '-';
        file << ' ' << error.text << '\n';
    }
    static ClusterShape shape(uint64_t seed) {
        ClusterShape out = shape_of(nodes);
        if (seed % 2 == 0) out.plan = {1, 256, 64, 128, 4096, 3};
        if (seed % 5 == 1) out.network.jitter = 3ms, out.worker_delay = 500us;
        if (seed % 5 == 2) out.network.room = 300'000, out.shard_hop = 100us;
        return out;
    }
    // Children of one call at once; its ranks come at random moments.
    void make_groups() {
        for (const uint32_t process : text_.processes) sessions_.try_emplace(process, cluster_.new_session());
        for (const Made& made : text_.groups) {
            if (groups_.contains(made.number) || made.how == "create") continue;
            if (made.how != "open") {
                make_children(made);
                continue;
            }
            std::vector<uint32_t> placement;
            std::vector<SessionId> sessions;
            for (const uint32_t member : made.members) {
                placement.push_back(text_.places[member]);
                sessions.push_back(sessions_.at(text_.processes[member]));
            }
            groups_[made.number] = cluster_.make_group(placement, {}, false, sessions);
        }
    }
    void make_children(const Made& first) {
        const auto& parent = text_.groups[static_cast<size_t>(first.parent)];
        Family family(cluster_, groups_.at(parent.number));
        for (uint32_t rank = 0; rank < parent.members.size(); ++rank) {
            ChildCall wish{engine::no_colour, 0};
            for (const Made& made : text_.groups) {
                const uint32_t at = place_in(made, parent.members[rank]);
                if (is_of(made, first) && at < made.members.size()) wish = {made.number, at};
            }
            family.start(first.how == "dup" ? OpKind::group_dup : OpKind::group_split, rank, wish);
            cluster_.run_for(cluster_.clock.some(30us));
        }
        expect_end(cluster_);
        REQUIRE(family.all_ok());
        for (const Made& made : text_.groups)
            if (is_of(made, first)) groups_[made.number] = family.child_of(place_in(parent, made.members[0]));
    }
    // A created group's `call` is a step.
    static bool is_of(const Made& made, const Made& first) {
        return made.call == first.call && made.how == first.how;
    }
    void schedule(uint32_t rank, Duration pause) {
        ++cluster_.to_be_submitted;
        cluster_.clock.after(Duration(1) + cluster_.clock.some(pause), [this, rank, pause] {
            --cluster_.to_be_submitted;
            std::vector<Item>& items = text_.items[rank];
            if (gone_[rank]) return;
            creates_.settle(rank);
            const bool may =
                cluster_.clock.now() >= paused_[rank] && in_flight(rank) <= cluster_.clock.random.below(4);
            if (may) post_step(rank);
            if (next_[rank] < items.size() || creates_.any_pending(rank, false))
                schedule(rank, may ? 30us : std::min<Duration>(2 * pause, 2ms));
        });
    }
    uint64_t in_flight(uint32_t rank) const {
        uint64_t steps = 0, last = UINT64_MAX;
        for (size_t i = 0; i < next_[rank]; ++i) {
            const Item& item = text_.items[rank][i];
            if (item.call == nullptr || item.call->ended || item.step == last) continue;
            last = item.step;
            ++steps;
        }
        return steps;
    }
    // All of one step, whose sends and receives may need each other.
    void post_step(uint32_t rank) {
        std::vector<Item>& items = text_.items[rank];
        while (next_[rank] < items.size() && items[next_[rank]].what == "wait") {
            if (in_flight(rank) > 0 || creates_.any_pending(rank, true)) return;
            ++next_[rank];
        }
        if (next_[rank] == items.size()) return;
        const uint64_t step = items[next_[rank]].step;
        for (; next_[rank] < items.size() && !gone_[rank]; ++next_[rank]) {
            Item& item = items[next_[rank]];
            if (item.what == "wait" || item.step != step) return;
            if (item.what == "pause") {
                paused_[rank] = cluster_.clock.now() + item.time * 1us;
                ++next_[rank];
                return;
            }
            const OracleCreates::Has has = has_needed(item);
            if (has == OracleCreates::Has::not_yet) return;
            item.is_skipped = has == OracleCreates::Has::no;
            if (!item.is_skipped) act(item);
        }
    }
    // What the item needs: its group, the parent of a create, which has no other one of its tag in flight. A
    // parent that the rank has left it has: the create is refused.
    OracleCreates::Has has_needed(const Item& item) const {
        using enum OracleCreates::Has;
        if (item.is_create() && !creates_.may_begin(item)) return not_yet;
        const bool leaves = item.what == "lose" && (item.how == "free" || item.how == "abort");
        if (!item.is_call() && !item.is_create() && !leaves) return yes;
        return creates_.has(item.rank, item.is_create() ? item.parent : item.group);
    }
    void act(Item& item) {
        if (item.what == "deadline") deadlines_[item.rank] = item.time * 1ms;
        if (item.what == "cancel") cancel(item);
        if (item.what == "lose") lose(item);
        if (item.is_create()) {
            item.is_skipped = item.again && creates_.has_got(item);
            if (!item.is_skipped) creates_.begin(item);
        }
        if (!item.is_call() || left_.contains({item.rank, item.group})) return;
        if (!item.again || got_nothing(item)) post(item);
    }
    // What the rank has begun of the item's step.
    template <class Act>
    void with_begun(const Item& item, Act act) {
        for (Item& other : text_.items[item.rank])
            if (other.step == item.step && other.is_call() && other.call != nullptr) act(other);
    }
    void cancel(const Item& item) {
        const Duration later = cluster_.clock.random.one_in(2) ? Duration{0} : cluster_.clock.some(2ms);
        cluster_.clock.after(later, [this, &item] {
            with_begun(item, [&](Item& begun) {
                const SimGroup& group = groups_.at(begun.group);
                const uint32_t rank = place_in(text_.groups[begun.group], begun.rank);
                if (!begun.call->ended) cluster_.cancel(group, rank, *begun.call);
            });
            for (const Item& other : text_.items[item.rank])
                if (other.step == item.step && other.what == "ending" && !other.again) creates_.cancel(other);
        });
    }
    bool got_nothing(const Item& item) {
        bool nothing = false;
        with_begun(item, [&](const Item& begun) { nothing |= begun.what == "recv" && !begun.call->ok(); });
        return nothing;
    }
    // The rank goes: from the group, or altogether.
    void lose(Item& item) {
        const uint32_t rank = item.rank;
        const bool dies = item.how == "die" || item.how == "die_later";
        if (!dies) item.called = cluster_.clock.now();
        if (item.how == "die") return end_process(rank, true);
        if (item.how == "die_later")
            return cluster_.clock.after(cluster_.clock.some(3ms), [this, rank] { end_process(rank, true); });
        for (const Made& made : text_.groups) {
            const bool is_member = std::ranges::find(made.members, rank) != made.members.end();
            if (!is_member || (item.how != "exception" && made.number != item.group)) continue;
            left_.emplace(rank, made.number);
            if (creates_.has(rank, made.number) != OracleCreates::Has::yes) continue;
            const SimGroup& group = groups_.at(made.number);
            const uint32_t place = place_in(made, rank);
            const Result<void> gone = item.how == "free" ? cluster_.free_group(group, place)
                                                         : cluster_.abort_group(group, place, reason);
            REQUIRE(gone);
        }
        if (item.how == "exception") end_process(rank, false);
    }
    void end_process(uint32_t rank, bool crashed) {
        gone_[rank] = true;
        for (const Made& made : text_.groups)
            if (std::ranges::find(made.members, rank) != made.members.end())
                return cluster_.end_session(groups_.at(made.number), place_in(made, rank), crashed);
    }
    static uint32_t place_in(const Made& made, uint32_t member) {
        return OracleCreates::place_in(made, member);
    }
    // Whether the call must have been made, and have ended.
    bool is_expected(const Item& item) const {
        if (item.is_skipped || (item.is_call() && item.again && item.call == nullptr)) return false;
        if (item.is_create()) return item.rank != text_.lost;
        if (!item.is_call()) return false;
        if (item.rank != text_.lost) return true;
        return item.call != nullptr && (item.call->ended || !gone_[item.rank]);
    }
    void post(Item& item) {
        const Made& made = text_.groups[item.group];
        const uint32_t rank = place_in(made, item.rank);
        item.request.timeout = std::exchange(deadlines_[item.rank], Duration{-1});
        const auto& d = item.request.descriptor;
        const bool source = d.kind == OpKind::broadcast && rank == d.root;
        const uint64_t out = item.what == "recv" ? item.room : item.out ? item.out->size() : 0;
        item.call = &cluster_.submit(groups_.at(item.group), rank, item.request, item.in.value_or(Bytes{}),
                                     out, source);
    }
    void look(const Item& item) {
        CAPTURE(item.what, item.step, item.rank, item.group, item.request.descriptor.text());
        if (item.is_create()) return look_at_create(item);
        REQUIRE(item.call != nullptr);
        CAPTURE(item.call->outcome.error.text);
        REQUIRE(item.call->ended);
        if (text_.judged && !item.call->ok()) return;
        REQUIRE(item.call->ok());
        if (item.what == "recv") return look_at_message(item);
        if (!item.out) return;
        REQUIRE(item.call->out_at_end == *item.out);
    }
    void look_at_create(const Item& item) {
        REQUIRE(item.open);
        REQUIRE_FALSE(creates_.is_pending(item));
        CAPTURE(creates_.error_of(item).text);
        REQUIRE((text_.judged || creates_.error_of(item).code == Errc::ok));
    }
    void look_at_message(const Item& item) {
        const engine::Outcome& got = item.call->outcome;
        const Made& made = text_.groups[item.group];
        const auto arrived = std::span(item.call->out_at_end).first(got.bytes);
        for (const Item& sent : text_.items[made.members[got.source]]) {
            const bool same = sent.what == "send" && sent.step == item.step && sent.group == item.group &&
                              made.members[sent.request.peer] == item.rank && sent.request.tag == got.tag;
            if (!same || !std::ranges::equal(arrived, *sent.in)) continue;
            if (item.number >= 0 && sent.number != item.number) continue;
            if (taken_.emplace(item.step, sent.number).second) return;
        }
        FAIL("no message that fits, from rank " << got.source << " with tag " << got.tag);
    }

    Cluster cluster_;
    Text& text_;
    std::map<uint32_t, SimGroup> groups_;
    std::map<uint32_t, SessionId> sessions_;  // by process
    OracleCreates creates_{cluster_, text_, groups_, sessions_};
    std::vector<size_t> next_;
    std::vector<Time> paused_;                      // ranks, until then
    std::vector<Duration> deadlines_;               // of the rank's next call
    std::vector<bool> gone_;                        // ranks whose process has ended
    std::set<std::pair<uint32_t, uint32_t>> left_;  // rank, and group that it freed or aborted
    std::set<std::pair<uint64_t, int64_t>> taken_;
};

}  // namespace

TEST_CASE("programs of tests/oracle give what numpy gives, whatever the network does", "[.oracle]") {
    const char* name = std::getenv("NEXAR_SIM_PROGRAMS");
    REQUIRE(name != nullptr);
    std::ifstream file(name);
    const char* outcomes_name = std::getenv("NEXAR_SIM_OUTCOMES");
    std::ofstream outcomes(outcomes_name != nullptr ? outcomes_name : "/dev/null");
    uint64_t programs = 0;
    for (Text text; read_program(file, text); text = {}) {
        ++programs;
        for (const uint64_t seed : seeds(6)) {
            CAPTURE(text.seed, seed);
            Performance performance(seed * 31 + text.seed, text);
            performance.look();
            if (text.judged) performance.write_outcomes(outcomes);
        }
    }
    REQUIRE(programs > 0);
}

}  // namespace nexar::sim
