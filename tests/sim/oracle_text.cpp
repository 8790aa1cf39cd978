#include "oracle_text.hpp"

#include <sstream>
#include <string_view>

#include "reference.hpp"

namespace nexar::sim {
namespace {

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

void read_create(std::istream& line, Item& item) {
    int64_t milliseconds = 0;
    std::string list;
    line >> item.parent >> item.tag >> milliseconds >> list;
    if (milliseconds >= 0) item.timeout = milliseconds * 1ms;
    for (const uint64_t rank : numbers_of(list)) item.list.push_back(static_cast<uint32_t>(rank));
}

}  // namespace

bool read_program(std::istream& file, Text& out) {
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        Item item;
        line >> item.what;
        if (item.what == "end") return true;
        if (item.what == "program") {
            line >> out.seed >> out.judged;
        } else if (item.what == "places") {
            out.places = rest_of<uint32_t>(line);
            out.items.resize(out.places.size());
        } else if (item.what == "processes") {
            out.processes = rest_of<uint32_t>(line);
        } else if (item.what == "group") {
            Made made;
            line >> made.number >> made.how >> made.parent >> made.call;
            made.members = rest_of<uint32_t>(line);
            out.groups.push_back(std::move(made));
        } else {
            if (item.what != "wait") line >> item.step;
            line >> item.rank;
            item.again = item.what.ends_with("_again");
            if (item.again) item.what.resize(item.what.size() - std::string_view("_again").size());
            if (item.is_call() || item.is_create() || item.what == "lose") line >> item.group;
            if (item.is_create()) read_create(line, item);
            if (item.what == "collective") read_collective(line, item);
            if (item.what == "send" || item.what == "recv") read_message(line, item);
            if (item.what == "deadline" || item.what == "pause") line >> item.time;
            if (item.what == "lose") line >> item.how, out.lost = item.rank;
            const uint32_t rank = item.rank;
            out.items.at(rank).push_back(std::move(item));
        }
    }
    return false;
}

}  // namespace nexar::sim
