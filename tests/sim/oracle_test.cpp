// Random programs that tests/oracle draws, with all inputs and results as numpy has them
// (tests/oracle/simulator.py has the format, and starts this): over networks that reorder, split, delay, and
// lose channels with what is in them. NEXAR_SIM_PROGRAMS names the file.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "family.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Bytes = std::vector<std::byte>;

struct Item {
    std::string what;  // collective, send, recv, wait
    uint64_t step = 0;
    uint32_t rank = 0, group = 0;
    engine::OpRequest request;
    std::optional<Bytes> in, out;
    uint64_t room = 0;
    int64_t number = -1;
    const Call* call = nullptr;
};

struct Made {
    uint32_t number = 0;
    std::string how;
    int64_t parent = -1, call = -1;
    std::vector<uint32_t> members;
};

struct Text {
    uint64_t seed = 0;
    std::vector<uint32_t> places;
    std::vector<Made> groups;
    std::vector<std::vector<Item>> items;  // of each rank
};

std::optional<Bytes> bytes_of(const std::string& word) {
    if (word == "-") return {};
    Bytes out;
    for (size_t i = 1; i + 1 < word.size(); i += 2)
        out.push_back(static_cast<std::byte>(std::stoul(word.substr(i, 2), nullptr, 16)));
    return out;
}

std::vector<uint64_t> numbers_of(const std::string& word) {
    std::vector<uint64_t> out;
    std::istringstream list(word == "-" ? "" : word);
    for (std::string one; std::getline(list, one, ',');) out.push_back(std::stoull(one));
    return out;
}

template <class T>
std::vector<T> rest_of(std::istream& line) {
    std::vector<T> out;
    for (T value{}; line >> value;) out.push_back(value);
    return out;
}

void read_collective(std::istream& line, Item& item) {
    uint32_t kind = 0, dtype = 0, op = 0;
    std::string counts, sends, receives, in, out;
    auto& d = item.request.descriptor;
    line >> kind >> dtype >> op >> d.count >> d.root >> d.match_id >> item.request.scalar >> counts >>
        sends >> receives >> in >> out;
    d.kind = static_cast<OpKind>(kind), d.dtype = static_cast<Dtype>(dtype), d.op = static_cast<ReduceOp>(op);
    if (counts != "-") item.request.counts = std::make_shared<const Counts>(*Counts::of(numbers_of(counts)));
    if (sends != "-")
        item.request.own_counts = std::make_shared<const OwnCounts>(*Counts::of(numbers_of(sends)),
                                                                    *Counts::of(numbers_of(receives)));
    item.in = bytes_of(in), item.out = bytes_of(out);
}

void read_message(std::istream& line, Item& item) {
    uint32_t dtype = 0;
    std::string tag, bytes;
    line >> dtype >> item.request.peer >> tag;
    item.request.descriptor = {item.what == "send" ? OpKind::send : OpKind::recv, static_cast<Dtype>(dtype),
                               ReduceOp::sum};
    item.request.any_tag = tag == "any";
    item.request.tag = item.request.any_tag ? 0 : std::stoull(tag);
    if (item.what == "send") {
        line >> item.number >> bytes;
        item.in = bytes_of(bytes);
    } else {
        line >> item.room >> item.number;
    }
    const uint64_t width = Reference::width(static_cast<Dtype>(dtype));
    item.request.descriptor.count = item.in ? item.in->size() / width : item.room;
    item.room *= width;
}

bool read_program(std::istream& file, Text& out) {
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        Item item;
        line >> item.what;
        if (item.what == "end") return true;
        if (item.what == "program") {
            line >> out.seed;
        } else if (item.what == "places") {
            out.places = rest_of<uint32_t>(line);
            out.items.resize(out.places.size());
        } else if (item.what == "group") {
            Made made;
            line >> made.number >> made.how >> made.parent >> made.call;
            made.members = rest_of<uint32_t>(line);
            out.groups.push_back(std::move(made));
        } else {
            if (item.what != "wait") line >> item.step;
            line >> item.rank;
            if (item.what != "wait") line >> item.group;
            if (item.what == "collective") read_collective(line, item);
            if (item.what == "send" || item.what == "recv") read_message(line, item);
            const uint32_t rank = item.rank;
            out.items.at(rank).push_back(std::move(item));
        }
    }
    return false;
}

class Performance {
  public:
    Performance(uint64_t seed, Text& text) : cluster_(seed, shape(seed)), text_(text) {
        const bool breaks = seed % 3 == 0;
        make_groups();
        for (int i = 0; breaks && i < 8; ++i)
            cluster_.clock.after(cluster_.clock.some(3ms), [this] {
                const auto a = static_cast<uint32_t>(cluster_.clock.random.below(nodes));
                cluster_.break_channel(a, (a + 1) % nodes, cluster_.clock.some(500us));
            });
        next_.assign(text.items.size(), 0);
        for (uint32_t rank = 0; rank < text.items.size(); ++rank) schedule(rank, 100us);
        const bool finished = cluster_.run();
        INFO(cluster_.unfinished());
        REQUIRE(finished);
    }
    void look() {
        for (std::vector<Item>& items : text_.items)
            for (const Item& item : items)
                if (item.what != "wait") look(item);
        cluster_.check();
    }

  private:
    static constexpr uint32_t nodes = 4;

    static ClusterShape shape(uint64_t seed) {
        ClusterShape out = shape_of(nodes);
        if (seed % 2 == 0) out.plan = {1, 256, 64, 128, 4096, 3};
        if (seed % 5 == 1) out.network.jitter = 3ms, out.worker_delay = 500us;
        if (seed % 5 == 2) out.network.room = 300'000, out.shard_hop = 100us;
        return out;
    }
    // Children of one call at once; its ranks come at random moments.
    void make_groups() {
        for (const Made& made : text_.groups) {
            if (groups_.contains(made.number)) continue;
            if (made.how != "open") {
                make_children(made);
                continue;
            }
            std::vector<uint32_t> placement;
            for (const uint32_t member : made.members) placement.push_back(text_.places[member]);
            groups_[made.number] = cluster_.make_group(placement);
        }
    }
    void make_children(const Made& first) {
        const auto& parent = text_.groups[static_cast<size_t>(first.parent)];
        Family family(cluster_, groups_.at(parent.number));
        const auto place_in = [](const Made& made, uint32_t member) {
            return std::ranges::find(made.members, member) - made.members.begin();
        };
        for (uint32_t rank = 0; rank < parent.members.size(); ++rank) {
            ChildCall wish{engine::no_colour, 0};
            for (const Made& made : text_.groups) {
                const auto at = place_in(made, parent.members[rank]);
                if (made.call == first.call && at < std::ssize(made.members)) wish = {made.number, at};
            }
            family.start(first.how == "dup" ? OpKind::group_dup : OpKind::group_split, rank, wish);
            cluster_.run_for(cluster_.clock.some(30us));
        }
        expect_end(cluster_);
        REQUIRE(family.all_ok());
        for (const Made& made : text_.groups)
            if (made.call == first.call)
                groups_[made.number] =
                    family.child_of(static_cast<uint32_t>(place_in(parent, made.members[0])));
    }
    void schedule(uint32_t rank, Duration pause) {
        ++cluster_.to_be_submitted;
        cluster_.clock.after(Duration(1) + cluster_.clock.some(pause), [this, rank, pause] {
            --cluster_.to_be_submitted;
            std::vector<Item>& items = text_.items[rank];
            const bool may = in_flight(rank) <= cluster_.clock.random.below(4);
            if (may) post_step(rank);
            if (next_[rank] < items.size()) schedule(rank, may ? 30us : std::min<Duration>(2 * pause, 2ms));
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
            if (in_flight(rank) > 0) return;
            ++next_[rank];
        }
        if (next_[rank] == items.size()) return;
        const uint64_t step = items[next_[rank]].step;
        for (; next_[rank] < items.size(); ++next_[rank]) {
            Item& item = items[next_[rank]];
            if (item.what == "wait" || item.step != step) return;
            post(item);
        }
    }
    void post(Item& item) {
        const Made& made = text_.groups[item.group];
        const auto rank =
            static_cast<uint32_t>(std::ranges::find(made.members, item.rank) - made.members.begin());
        const auto& d = item.request.descriptor;
        const bool source = d.kind == OpKind::broadcast && rank == d.root;
        const uint64_t out = item.what == "recv" ? item.room : item.out ? item.out->size() : 0;
        item.call = &cluster_.submit(groups_.at(item.group), rank, item.request, item.in.value_or(Bytes{}),
                                     out, source);
    }
    void look(const Item& item) {
        CAPTURE(item.what, item.step, item.rank, item.group, item.request.descriptor.text());
        REQUIRE(item.call != nullptr);
        CAPTURE(item.call->outcome.error.text);
        REQUIRE(item.call->ok());
        if (item.what == "recv") return look_at_message(item);
        if (!item.out) return;
        REQUIRE(item.call->out_at_end == *item.out);
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
    std::vector<size_t> next_;
    std::set<std::pair<uint64_t, int64_t>> taken_;
};

}  // namespace

TEST_CASE("programs of tests/oracle give what numpy gives, whatever the network does", "[.oracle]") {
    const char* name = std::getenv("NEXAR_SIM_PROGRAMS");
    REQUIRE(name != nullptr);
    std::ifstream file(name);
    uint64_t programs = 0;
    for (Text text; read_program(file, text); text = {}) {
        ++programs;
        for (const uint64_t seed : seeds(6)) {
            CAPTURE(text.seed, seed);
            Performance(seed * 31 + text.seed, text).look();
        }
    }
    REQUIRE(programs > 0);
}

}  // namespace nexar::sim
