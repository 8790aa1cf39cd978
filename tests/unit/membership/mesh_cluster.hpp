// Whole membership machines on a simulated transport: dials, connections with ordered streams, closes, cuts.
// Every message passes through the codec. Addresses are "n<i>:1".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "failure_cluster.hpp"
#include "wire/codec.hpp"
#include "wiring.hpp"

namespace nexar::membership {

class MeshCluster {
  public:
    explicit MeshCluster(uint64_t seed) : random_(seed) {}

    // A new machine at address "n<at>:1", in place of what was there. Returns its number.
    unsigned start(unsigned identity, Incarnation life, const std::string& address,
                   std::vector<std::string> seeds, std::function<void(MembershipConfig&)> change = {});
    void kill(unsigned machine);  // its connections are reset at the others, dials to it are refused
    void vanish(unsigned machine) { machines_[machine].dead = true; }  // nobody is told
    void goodbye(unsigned machine);
    void cut(unsigned a, unsigned b) { cut_.insert({a, b}), cut_.insert({b, a}); }
    void run(Duration span);

    struct Machine {
        NodeId id;
        std::string address;
        std::unique_ptr<Membership> membership;
        bool dead = false;
        size_t sent = 0;                    // messages
        std::map<NodeId, ConnectionId> up;  // by PeerUp and PeerDown
        std::vector<PeerUp> ups;
        std::vector<PeerDown> downs;
        std::vector<Note> notes;
        std::vector<Dial> dials;
        std::vector<Time> dial_times;
        std::map<GroupId, Error> decided;
        std::map<NodeId, PeerIndex> index;
    };
    Machine& operator[](unsigned machine) { return machines_[machine]; }
    Time now() const { return now_; }
    bool noted(unsigned machine, std::string_view event) const;
    // Both ends of every pair use the two ends of one connection.
    bool consistent(unsigned a, unsigned b) const;

  private:
    struct Pipe {
        unsigned machine[2];
        ConnectionId id[2];
        bool open = true;
        Time last[2];  // streams are ordered
    };
    void dial(unsigned from, const Dial& dial);
    void drain(unsigned machine);
    void later(Duration delay, std::function<void()> what) { events_.emplace(now_ + delay, std::move(what)); }
    Pipe* pipe_of(unsigned machine, ConnectionId id, int& end);
    void carry(unsigned from, ConnectionId id, std::function<void(unsigned, ConnectionId)> what);
    Duration delay() { return Duration(100'000 + random_.below(2'000'000)); }
    bool is_cut(unsigned a, unsigned b) const { return cut_.contains({a, b}); }

    Random random_;
    Time now_{};
    uint64_t next_connection_ = 1;
    std::vector<Machine> machines_;
    std::vector<std::unique_ptr<Pipe>> pipes_;
    std::set<std::pair<unsigned, unsigned>> cut_;
    std::multimap<Time, std::function<void()>> events_;
};

}  // namespace nexar::membership
