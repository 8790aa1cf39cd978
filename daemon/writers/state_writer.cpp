#include "writers/state_writer.hpp"

#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::writers {

StateWriter::StateWriter(const StateDir& state, loop::Wakeup& loop_wakeup)
    : state_(&state), loop_wakeup_(&loop_wakeup), thread_(loop::quiet_thread([this] { run(); })) {}

StateWriter::~StateWriter() {
    while (!queue_.empty()) {
        step();
        wait_for_disk();
    }
    stopping_ = true;
    news_.notify();
    thread_.join();
}

storage::Saving StateWriter::save(storage::Batch batch) {
    storage::Saving saving = queue_.push(std::move(batch));
    hand_over();
    return saving;
}

bool StateWriter::step() {
    if (phase_ != Phase::done) return false;
    phase_ = Phase::idle;
    queue_.end(std::exchange(outcome_, {}));
    hand_over();
    return true;
}

void StateWriter::hand_over() {
    if (phase_ != Phase::idle) return;
    batch_ = queue_.begin();
    if (!batch_) return;
    phase_ = Phase::work;
    news_.notify();  // not of a futex: its wake goes through all that waits in its hash bucket
}

void StateWriter::wait_for_disk() {
    end_.wait_until([this] { return phase_ != Phase::work; });
}

void StateWriter::wait_for(const storage::Saving& saving) {
    while (!saving.outcome()) {
        step();
        wait_for_disk();
    }
}

void StateWriter::run() {
    while (true) {
        if (phase_ == Phase::work) {
            outcome_ = state_->apply(*batch_);
            phase_ = Phase::done;
            end_.notify();
            loop_wakeup_->notify();
        } else if (stopping_) {
            return;
        } else {
            news_.wait_until([this] { return has_news(); });
        }
    }
}

}  // namespace nexar::writers
