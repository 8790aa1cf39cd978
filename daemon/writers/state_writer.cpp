#include "writers/state_writer.hpp"

#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::writers {

StateWriter::StateWriter(const StateDir& state, loop::Wakeup& loop_wakeup)
    : state_(&state), loop_wakeup_(&loop_wakeup), thread_(loop::quiet_thread([this] { run(); })) {}

StateWriter::~StateWriter() {
    while (!queue_.empty()) {
        step();
        phase_.wait(Phase::work);
    }
    phase_ = Phase::stop;
    phase_.notify_all();
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
    phase_.notify_all();
}

void StateWriter::wait_for(const storage::Saving& saving) {
    while (!saving.outcome()) {
        step();
        phase_.wait(Phase::work);
    }
}

void StateWriter::run() {
    for (Phase now = phase_; now != Phase::stop; now = phase_) {
        if (now == Phase::work) {
            outcome_ = state_->apply(*batch_);
            phase_ = Phase::done;
            phase_.notify_all();
            loop_wakeup_->notify();
        } else {
            phase_.wait(now);
        }
    }
}

}  // namespace nexar::writers
