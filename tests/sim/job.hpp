// Job: applications that open one group through their op slots, run the same list of collectives on it, and
// free it; every result is compared with the reference.
#pragma once

#include "app.hpp"
#include "program.hpp"

namespace nexar::sim {

class Job {
  public:
    Job(Cluster& cluster, std::string name, std::vector<App*> apps);

    void add(const OpDescriptor& words) { program_.add(words); }
    // From now on some calls are staged, a side or both, with 1 to `windows` windows: as `random` says; every
    // one of the member `always`, if there is one.
    void stage(Random& random, uint32_t windows, std::optional<size_t> always = {}) {
        random_ = &random, windows_max_ = windows, always_ = always;
    }
    // Explicit ranks in the order of the apps, or the rendezvous's choice.
    void start(Duration pause, size_t depth, bool automatic_ranks = false);

    // Empty: every member has opened, run everything with the right result, and freed the group.
    std::string wrong() const;
    // Of members that are alive: results of calls that ended well. Empty: right.
    std::string wrong_results() const;
    std::set<std::string> errors() const;  // of living members' calls
    bool over(size_t member) const { return members_[member].over; }
    size_t calls_ok() const;
    Time finished() const { return finished_; }

  private:
    struct Member {
        App* app = nullptr;
        uint32_t rank = 0, group = 0, region = 0;
        std::shared_ptr<std::vector<std::byte>> memory;
        size_t used = 0, next = 0, in_flight = 0;
        uint32_t segment_bytes = 0;
        bool over = false;
        std::string failure;
    };

    void on_open(Member& member, const Done& done);
    void proceed(Member& member);
    bool post(Member& member, size_t step);
    bool wants_stage(const Member& member);
    std::shared_ptr<StagedMemory> stage(Member& member, const OpDescriptor& d, std::vector<std::byte> in,
                                        uint64_t out_bytes, nexar_shm_descriptor& words);
    void leave(Member& member);
    uint64_t bytes_needed() const;

    Cluster& cluster_;
    std::string name_;
    Program program_;
    std::vector<Member> members_;
    std::deque<Call> calls_;
    Duration pause_{0};
    size_t depth_ = 1;
    Random* random_ = nullptr;  // nothing is staged
    uint32_t windows_max_ = 1;
    std::optional<size_t> always_;
    Time finished_{};
};

}  // namespace nexar::sim
