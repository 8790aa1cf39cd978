// Mapper: makes memory that clients pass fit to be touched by any thread [S19]: maps it; takes from its
// client the means to make a touch wait, by a seal and by pins; and only then hands it out. Each of these
// steps may wait for the client, so they are done on threads, those of one user one after the other.
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/tenant.hpp"
#include "local/memory.hpp"
#include "loop/lanes.hpp"
#include "loop/releaser.hpp"

namespace nexar::local {

class Mapper {
  public:
    struct Wanted {
        SessionId session;
        uint32_t region = 0;  // the session's number of it; 0: the control segment
        Fd memfd;
        std::shared_ptr<Mapping> lent{};  // of it; null: it is the client's, and not mapped yet
        uint64_t offset = 0, bytes = 0, bytes_max = 0;
        MappingHost host;
        // End when the memory is unmapped, or when it is not mapped.
        std::vector<ChargeRef> charges{};
        ChargeRef turn{};  // ends when this is done: so not more wait than this counts
    };
    struct Wish {  // for memory of the daemon's
        SessionId session;
        const char* name = "";
        uint64_t bytes = 0;
        MappingHost host;
        std::vector<ChargeRef> charges{};
        Fd answer;         // where the client waits for it
        ChargeRef turn{};  // as of a Wanted
    };
    // What a Wanted, or a Wish, has come to.
    struct Mapped {
        SessionId session;
        uint32_t region = 0;
        Result<std::shared_ptr<Mapping>> mapping;
        std::string unpinned;  // why a client may have huge pages made of the memory; empty: it may not
        Fd memfd{}, copy{}, answer{};  // of a Wish
        uint64_t lane = 0;             // the same
        bool looked = false;           // only that: look_for() has
    };

    // `threads_max`: users whose memory may be stuck at a time.
    static Result<std::unique_ptr<Mapper>> open(size_t threads_max);

    // The result comes by take(), also of what is refused.
    void map(Wanted wanted);
    void make(Wish wish);
    // Takes back memory that is in the client's hands: unmaps it when that does not wait for the client.
    void take_back(uint64_t lane, Mapping::Lent lent, ChargeRef turn);
    bool may_lend(uint64_t lane) const;  // false: too much of this user's waits
    // What clients have not returned.
    const std::shared_ptr<Unreturned>& unreturned() const;
    void look();  // at that, on a thread
    // Looks when the unmapper has unmapped what this user had given back before; take() says when.
    void look_for(SessionId session, loop::Releaser& unmapper, uint64_t lane);
    int ready_fd() const;        // readable while something is ready
    std::vector<Mapped> take();  // what is ready

    // Of one user; map() refuses more.
    static constexpr size_t waiting_max = 1024;

  private:
    struct State;
    Mapper(std::shared_ptr<State> state, loop::Lanes lanes)
        : state_(std::move(state)), lanes_(std::move(lanes)) {}

    std::shared_ptr<State> state_;  // also the threads'
    loop::Lanes lanes_;
};

}  // namespace nexar::local
