// See renderer.hpp.
#include "node/renderer.hpp"

#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::node {

Renderer::Renderer(loop::Wakeup& loop_wakeup)
    : loop_wakeup_(&loop_wakeup), thread_(loop::quiet_thread([this] { run(); })) {}

Renderer::~Renderer() {
    phase_.wait(Phase::work);
    phase_ = Phase::stop;
    phase_.notify_all();
    thread_.join();
}

void Renderer::start(Work work, control::Answer answer) {
    work_ = std::move(work);
    answer_ = std::move(answer);
    phase_ = Phase::work;
    phase_.notify_all();
}

bool Renderer::step() {
    if (phase_ != Phase::done) return false;
    phase_ = Phase::idle;  // the answer may ask the next question
    const control::Answer answer = std::exchange(answer_, nullptr);
    answer(std::exchange(result_, {}));
    return true;
}

void Renderer::run() {
    for (Phase now = phase_; now != Phase::stop; now = phase_) {
        if (now != Phase::work) {
            phase_.wait(now);
            continue;
        }
        result_ = work_();
        work_ = nullptr;
        phase_ = Phase::done;
        phase_.notify_all();
        loop_wakeup_->notify();
    }
}

}  // namespace nexar::node
