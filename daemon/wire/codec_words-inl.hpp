// The words that messages share, outwards (fill) and inwards (read), and the Decoder that keeps the first
// complaint. A part of codec.cpp, cut off for its length only: it is included there, inside the namespace and
// after the headers of Cap'n Proto, and nowhere else.
#pragma once

// ---- Words, outwards ----

capnp::Data::Reader data_of(const void* bytes, size_t n) {
    return {static_cast<const kj::byte*>(bytes), n};
}
capnp::Data::Reader data_of(const NodeId& id) {
    return data_of(id.bytes.data(), id.bytes.size());
}
template <size_t N>
capnp::Data::Reader data_of(const std::array<uint8_t, N>& bytes) {
    return data_of(bytes.data(), N);
}

// Free text is cut and cleaned, so that what we say never makes a peer refuse the whole message.
struct CleanText {
    CleanText(const std::string& text, size_t bytes_max) : clean(clean_text(text, bytes_max)) {}
    capnp::Text::Reader reader() const { return {clean.c_str(), clean.size()}; }
    std::string clean;
};

template <class Builder>
void fill(Builder b, const Incarnation& v) {
    b.setCounter(v.counter);
    b.setNonce(v.nonce);
}
void fill(s::GroupId::Builder b, const GroupId& v) {
    b.setCreator(v.creator);
    b.setIncarnation(v.incarnation);
    b.setCounter(v.counter);
}
void fill(s::Error::Builder b, const Error& v) {
    b.setCode(static_cast<int32_t>(v.code));
    b.setText(CleanText(v.text, text_bytes_max).reader());
    b.setRank(v.rank);
    b.setOtherRank(v.other_rank);
    b.setNode(CleanText(v.node, hostname_bytes_max).reader());
    b.setPid(v.pid);
}
void fill(s::Timeouts::Builder b, const TimeoutsRecord& v) {
    b.setCollective(v.collective_ms);
    b.setBarrier(v.barrier_ms);
    b.setRpc(v.rpc_ms);
}
void fill(s::RequestId::Builder b, const RequestId& v) {
    b.setOrigin(data_of(v.origin));
    b.setNumber(v.number);
}
void fill(s::NodeRecord::Builder b, const NodeRecord& v) {
    NEXAR_CHECK(v.addresses.size() <= addresses_max);
    b.setNode(data_of(v.node));
    b.setHostname(CleanText(v.hostname, hostname_bytes_max).reader());
    auto list = b.initAddresses(static_cast<uint32_t>(v.addresses.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        NEXAR_CHECK(v.addresses[i].size() <= address_bytes_max);
        list.set(i, CleanText(v.addresses[i], address_bytes_max).reader());
    }
}
template <class Init>
void fill_records(Init init, const std::vector<NodeRecord>& records) {
    NEXAR_CHECK(records.size() <= roster_nodes_max);
    auto list = init(static_cast<uint32_t>(records.size()));
    for (uint32_t i = 0; i < list.size(); ++i) fill(list[i], records[i]);
}
void fill(s::PlanTable::Builder b, const PlanTableRecord& v) {
    b.setVersion(v.version);
    b.setSmallBytesMax(v.small_bytes_max);
    b.setDoublingBytesMax(v.doubling_bytes_max);
    b.setChunkBytes(v.chunk_bytes);
    b.setSegmentBytes(v.segment_bytes);
    b.setLanes(v.lanes);
    b.setBulkShards(v.bulk_shards);
}
void fill(s::Members::Builder b, const std::vector<GroupMemberRecord>& members) {
    NEXAR_CHECK(members.size() <= ranks_max);
    using Life = std::pair<NodeId, Incarnation>;
    std::map<Life, uint16_t> index;
    std::vector<Life> nodes;
    std::vector<uint64_t> features;
    auto index_of = [&](const NodeId& node, const Incarnation& life, uint64_t bits) {
        auto [at, added] = index.try_emplace({node, life}, static_cast<uint16_t>(nodes.size()));
        if (added) {
            nodes.emplace_back(node, life);
            features.push_back(bits);
        }
        NEXAR_CHECK(nodes.size() <= group_nodes_max);
        return at->second;
    };
    // An origin has no incarnation of its own and shares any line of its node, once all nodes have theirs: so
    // a list that was read, and had room in one message, has room again.
    auto index_of_origin = [&](const NodeId& origin) {
        const auto at = index.lower_bound({origin, {}});
        return at != index.end() && at->first.first == origin ? at->second : index_of(origin, {}, 0);
    };
    auto list = b.initList(static_cast<uint32_t>(members.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        list[i].setNumber(members[i].request.number);
        list[i].setRank(members[i].rank);
        list[i].setPid(members[i].pid);
        list[i].setNode(index_of(members[i].node, members[i].life, members[i].features));
    }
    for (uint32_t i = 0; i < list.size(); ++i) list[i].setOrigin(index_of_origin(members[i].request.origin));
    auto table = b.initNodes(static_cast<uint32_t>(nodes.size()));
    auto lives = b.initLives(static_cast<uint32_t>(nodes.size()));
    auto bits = b.initFeatures(static_cast<uint32_t>(nodes.size()));
    for (uint32_t i = 0; i < table.size(); ++i) {
        table.set(i, data_of(nodes[i].first));
        fill(lives[i], nodes[i].second);
        bits.set(i, features[i]);
    }
}

// ---- Words, inwards ----

class Decoder {
  public:
    bool ok() const { return !complaint_; }
    const std::string& complaint() const { return *complaint_; }
    void complain(std::string text) {
        if (!complaint_) complaint_ = std::move(text);
    }

    void limit(const char* field, uint64_t value, uint64_t max) {
        if (value > max)
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is at most " +
                     std::to_string(max));
    }
    template <size_t N>
    std::array<uint8_t, N> fixed(const char* field, capnp::Data::Reader data) {
        std::array<uint8_t, N> out{};
        if (data.size() == N)
            std::copy(data.begin(), data.end(), out.begin());
        else
            complain(std::string(field) + " has " + std::to_string(data.size()) + " bytes, not " +
                     std::to_string(N));
        return out;
    }
    NodeId node(const char* field, capnp::Data::Reader data) { return NodeId{fixed<32>(field, data)}; }
    std::string text(const char* field, capnp::Text::Reader text, size_t bytes_max) {
        limit(field, text.size(), bytes_max);
        if (!ok()) return {};
        std::string out(text.begin(), text.size());
        if (!is_clean_text(out)) complain(std::string(field) + " is not UTF-8 without control characters");
        return out;
    }
    int64_t rank(const char* field, int64_t value) {
        if (value < -1 || value >= static_cast<int64_t>(ranks_max))
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is -1 to " +
                     std::to_string(ranks_max - 1));
        return value;
    }
    // The code of what ends an operation, a message or a group: a failure that a client may be given.
    void failure(const char* what, Errc code) {
        if (code >= Errc::ok || code <= Errc::io)
            complain(std::string(what) + " with code " + std::string(name_of(code)) +
                     ", allowed are failures that a client may be given");
    }
    uint32_t real_rank(const char* field, uint32_t value) {
        limit(field, value, ranks_max - 1);
        return value;
    }

  private:
    std::optional<std::string> complaint_;
};

void read(Decoder&, s::Incarnation::Reader r, Incarnation& v) {
    v = {r.getCounter(), r.getNonce()};
}
void read(Decoder&, s::GroupId::Reader r, GroupId& v) {
    v = {r.getCreator(), r.getIncarnation(), r.getCounter()};
}
void read(Decoder& d, s::Error::Reader r, Error& v) {
    // Answers say so when nothing is wrong (ok), or that an attempt is over (pending).
    const int32_t code = r.getCode();
    const bool no_failure =
        code == static_cast<int32_t>(Errc::ok) || code == static_cast<int32_t>(Errc::pending);
    if (const auto failure = failure_from(code))
        v.code = *failure;
    else if (no_failure)
        v.code = static_cast<Errc>(code);
    else
        d.complain("error code " + std::to_string(code) + " is unknown");
    v.text = d.text("error text", r.getText(), text_bytes_max);
    v.rank = d.rank("error rank", r.getRank());
    v.other_rank = d.rank("error other_rank", r.getOtherRank());
    v.node = d.text("error node", r.getNode(), hostname_bytes_max);
    v.pid = r.getPid();
}
void read(Decoder& d, s::Timeouts::Reader r, TimeoutsRecord& v, int64_t least) {
    v = {r.getCollective(), r.getBarrier(), r.getRpc()};
    for (const int64_t ms : {v.collective_ms, v.barrier_ms, v.rpc_ms})
        if (ms < least || ms > timeout_ms_max)
            d.complain("a time-out is " + std::to_string(ms) + " ms, allowed is " + std::to_string(least) +
                       " to " + std::to_string(timeout_ms_max));
}
void read(Decoder& d, s::RequestId::Reader r, RequestId& v) {
    v.origin = d.node("request origin", r.getOrigin());
    v.number = r.getNumber();
}
void read(Decoder& d, s::NodeRecord::Reader r, NodeRecord& v) {
    v.node = d.node("record node", r.getNode());
    v.hostname = d.text("hostname", r.getHostname(), hostname_bytes_max);
    const auto list = r.getAddresses();
    d.limit("count of addresses", list.size(), addresses_max);
    if (!d.ok()) return;
    for (const auto address : list) v.addresses.push_back(d.text("address", address, address_bytes_max));
}
void read_records(Decoder& d, capnp::List<s::NodeRecord>::Reader list, std::vector<NodeRecord>& v) {
    d.limit("count of roster records", list.size(), roster_nodes_max);
    for (const auto r : list) {
        if (!d.ok()) return;
        read(d, r, v.emplace_back());
    }
}
void read(Decoder& d, s::PlanTable::Reader r, PlanTableRecord& v) {
    v = {r.getVersion(),      r.getSmallBytesMax(), r.getDoublingBytesMax(), r.getChunkBytes(),
         r.getSegmentBytes(), r.getLanes(),         r.getBulkShards()};
    d.limit("bulk_shards", v.bulk_shards, bulk_shards_max);
}
void read(Decoder& d, s::Members::Reader r, std::vector<GroupMemberRecord>& v) {
    const auto table = r.getNodes();
    const auto list = r.getList();
    const auto lives = r.getLives();
    const auto bits = r.getFeatures();
    d.limit("count of group nodes", table.size(), group_nodes_max);
    d.limit("count of group nodes' lives", lives.size(), table.size());
    d.limit("count of group nodes' features", bits.size(), table.size());
    d.limit("count of members", list.size(), ranks_max);
    if (!d.ok()) return;
    std::vector<NodeId> nodes;
    for (const auto node : table) nodes.push_back(d.node("group node", node));
    std::vector<Incarnation> life(nodes.size());
    for (uint32_t i = 0; i < lives.size(); ++i) read(d, lives[i], life[i]);
    std::vector<uint64_t> features(nodes.size());
    for (uint32_t i = 0; i < bits.size(); ++i) features[i] = bits[i];
    v.reserve(list.size());
    for (const auto m : list) {
        if (m.getNode() >= nodes.size() || m.getOrigin() >= nodes.size())
            return d.complain("a member names node " + std::to_string(std::max(m.getNode(), m.getOrigin())) +
                              " of a table of " + std::to_string(nodes.size()));
        v.push_back({{nodes[m.getOrigin()], m.getNumber()},
                     nodes[m.getNode()],
                     m.getRank(),
                     m.getPid(),
                     life[m.getNode()],
                     features[m.getNode()]});
    }
}
