// The cost model and the choice by it.
#include "collectives/choice.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "collectives/tuning.hpp"

namespace nexar::collectives {
namespace {

Layout hosts(uint32_t nodes, uint32_t ranks = 1) {
    std::vector<uint32_t> placement;
    for (uint32_t i = 0; i < nodes * ranks; ++i) placement.push_back(i / ranks);
    return Layout(placement);
}

Load load_of(uint32_t nodes, uint64_t bytes, uint32_t rounds = 1) {
    return {nodes, 1, bytes, 4096, rounds};
}

std::vector<Algorithm> all_algorithms() {
    std::vector<Algorithm> out;
#define NEXAR_ALGORITHM(name, text) out.push_back(Algorithm::name);
#include "operations.def"
    return out;
}

std::vector<Kind> all_kinds() {
    std::vector<Kind> out;
    for (const OpRow& row : operation_table::rows)
        if (row.collective) out.push_back(row.kind);
    return out;
}

PlanTable by_model() {
    PlanTable out;
    out.version = 3;
    return out;
}

PlanTable random_table(std::mt19937_64& random) {
    const auto below = [&](uint64_t most) { return static_cast<uint32_t>(1 + random() % most); };
    PlanTable t = by_model();
    t.model = {{below(start_ns_max), below(ps_per_byte_max)},
               {below(start_ns_max), below(ps_per_byte_max)},
               below(ps_per_byte_max),
               below(ps_per_byte_max)};
    t.large_message_bytes = random() % 2 ? uint64_t{1} << (6 + random() % 35) : 0;
    t.ring_nodes_max = random() % 2 ? below(8) : 0;
    t.family = static_cast<Family>(random() % families);
    return t;
}

Plan all_reduce(const PlanTable& table, uint32_t nodes, uint64_t bytes) {
    return plan({Kind::all_reduce, bytes / 4, 4, 0}, hosts(nodes), table);
}

}  // namespace

TEST_CASE("the terms are those of the papers, for two, three, four and six hosts") {
    using A = Algorithm;
    REQUIRE(terms_of(A::doubling_all_reduce, load_of(2, 1000)) == Terms{1, 1000, 1000, 2000});
    REQUIRE(terms_of(A::doubling_all_reduce, load_of(3, 1000)) == Terms{3, 3000, 2000, 4000});
    REQUIRE(terms_of(A::doubling_all_reduce, load_of(4, 1000)) == Terms{2, 2000, 2000, 8000});
    REQUIRE(terms_of(A::halving_all_reduce, load_of(4, 1000)) == Terms{4, 1500, 750, 6000});
    REQUIRE(terms_of(A::halving_all_reduce, load_of(6, 1000)) == Terms{6, 3500, 1750, 10'000});
    REQUIRE(terms_of(A::ring_all_reduce, load_of(4, 1000)) == Terms{6, 1500, 750, 6000});
    REQUIRE(terms_of(A::ring_reduce_scatter, load_of(2, 1000)) == Terms{1, 500, 500, 1000});
    REQUIRE(terms_of(A::binomial_broadcast, load_of(6, 1000)) == Terms{3, 3000, 0, 5000});
    REQUIRE(terms_of(A::chain_broadcast, load_of(6, 1000)) == Terms{5, 5000, 0, 5000});
    REQUIRE(terms_of(A::chain_reduce, load_of(4, 100'000)) == Terms{3, 108'192, 108'192, 300'000});
    REQUIRE(terms_of(A::bruck_all_gather, load_of(6, 1200)) == Terms{3, 1000, 0, 6000});
    REQUIRE(terms_of(A::direct_gather, load_of(6, 1200)) == Terms{5, 1000, 0, 1000});
    REQUIRE(terms_of(A::ring_all_reduce, load_of(4, 1000, 3)).starts == 18);
    REQUIRE(terms_of(A::ring_all_reduce, load_of(1, 1000)) == Terms{});
}

TEST_CASE("the bytes of all hosts are those that the algorithms send") {
    for (const Kind kind : all_kinds())
        for (uint32_t nodes = 2; nodes <= 9; ++nodes)
            for (const uint64_t count : {uint64_t{2520}, uint64_t{2520 * 100}}) {
                const Layout layout = hosts(nodes);
                const Shape shape{kind, count, 4, 0};
                const OpRow& row = row_of(kind);
                if (!row.has_elements || has_counts(row) || has_own_counts(row) || row.makes_groups) continue;
                const uint64_t bytes = count * 4 * row_blocks(row, nodes);
                for (const Candidate& one : explain(shape, layout, by_model())) {
                    Plan each = plan(shape, layout, by_model());
                    each.algorithm = one.algorithm;
                    uint64_t sent = 0;
                    for (const uint64_t pair : predict_bytes(each, shape, layout)) sent += pair;
                    CAPTURE(row.name, name_of(one.algorithm), nodes, count, bytes);
                    REQUIRE(one.terms.all_bytes == sent);
                }
            }
}

TEST_CASE("where the hosts share what carries them, fewer starts win, whatever each of them sends") {
    PlanTable t = by_model();
    t.model = {{20'000, 2000}, {1'000'000, 2000}, 100, 1};
    CHECK(all_reduce(t, 3, 32 << 10).algorithm == Algorithm::ring_all_reduce);
    t.model = {{20'000, 1}, {100'000, 1}, 100, 2000};
    CHECK(all_reduce(t, 3, 32 << 10).algorithm == Algorithm::doubling_all_reduce);
    CHECK(all_reduce(t, 3, 1 << 20).algorithm == Algorithm::ring_all_reduce);
}

TEST_CASE("a prediction never falls when bytes, hosts' parameters or rounds grow, and does not wrap",
          "[O5]") {
    std::mt19937_64 random(11);
    for (const Algorithm algorithm : all_algorithms())
        for (int n = 0; n < 200; ++n) {
            const uint64_t bytes = random() >> (random() % 64);
            Load load = load_of(2 + static_cast<uint32_t>(random() % 100), bytes);
            PlanTable t = random_table(random);
            CAPTURE(name_of(algorithm), load.nodes, bytes);
            const auto predicted = [&] {
                return picoseconds(terms_of(algorithm, load), t.model, Class::bulk);
            };
            uint64_t last = predicted();
            const auto grew = [&] {
                const uint64_t now = predicted();
                const bool holds = now >= last;
                last = now;
                return holds;
            };
            load.bytes = bytes + (UINT64_MAX - bytes) / 2;
            REQUIRE(grew());
            load.rounds = 7;
            REQUIRE(grew());
            t.model.bulk.start_ns = start_ns_max;
            REQUIRE(grew());
            t.model.bulk.ps_per_byte = ps_per_byte_max;
            REQUIRE(grew());
            t.model.memory_ps_per_byte = ps_per_byte_max;
            REQUIRE(grew());
            t.model.shared_ps_per_byte = ps_per_byte_max;
            REQUIRE(grew());
        }
}

TEST_CASE("of what the rules leave the least prediction is chosen, and plan does what explain shows",
          "[O1][O2][O4][O5]") {
    std::mt19937_64 random(12);
    for (int n = 0; n < 4000; ++n) {
        const PlanTable t = random_table(random);
        REQUIRE(t.check());
        const std::vector<Kind> kinds = all_kinds();
        Shape shape{kinds[random() % kinds.size()], random() >> (34 + random() % 30), 4, 0};
        const Layout layout =
            hosts(2 + static_cast<uint32_t>(random() % 9), 1 + static_cast<uint32_t>(random() % 4));
        const auto shown = explain(shape, layout, t);
        const Plan made = plan(shape, layout, t);
        CAPTURE(row_of(shape.kind).name, shape.count, layout.nodes(), made.text());
        REQUIRE(std::ranges::count_if(shown, &Candidate::chosen) == 1);
        const Candidate& best = *std::ranges::find_if(shown, &Candidate::chosen);
        REQUIRE((best.algorithm == made.algorithm && best.cls == made.cls));
        for (const Candidate& one : shown)
            REQUIRE((one.why_not != nullptr || one.picoseconds >= best.picoseconds));
        // The limits that no parameter lifts.
        const Family family = family_of(made.algorithm);
        REQUIRE((made.segments == 1 || (family != Family::doubling && family != Family::halving)));
        const uint64_t side = shape.count * 4 * row_blocks(row_of(shape.kind), layout.size());
        if (made.cls == Class::small && row_of(shape.kind).has_elements) REQUIRE(side <= t.small_bytes_max);
    }
}

TEST_CASE("cheap starts choose few bytes, cheap bytes few starts, cheap shards the bulk class") {
    PlanTable t = by_model();
    t.model = {{1000, 1000}, {1'000'000, 1000}, 1, 1};
    CHECK(all_reduce(t, 8, 64).algorithm == Algorithm::doubling_all_reduce);
    CHECK(all_reduce(t, 8, 64).cls == Class::small);
    CHECK(all_reduce(t, 8, 16 << 10).algorithm == Algorithm::halving_all_reduce);
    t.model.small.start_ns = 1;
    CHECK(all_reduce(t, 7, 64 << 10).algorithm == Algorithm::ring_all_reduce);  // the others fold
    t.model.bulk = {1, 1};
    CHECK(all_reduce(t, 7, 64 << 10).cls == Class::bulk);
    CHECK(all_reduce(t, 7, 64 << 20).algorithm == Algorithm::ring_all_reduce);
}

TEST_CASE("configured rules override the model, where they leave something", "[O2]") {
    PlanTable t = by_model();
    t.model = {{1000, 1000}, {1'000'000, 1000}, 1, 1};
    t.large_message_bytes = 128;
    CHECK(all_reduce(t, 8, 64).algorithm == Algorithm::doubling_all_reduce);
    CHECK(all_reduce(t, 8, 128).algorithm == Algorithm::ring_all_reduce);
    CHECK(all_reduce(t, 8, 128).cls == Class::bulk);
    CHECK(plan({Kind::broadcast, 32, 4, 0}, hosts(8), t).algorithm == Algorithm::chain_broadcast);
    t.large_message_bytes = 0;
    t.ring_nodes_max = 8;
    CHECK(all_reduce(t, 8, 64).algorithm == Algorithm::ring_all_reduce);
    CHECK(plan({Kind::broadcast, 32, 4, 0}, hosts(8), t).algorithm == Algorithm::binomial_broadcast);
    t.ring_nodes_max = 7;
    t.model.small.start_ns = 1;
    CHECK(all_reduce(t, 8, 64 << 10).algorithm != Algorithm::ring_all_reduce);
    CHECK(all_reduce(t, 8, 64 << 20).algorithm == Algorithm::ring_all_reduce);  // several segments
    t.ring_nodes_max = 0;
    t.family = Family::halving;
    CHECK(all_reduce(t, 8, 64).algorithm == Algorithm::halving_all_reduce);
    CHECK(plan({Kind::reduce, 16, 4, 0}, hosts(8), t).algorithm != Algorithm::local);
    t.family = Family::ring;
    CHECK(plan({Kind::reduce, 16, 4, 0}, hosts(8), t).algorithm == Algorithm::chain_reduce);
}

TEST_CASE("of older plan functions the model is no part of hash, check and plan", "[O3]") {
    PlanTable a, b;
    REQUIRE(a.version == 2);
    b.model = {{0, 0}, {0, 0}, 0, 0};
    b.large_message_bytes = 64;
    b.family = Family::ring;
    REQUIRE(a.hash(1) == b.hash(1));
    REQUIRE(b.check());
    REQUIRE(all_reduce(a, 4, 4096) == all_reduce(b, 4, 4096));
    b.version = 3;
    REQUIRE_FALSE(b.check());
}

TEST_CASE("no table gives a deterministic operation another algorithm: the order of its sums is fixed",
          "[O2]") {
    std::mt19937_64 random(13);
    for (int n = 0; n < 1000; ++n) {
        const PlanTable t = random_table(random);
        const Layout layout = hosts(2 + static_cast<uint32_t>(random() % 9), 2);
        for (const Kind kind :
             {Kind::all_reduce, Kind::reduce, Kind::reduce_scatter, Kind::reduce_scatterv}) {
            Shape shape{kind, 1 + (random() >> (40 + random() % 24)), 4, 0};
            shape.partials = Partials::tree;
            CAPTURE(row_of(kind).name, shape.count);
            REQUIRE(plan(shape, layout, t).algorithm == deterministic(kind));
        }
    }
}

TEST_CASE("what goes by size is shown beside what the built-in model says of the others", "[O4]") {
    for (const uint32_t version : {1u, 2u})
        for (const Kind kind : all_kinds())
            for (const uint64_t count : {0u, 1u, 3000u, 30'000u, 3'000'000u}) {
                PlanTable t;
                t.version = version;
                t.model = {{0, 0}, {0, 0}, 0, 0};  // as an older node sends it
                const Shape shape{kind, count, 4, 0};
                const Plan made = plan(shape, hosts(3, 2), t);
                const auto shown = explain(shape, hosts(3, 2), t);
                CAPTURE(version, row_of(kind).name, count, made.text());
                REQUIRE(std::ranges::count_if(shown, &Candidate::chosen) == 1);
                const Candidate& one = *std::ranges::find_if(shown, &Candidate::chosen);
                REQUIRE((one.algorithm == made.algorithm && one.cls == made.cls));
                for (const Candidate& other : shown)
                    REQUIRE((other.chosen || (other.why_not != nullptr && other.picoseconds > 0)));
            }
}

TEST_CASE("what is tuned survives its text, with a limit of recursive doubling or without", "[O7]") {
    const Tuning without{{{1, 2}, {3, 4}, 5, 6}, 0}, with{without.model, 4096};
    REQUIRE(*tuning_from(text_of(without)) == without);
    REQUIRE(text_of(with) == text_of(without.model) + "doubling_bytes_max = 4096\n");
    REQUIRE(*tuning_from(text_of(with)) == with);
    REQUIRE(*tuning_from("doubling_bytes_max = 4096\n" + text_of(without)) == with);
    const std::string whole = text_of(with);
    REQUIRE(*tuning_from(whole.substr(0, whole.size() - 1)) == with);  // a last line without its end
    for (const std::string& bad :
         {whole + "doubling_bytes_max = 4096\n", text_of(without) + "doubling_bytes_max = 0\n",
          text_of(without) + "doubling_bytes_max = 1073741825\n",
          text_of(without) + "doubling_bytes_max = -1\n", text_of(without) + "doubling_bytes_max = \n",
          text_of(without) + "doubling_bytes_max = 1x\n", text_of(without) + "doubling_bytes_max\n",
          std::string("doubling_bytes_max = 4096\n"), std::string()}) {
        CAPTURE(bad);
        REQUIRE_FALSE(tuning_from(bad));
    }
}

TEST_CASE("a model survives its text; a text that lacks, repeats or exceeds something is refused", "[O7]") {
    const CostModel model{{1, 2}, {start_ns_max, ps_per_byte_max}, 5, 6};
    const std::string text = text_of(model);
    REQUIRE(*model_from(text) == model);
    REQUIRE(text ==
            "small_start_ns = 1\nsmall_ps_per_byte = 2\nbulk_start_ns = 1000000000\n"
            "bulk_ps_per_byte = 100000000\nmemory_ps_per_byte = 5\nshared_ps_per_byte = 6\n");
    for (size_t cut = 0; cut + 1 < text.size(); ++cut) {
        CAPTURE(cut);
        REQUIRE_FALSE(model_from(text.substr(0, cut)));
    }
    for (const std::string& bad :
         {text + "small_start_ns = 1\n", text + "x = 1\n", std::string("\n"), "a" + text, text + "\n",
          "small_start_ns = 0\n" + text.substr(text.find('\n') + 1),
          "small_start_ns = 1000000001\n" + text.substr(text.find('\n') + 1),
          "small_start_ns = 99999999999\n" + text.substr(text.find('\n') + 1),
          "small_start_ns = -1\n" + text.substr(text.find('\n') + 1)}) {
        CAPTURE(bad);
        REQUIRE_FALSE(model_from(bad));
    }
}

}  // namespace nexar::collectives
