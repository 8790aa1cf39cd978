// See choice.hpp.
#include "collectives/choice.hpp"

#include <algorithm>
#include <optional>

namespace nexar::collectives {
namespace {

constexpr std::optional<Algorithm> alternative(OpKind kind) {
    switch (kind) {  // two rows of a kind do not compile
#define NEXAR_ALTERNATIVE(name, algorithm) \
    case OpKind::name:                     \
        return Algorithm::algorithm;
#include "operations.def"
        default:
            return std::nullopt;
    }
}

// One call. The order of the rules is that of the page: a later one that would leave nothing has no effect.
class Choice {
  public:
    Choice(const Shape& shape, const Layout& layout, const PlanTable& table, OpSize size)
        : shape_(shape), layout_(layout), table_(table), size_(size) {
        load_.nodes = layout.nodes();
        for (uint32_t node = 0; node < layout.nodes(); ++node)
            load_.ranks =
                std::max(load_.ranks, static_cast<uint32_t>(layout.ranks_on(NodeIndex(node)).size()));
        load_.bytes = size.bytes;
        load_.chunk_bytes = table.chunk_bytes;
        load_.rounds = (size.segments + table.lanes - 1) / table.lanes;
    }

    Candidates run() {
        if (shape_.partials == Partials::tree)
            add(deterministic(shape_.kind));
        else
            add_algorithms();
        exclude(&Choice::against_limits);
        exclude(&Choice::against_large_message);
        exclude(&Choice::against_ring_nodes);
        exclude(&Choice::against_family);
        Candidate* best = nullptr;
        for (Candidate& one : out_.all())
            if (one.why_not == nullptr && (best == nullptr || one.picoseconds < best->picoseconds))
                best = &one;
        prefer_usual(best);
        best->chosen = true;
        return out_;
    }

  private:
    // A model of straight lines is off by a fifth here and there; the limits of sizes are from measurements.
    // So what they say stands, unless another candidate is predicted to take less than three quarters.
    void prefer_usual(Candidate*& best) {
        Candidate* usual = nullptr;
        for (Candidate& one : out_.all())
            if (one.why_not == nullptr && one.algorithm == size_.usual && one.cls == size_.usual_class)
                usual = &one;
        if (usual == nullptr || best->picoseconds < usual->picoseconds / 4 * 3) return;
        for (Candidate& one : out_.all())
            if (one.why_not == nullptr && one.picoseconds < usual->picoseconds)
                one.why_not = "less than a quarter quicker than the choice by size";
        best = usual;
    }

    // Of equal predictions the first one is chosen: the ring's family, as it sends between neighbours only.
    void add_algorithms() {
        switch (shape_.kind) {
#define NEXAR_COLLECTIVE(number, name, NAME, summary, memory, in, out, in_place, reduction, root, agreed, \
                         limit, of, up_to, beyond)                                                        \
    case OpKind::name:                                                                                    \
        add(Algorithm::beyond);                                                                           \
        if (const auto third = alternative(OpKind::name)) add(*third);                                    \
        if (Algorithm::up_to != Algorithm::beyond) add(Algorithm::up_to);                                 \
        break;
#define NEXAR_GROUPING(number, name, ...) \
    case OpKind::name:                    \
        add(Algorithm::confirmed_gather); \
        break;
#include "operations.def"
            default:
                add(Algorithm::local);  // messages have no plan
        }
    }

    void add(Algorithm algorithm) {
        for (const Class cls : {Class::small, Class::bulk}) {
            Candidate& one = out_.list[out_.count++];
            one.algorithm = algorithm;
            one.cls = cls;
            one.terms = terms_of(algorithm, load_);
            one.picoseconds = picoseconds(one.terms, table_.model, cls);
        }
    }

    using Rule = const char* (Choice::*)(const Candidate&) const;  // null: it allows the candidate
    void exclude(Rule rule) {
        const auto is_left = [&](const Candidate& one) { return one.why_not == nullptr; };
        const auto all = out_.all();
        if (std::ranges::none_of(
                all, [&](const Candidate& one) { return is_left(one) && (this->*rule)(one) == nullptr; }))
            return;
        for (Candidate& one : all)
            if (is_left(one)) one.why_not = (this->*rule)(one);
    }

    // What the classes and a node's scratch memory allow. The bulk ring is always left.
    const char* against_limits(const Candidate& one) const {
        if (one.cls == Class::small && size_.bytes > size_.small_max) return "longer than small_bytes_max";
        const Family family = family_of(one.algorithm);
        if (size_.segments > 1 && (family == Family::doubling || family == Family::halving))
            return "several segments";
        // Each node has the inputs of all ranks before its own.
        if (one.algorithm == Algorithm::direct_scan && size_.bytes > table_.small_bytes_max / layout_.size())
            return "all inputs are longer than small_bytes_max";
        return nullptr;
    }
    const char* against_large_message(const Candidate& one) const {
        if (table_.large_message_bytes == 0 || size_.bytes < table_.large_message_bytes) return nullptr;
        const Family family = family_of(one.algorithm);
        const bool is_pipelined = family == Family::ring || family == Family::automatic;
        return is_pipelined && one.cls == Class::bulk ? nullptr : "not pipelined: large_message_bytes";
    }
    const char* against_ring_nodes(const Candidate& one) const {
        if (table_.ring_nodes_max == 0 || shape_.kind != OpKind::all_reduce) return nullptr;
        const bool is_ring = family_of(one.algorithm) == Family::ring;
        return is_ring == (layout_.nodes() <= table_.ring_nodes_max) ? nullptr : "ring_max_world";
    }
    const char* against_family(const Candidate& one) const {
        const Family family = family_of(one.algorithm);
        const bool is_allowed =
            table_.family == Family::automatic || family == Family::automatic || family == table_.family;
        return is_allowed ? nullptr : "algorithms";
    }

    const Shape& shape_;
    const Layout& layout_;
    const PlanTable& table_;
    OpSize size_;
    Load load_;
    Candidates out_;
};

}  // namespace

Candidates candidates_of(const Shape& shape, const Layout& layout, const PlanTable& table, OpSize size) {
    return Choice(shape, layout, table, size).run();
}

Algorithm deterministic(OpKind kind) {
    switch (kind) {
#define NEXAR_DETERMINISTIC(name, algorithm) \
    case OpKind::name:                       \
        return Algorithm::algorithm;
#include "operations.def"
        default:
            return Algorithm::local;  // no other kind has such partials
    }
}

}  // namespace nexar::collectives
