// Starts: what a member's start takes from the state directory and leaves there: the incarnation's counter,
// which grows with every start [K8], and the secret of the stateless resets.
//
// Thread: the control loop's.
#pragma once

#include <array>
#include <string>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "storage/port.hpp"
#include "writers/state_dir.hpp"

namespace nexar::node {

using ResetSecret = std::array<std::byte, 32>;

class Starts {
  public:
    static Result<Starts> read(const writers::StateDir& state);

    // The counter is one higher at every call; the nonce is random.
    Incarnation next();
    // To be saved before the incarnation is shown to anybody.
    storage::Batch files() const;
    // The secret for stateless resets, by which a restarted node closes its peers' old connections at once.
    // Each port has its own, so that no port resets another port's connections. Source: RFC 9000
    // section 10.3.
    ResetSecret reset_secret(uint16_t port) const;

  private:
    uint64_t counter_ = 0;  // of the last incarnation; 0: there was none
    Secret reset_secret_;
};

}  // namespace nexar::node
