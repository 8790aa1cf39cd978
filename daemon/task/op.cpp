#include "task/op.hpp"

namespace nexar::detail {

const Error* OpsAwaiter::first_error() const {
    for (const Op* op : ops_)
        if (op->error_) return &*op->error_;
    return nullptr;
}

bool OpsAwaiter::await_ready() noexcept {
    for (const Op* op : ops_)
        if (!op->done_ || op->error_) return false;
    return true;
}

bool OpsAwaiter::suspend(TaskState& task) noexcept {
    task_ = &task;
    for (Op* op : ops_) {
        if (op->done_) continue;
        NEXAR_CHECK(op->waiter_ == nullptr);
        op->waiter_ = this;
        ++pending_;
    }
    if (pending_ > 0) return true;
    task.end_with(*first_error());  // every op is done and await_ready() was false: one has failed
    return true;
}

void OpsAwaiter::one_finished() {
    if (--pending_ == 0) task_->executor->push(this);
}

void OpsAwaiter::run() {
    if (const Error* error = first_error())
        task_->end_with(*error);
    else
        task_->handle.resume();
}

void TasksAwaiter::run() {
    if (--pending_ > 0) return;
    for (Task<>& t : tasks_) {
        auto result = t.take_result();
        if (!result) return task_->end_with(std::move(result).error());
    }
    task_->handle.resume();
}

}  // namespace nexar::detail
