// Rendezvous machines in virtual time: ordered streams with seeded delays, links that come and go, nodes that
// die. Every message passes through the codec. What every run must keep is checked after every event: an open
// is answered at most once, and all members of a group have the same list.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/random.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

NodeId node_id(unsigned n);  // ascending in n
constexpr Duration ms(int64_t n) {
    return std::chrono::milliseconds(n);
}
wire::GroupKey key_of(const std::string& name);
Config config_of(const NodeId& self, Incarnation incarnation = {});

class Cluster {
  public:
    Cluster(unsigned nodes, uint64_t seed, bool linked = true);

    void link(unsigned a, unsigned b);
    void unlink(unsigned a, unsigned b);
    // Their connection is cut, and only `sees` notices it; the other one with notice_cut().
    void cut(unsigned sees, unsigned other);
    void notice_cut(unsigned sees, unsigned other);
    void flap(unsigned a, unsigned b);  // both see a loss and a new connection
    // Another connection takes the place of theirs; only `sees_end` (if one of them) sees a loss.
    void replace(unsigned a, unsigned b, unsigned sees_end);
    void kill(unsigned node);
    // The node's next incarnation, which is connected to all that were, but to `unaware`: that one still
    // holds its connection to the old incarnation for good, until they are linked.
    void restart(unsigned node, unsigned unaware);

    // An open, answered or not. `pid` is its number, from 1.
    struct Opener {
        unsigned node = 0;
        wire::RequestId request;
        OpenSpec spec;
        Time deadline;
        std::optional<Error> failed;
        std::optional<GroupId> group;
        uint32_t rank = 0;
        bool withdrawn = false;
        Time answered{};
        bool answered_at_all() const { return failed || group; }
    };
    // Returns its number in openers().
    size_t open(unsigned node, const std::string& name, uint32_t size, int64_t rank = -1,
                Duration timeout = ms(5000), bool local = false, wire::TimeoutsRecord timeouts = {});
    // The same, with automatic rank, by the process with this number.
    size_t open_as(uint32_t pid, unsigned node, const std::string& name, uint32_t size);
    static std::string host_of(unsigned node) { return "h" + std::to_string(node * 7 % 5); }
    void withdraw(size_t opener);
    void end(size_t opener, const Error& error);  // [R37]
    void run(Duration span);
    bool step(Time end);  // one moment; false: nothing happens before `end`

    const std::vector<Opener>& openers() const { return openers_; }
    const wire::GroupPrepare& group(const GroupId& id) const { return groups_.at(id); }
    size_t groups() const { return groups_.size(); }
    size_t disowned() const { return disowned_; }
    size_t gone() const { return gone_; }
    bool alive(unsigned node) const { return !dead_[node]; }
    Time now() const { return now_; }
    Rendezvous& operator[](unsigned node) { return *machines_[node]; }
    size_t messages() const { return messages_; }
    size_t delivered() const { return delivered_; }
    // Until so many messages have been delivered, or nothing happens for a second.
    void run_until_delivered(size_t messages);
    // Every open of a living node was answered, and in time.
    void require_all_answered() const;

  private:
    struct Packet {
        unsigned from, to;
        Incarnation sender, receiver;
        std::vector<std::byte> bytes;
    };
    void fly(Packet packet);
    void replay(unsigned from, unsigned to);
    void drain(unsigned node);
    std::unique_ptr<Rendezvous> make_machine(unsigned node) const;
    void on_opened(unsigned node, const Opened& opened);

    Random random_;
    size_t relists_at_once_;  // few: what takes several turns is much less here than in a daemon
    Time now_{};
    std::vector<std::unique_ptr<Rendezvous>> machines_;
    std::vector<bool> dead_;
    std::vector<Incarnation> incarnations_;
    std::map<std::pair<unsigned, unsigned>, uint64_t> links_;  // (low, high) -> connection
    uint64_t next_connection_ = 1;
    std::map<std::pair<unsigned, unsigned>, Time> last_;
    std::map<std::pair<unsigned, unsigned>, std::vector<Packet>> logs_;  // what waits for a connection
    std::multimap<Time, Packet> flying_;
    std::vector<Opener> openers_;
    uint32_t next_pid_ = 0;  // of the next opener; 0: its number
    std::map<GroupId, wire::GroupPrepare> groups_;
    size_t disowned_ = 0, gone_ = 0, messages_ = 0, delivered_ = 0, stop_at_ = 0;
};

}  // namespace nexar::rendezvous
