// See token_ledger.hpp.
#include "node/token_ledger.hpp"

#include <utility>

#include "node/identity.hpp"

namespace nexar::node {

storage::Saving TokenLedger::change(Change change) {
    if (waiting_.size() >= waiting_max)
        return storage::Saving::refused({Errc::table_full,
                                         "the disk is too slow: " + std::to_string(waiting_.size()) +
                                             " changes of the tokens wait for it",
                                         -1,
                                         -1,
                                         {}});
    storage::Saving saving;
    waiting_.push_back({std::move(change), saving});
    step();
    return saving;
}

bool TokenLedger::step() {
    bool answered = false;
    while (true) {
        if (finish())
            answered = true;
        else if (!writing_ && !waiting_.empty())
            answered |= start();
        else
            return answered;
    }
}

// True: the write in progress has ended.
bool TokenLedger::finish() {
    if (!writing_ || !writing_->saving.outcome()) return false;
    const storage::Outcome& outcome = *writing_->saving.outcome();
    // Also after an error: the list is what a restart would find [K4].
    if (outcome.applied > 0) *saved_ = std::move(writing_->book);
    for (storage::Saving& change : writing_->changes) change.settle(outcome);
    writing_.reset();
    return true;
}

// Applies what waits, and hands the list over if something has changed. True: a change was refused.
bool TokenLedger::start() {
    Writing next{*saved_, {}, {}};
    bool refused = false;
    for (size_t n = 0; n < together_max && !waiting_.empty(); ++n) {
        Waiting one = std::move(waiting_.front());
        waiting_.pop_front();
        admission::TokenBook changed = next.book;
        if (auto done = one.change(changed); !done) {
            one.saving.settle({std::move(done), 0});
            refused = true;
            continue;
        }
        next.book = std::move(changed);
        next.changes.push_back(std::move(one.saving));
    }
    if (next.changes.empty()) return refused;
    next.saving = port_->save({tokens_change(next.book)});
    writing_ = std::move(next);
    return refused;
}

}  // namespace nexar::node
