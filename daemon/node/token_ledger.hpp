// TokenLedger: an issuer's tokens in memory and on disk [K6]. Changes are answered when they are saved; those
// that come while the file is being written wait, and are saved together.
//
// Thread: the control loop's.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "admission/token.hpp"
#include "storage/port.hpp"

namespace nexar::node {

class TokenLedger {
  public:
    static constexpr size_t waiting_max = 256;
    static constexpr size_t together_max = 32;  // changes in one write: each copies the list

    // An error of the change is its answer, and it changes nothing.
    using Change = std::function<Result<void>(admission::TokenBook&)>;

    // `saved`: the list as the file has it; it is changed when the file was.
    TokenLedger(admission::TokenBook& saved, storage::Port& port) : saved_(&saved), port_(&port) {}

    storage::Saving change(Change change);
    const admission::TokenBook& saved() const { return *saved_; }
    // Requires: called in each turn. True: a change was answered.
    bool step();

  private:
    struct Waiting {
        Change change;
        storage::Saving saving;
    };
    struct Writing {
        admission::TokenBook book;
        std::vector<storage::Saving> changes;
        storage::Saving saving;
    };
    bool finish();
    bool start();

    admission::TokenBook* saved_;
    storage::Port* port_;
    std::deque<Waiting> waiting_;     // for the write in progress to end
    std::optional<Writing> writing_;  // none: nothing is in progress
};

}  // namespace nexar::node
