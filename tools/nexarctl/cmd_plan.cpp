// nexarctl plan: what an operation would do. Computed here, by the same pure function that the daemons use; a
// daemon is only asked where the ranks of --group are.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "collectives/plan.hpp"
#include "core/operations.hpp"
#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/plan_model.hpp"
#include "nexarctl/plan_report.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"
#include "reduce/dtype.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;
using nexar::collectives::Kind;
using nexar::collectives::Layout;
using nexar::collectives::PlanTable;
using nexar::collectives::Shape;

namespace {

constexpr size_t pairs_shown_max = 64;
constexpr uint64_t ranks_max = 4096;

std::map<std::string, Kind> kinds() {
    std::map<std::string, Kind> out;
    for (const nexar::OpRow& row : nexar::operation_table::rows)
        if (row.collective) out[row.name] = row.kind;
    return out;
}

std::string rooted_names() {
    std::string out;
    for (const nexar::OpRow& row : nexar::operation_table::rows)
        if (row.rooted) out += (out.empty() ? "of " : ", ") + std::string(row.name);
    return out;
}

template <class Names>
std::vector<std::string> keys_of(const Names& names) {
    std::vector<std::string> out;
    for (const auto& [name, value] : names) out.push_back(name);
    return out;
}

std::map<std::string, uint32_t> element_sizes() {
    std::map<std::string, uint32_t> out;
    for (int code = 0; code < nexar::reduce::dtype_count; ++code) {
        const auto dtype = *nexar::reduce::dtype_from(code);
        out[std::string(name_of(dtype))] = static_cast<uint32_t>(size_of(dtype));
    }
    return out;
}

// Options that a group answers for.
constexpr std::array of_group = {"--nodes",    "--ranks-per-node", "--small",      "--large",   "--model",
                                 "--doubling", "--algorithms",     "--ring-nodes", "--segment", "--lanes"};

std::string with_group(const std::vector<std::string>& given) {
    for (const std::string& name : given)
        if (std::ranges::find(of_group, name) != of_group.end())
            return "plan: " + name +
                   " and --group: hosts, ranks and thresholds are the group's; allowed with " +
                   "--group: --op, --bytes, --dtype, --root";
    return "";
}

class Plan final : public Command {
    void declare(Options& options) override {
        options.choice("--op", op_, keys_of(kinds()), "the operation");
        options.bytes("--bytes", bytes_,
                      "what a call's count stands for: a rank's values, or one block of an operation with a "
                      "block for each rank");
        options.choice("--dtype", dtype_, keys_of(element_sizes()), "the element type");
        options.count("--root", root_, 0, ranks_max - 1, rooted_names());
        options.count("--nodes", nodes_, 1, ranks_max, "hosts");
        options.count("--ranks-per-node", ranks_per_node_, 1, ranks_max, "ranks on each");
        options.text("--group", group_,
                     "take hosts, ranks and thresholds from this group of the local daemon");
        options.bytes("--small", table_.small_bytes_max, "largest operation that travels with control");
        options.bytes("--doubling", table_.doubling_bytes_max,
                      "largest all_reduce by recursive doubling; of two hosts twice as much. Default: "
                      "what nexarctl tune found on this host, or else built in");
        options.bytes("--large", table_.large_message_bytes,
                      "from here on pipelined, whatever the cost model says; 0: it decides");
        options.count(
            "--ring-nodes", ring_nodes_, 0, 65536,
            "all_reduce: a ring on up to so many hosts, and not on more; 0: the cost model decides");
        options.text("--model", model_,
                     "the cost model: a file, as plan_model in a daemon's state_dir, or six numbers: " +
                         parameter_names() +
                         ". Default: what nexarctl tune measured on this host, or else built in");
        options.choice("--algorithms", algorithms_, {"automatic", "doubling", "halving", "ring"},
                       "what the cost model chooses from");
        options.bytes("--segment", table_.segment_bytes, "bytes of a segment");
        options.count("--lanes", lanes_, 1, nexar::collectives::lanes_max, "segments in flight at once");
    }
    int run(const Context& context) override {
        table_.lanes = static_cast<uint32_t>(lanes_);
        table_.ring_nodes_max = static_cast<uint32_t>(ring_nodes_);
        table_.family = nexar::collectives::family_named(algorithms_);
        if (!group_.empty())
            if (std::string wrong = with_group(context.given); !wrong.empty())
                return show_error(context, {exit_usage, std::move(wrong), "INVALID_ARGUMENT"});
        PlanQuestion question;
        bool by_model = false;
        if (group_.empty()) {
            const auto model = plan_model(model_, context.socket);
            if (!model)
                return show_error(context,
                                  {exit_usage, "plan: --model " + model.error().text, "INVALID_ARGUMENT"});
            table_.model = model->model.model;
            const bool is_given = std::ranges::find(context.given, "--doubling") != context.given.end();
            if (const uint64_t tuned = model->model.doubling_bytes_max; tuned > 0 && !is_given)
                table_.doubling_bytes_max = tuned;
            table_.doubling_bytes_max = std::min(table_.doubling_bytes_max, table_.small_bytes_max);
            question.model_from = model->from;
            by_model = model->decides;
        }
        if (by_model || table_.large_message_bytes > 0 || ring_nodes_ > 0 ||
            table_.family != nexar::collectives::Family::automatic)
            table_.version = nexar::plan_version_max;  // as a daemon so configured or tuned
        const uint32_t element = element_sizes().at(dtype_);
        if (bytes_ % element != 0)
            return show_error(
                context, {exit_usage,
                          std::to_string(bytes_) + " bytes are no whole number of elements; allowed for " +
                              dtype_ + ": multiples of " + std::to_string(element),
                          "INVALID_ARGUMENT"});
        if (!group_.empty()) {
            const Reply reply = ask_for_own(context, "plan", json{{"group", group_}}.dump());
            if (reply.exit != exit_ok) return show_error(context, reply);
            if (!read_group(json::parse(reply.text, nullptr, false), question))
                return show_error(context,
                                  {exit_failed, "the daemon's answer names no ranks", "PROTOCOL_ERROR"});
            question.model_from = "that of group " + group_;
        } else {
            if (nodes_ * ranks_per_node_ > ranks_max)
                return show_error(context,
                                  {exit_usage, "a group has at most 4096 ranks", "INVALID_ARGUMENT"});
            for (uint64_t i = 0; i < nodes_ * ranks_per_node_; ++i)
                question.node_of_rank.push_back(static_cast<uint32_t>(i / ranks_per_node_));
            question.table = table_;
            question.table.doubling_bytes_max = nexar::doubling_bytes_among(
                nodes_, table_.doubling_bytes_max, table_.small_bytes_max);  // as of a new group
        }
        question.op = op_;
        question.shape = {kinds().at(op_), bytes_ / element, element, static_cast<uint32_t>(root_)};
        const auto answer = plan_report(question);
        if (!answer) return show_error(context, {exit_usage, answer.error().text, "INVALID_ARGUMENT"});
        std::printf("%s", context.json ? (answer->dump(2) + "\n").c_str() : render_plan(*answer).c_str());
        return exit_ok;
    }

    std::string op_ = "all_reduce", dtype_ = "f32", group_, algorithms_ = "automatic", model_;
    uint64_t bytes_ = 64 << 20, nodes_ = 2, ranks_per_node_ = 1, root_ = 0, lanes_ = PlanTable().lanes;
    uint64_t ring_nodes_ = 0;
    PlanTable table_;
};

json candidates_of(const PlanQuestion& question, const Layout& layout) {
    json out = json::array();
    for (const auto& one : nexar::collectives::explain(question.shape, layout, question.table))
        out.push_back({{"algorithm", name_of(one.algorithm)},
                       {"class", one.cls == nexar::Class::bulk ? "bulk" : "small"},
                       {"starts", one.terms.starts},
                       {"wire_bytes", one.terms.wire_bytes},
                       {"memory_bytes", one.terms.memory_bytes},
                       {"all_bytes", one.terms.all_bytes},
                       {"predicted_us", static_cast<double>(one.picoseconds / 1000) / 1000},
                       {"why_not", one.why_not == nullptr ? json(nullptr) : json(one.why_not)},
                       {"chosen", one.chosen}});
    return out;
}

// What plan() chose from; empty: it went by size, or there is only one node.
std::string render_candidates(const json& p) {
    const json& list = list_of(p, "candidates");
    if (list.size() < 2) return "";
    Table table({"CANDIDATE", "CLASS", ">STARTS", ">ON THE WIRE", ">IN MEMORY", ">PREDICTED", ""});
    for (const json& one : list) {
        const bool chosen = flag_of(one, "chosen");
        table.row({text_of(one, "algorithm"), text_of(one, "class"), std::to_string(count_of(one, "starts")),
                   bytes_text(count_of(one, "wire_bytes")), bytes_text(count_of(one, "memory_bytes")),
                   milliseconds_text(number_of(one, "predicted_us") / 1000),
                   chosen                ? "<- chosen"
                   : has(one, "why_not") ? text_of(one, "why_not")
                                         : ""});
    }
    return "\n" + table.text();
}

}  // namespace

nexar::collectives::CostModel model_of(const json& m) {
    nexar::collectives::CostModel out;
    for (const auto& each : nexar::collectives::cost_parameters)
        each.in(out) = static_cast<uint32_t>(std::min<uint64_t>(count_of(m, each.name), UINT32_MAX));
    return out;
}

bool read_group(const json& answer, PlanQuestion& question) {
    for (const auto& node : list_of(answer, "node_of_rank"))
        if (node.is_number_unsigned()) question.node_of_rank.push_back(node.get<uint32_t>());
    for (const auto& node : list_of(answer, "nodes")) question.names.push_back(node_text(node));
    if (has(answer, "table")) {
        const json& t = answer["table"];
        PlanTable& table = question.table;
        table.version = has(t, "version") ? static_cast<uint32_t>(count_of(t, "version")) : 1;
        table.small_bytes_max = count_of(t, "small_bytes_max");
        table.doubling_bytes_max = count_of(t, "doubling_bytes_max");
        table.chunk_bytes = static_cast<uint32_t>(count_of(t, "chunk_bytes"));
        table.segment_bytes = count_of(t, "segment_bytes");
        table.lanes = static_cast<uint32_t>(count_of(t, "lanes"));
        if (has(t, "model")) table.model = model_of(t["model"]);
        table.large_message_bytes = count_of(t, "large_message_bytes");
        table.ring_nodes_max = static_cast<uint32_t>(count_of(t, "ring_nodes_max"));
        table.family = nexar::collectives::family_named(text_of(t, "algorithms"));
    }
    return !question.node_of_rank.empty();
}

nexar::Result<json> plan_report(const PlanQuestion& asked) {
    PlanQuestion question = asked;
    NEXAR_TRY_VOID(question.table.check());
    const Layout layout{std::span<const uint32_t>(question.node_of_rank)};
    if (question.shape.root >= layout.size())
        return nexar::fail(nexar::Errc::invalid_argument, "root " + std::to_string(question.shape.root) +
                                                              " is not below the number of ranks, " +
                                                              std::to_string(layout.size()));
    // With counts of its own for each rank: that of all ranks.
    nexar::Counts counts;
    if (has_counts(nexar::row_of(question.shape.kind))) {
        NEXAR_TRY(counts, nexar::Counts::of(std::vector<uint64_t>(layout.size(), question.shape.count)));
        question.shape.count = counts.sum();
        question.shape.counts = &counts;
    }
    if (has_own_counts(nexar::row_of(question.shape.kind))) {
        NEXAR_TRY(counts, nexar::Counts::of(std::vector<uint64_t>(layout.size(), question.shape.count)));
        question.shape.count = 0;
        question.shape.sends = {&counts, 1};
    }
    const auto plan = nexar::collectives::plan(question.shape, layout, question.table);
    const auto bytes = nexar::collectives::predict_bytes(plan, question.shape, layout);
    json pairs = json::array();
    uint64_t total = 0;
    for (uint32_t from = 0; from < layout.nodes(); ++from) {
        for (uint32_t to = 0; to < layout.nodes(); ++to) {
            const uint64_t sent = bytes[size_t{from} * layout.nodes() + to];
            if (sent == 0) continue;
            total += sent;
            json pair = {{"from", from}, {"to", to}, {"bytes", sent}};
            if (from < question.names.size()) pair["from_name"] = question.names[from];
            if (to < question.names.size()) pair["to_name"] = question.names[to];
            pairs.push_back(std::move(pair));
        }
    }
    return json{{"op", question.op},
                {"count", question.shape.count},
                {"element_bytes", question.shape.element_bytes},
                {"ranks", layout.size()},
                {"nodes", layout.nodes()},
                {"algorithm", name_of(plan.algorithm)},
                {"class", plan.cls == nexar::Class::bulk ? "bulk" : "small"},
                {"chunk_bytes", plan.chunk_bytes},
                {"segments", plan.segments},
                {"lanes", plan.lanes},
                {"phases_per_segment", plan.phases},
                {"total_bytes", total},
                {"plan_function", question.table.version},
                {"doubling_bytes_max", question.table.doubling_bytes_max},
                {"model", nexar::collectives::object_of<json>(question.table.model)},
                {"model_from", question.model_from},
                {"candidates", candidates_of(question, layout)},
                {"pairs", std::move(pairs)}};
}

std::string render_plan(const json& p) {
    const uint64_t segments = count_of(p, "segments");
    const nexar::OpRow* row = nexar::find_operation(std::string_view(text_of(p, "op")));
    const bool by_model = count_of(p, "plan_function") > nexar::plan_version_by_size;
    std::string out = aligned({
        {"operation", row != nullptr && !row->has_elements
                          ? text_of(p, "op")
                          : text_of(p, "op") + " of " + std::to_string(count_of(p, "count")) +
                                " elements of " + std::to_string(count_of(p, "element_bytes")) + " B"},
        {"group", std::to_string(count_of(p, "ranks")) + " ranks on " + std::to_string(count_of(p, "nodes")) +
                      " nodes"},
        {"algorithm", text_of(p, "algorithm")},
        {"chosen by", by_model ? "the cost model and the rules" : "size"},
        {"doubling", "all_reduce up to " + bytes_text(count_of(p, "doubling_bytes_max"))},
        {"cost model", text_of(p, "model_from")},
        {"class", text_of(p, "class") == "bulk" ? "bulk: through the shards" : "small: with control"},
        {"segments", std::to_string(segments) + ", " + std::to_string(count_of(p, "lanes")) +
                         " at once, up to " + std::to_string(count_of(p, "phases_per_segment")) +
                         " steps each"},
        {"chunks", bytes_text(count_of(p, "chunk_bytes"))},
        {"sent in all", bytes_text(count_of(p, "total_bytes"))},
    });
    const json& pairs = list_of(p, "pairs");
    if (pairs.empty()) return out + "\nnothing is sent between nodes\n";
    out += render_candidates(p);
    Table table({"FROM NODE", "TO NODE", ">BYTES", ""});
    for (size_t i = 0; i < std::min(pairs.size(), pairs_shown_max); ++i) {
        const auto name = [&](const char* number, const char* text) {
            const std::string known = text_of(pairs[i], text);
            return known.empty() ? std::to_string(count_of(pairs[i], number)) : known;
        };
        table.row({name("from", "from_name"), name("to", "to_name"),
                   std::to_string(count_of(pairs[i], "bytes")), bytes_text(count_of(pairs[i], "bytes"))});
    }
    out += "\n" + table.text();
    if (pairs.size() > pairs_shown_max)
        out += std::to_string(pairs.size() - pairs_shown_max) + " more pairs: --json shows all\n";
    return out;
}

std::unique_ptr<Command> make_plan() {
    return std::make_unique<Plan>();
}

}  // namespace nexarctl
