// See renderer.hpp.
#include "node/renderer.hpp"

#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::node {

Renderer::Renderer(loop::Wakeup& loop_wakeup)
    : loop_wakeup_(&loop_wakeup), thread_(loop::quiet_thread([this] { run(); })) {}

Renderer::~Renderer() {
    stopping_ = true;
    news_.notify();
    thread_.join();
}

void Renderer::start(Work work, control::Answer answer) {
    work_ = std::move(work);
    answer_ = std::move(answer);
    phase_ = Phase::work;
    news_.notify();
}

bool Renderer::step() {
    if (phase_ != Phase::done) return false;
    phase_ = Phase::idle;  // the answer may ask the next question
    const control::Answer answer = std::exchange(answer_, nullptr);
    answer(std::exchange(result_, {}));
    return true;
}

void Renderer::run() {
    while (true) {
        if (phase_ == Phase::work) {
            result_ = work_();
            work_ = nullptr;
            phase_ = Phase::done;
            loop_wakeup_->notify();
        } else if (stopping_) {
            return;
        } else {
            news_.wait_until([this] { return has_news(); });
        }
    }
}

}  // namespace nexar::node
