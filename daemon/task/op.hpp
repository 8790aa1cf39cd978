// Op: one pending outside operation that a task awaits. The outside finishes it exactly once; that queues the
// awaiting task and never runs it on the finisher's stack.
//
// Owner: the starter of the outside operation, until the Op is finished. The outside may still write into
// memory after the task has ended, so a task that ends early withdraws nothing by itself. The engine
// withdraws all transfers of an operation at once and waits until each of them has finished.
#pragma once

#include <span>
#include <vector>

#include "task/task.hpp"

namespace nexar {

class Op;

namespace detail {

// Waits for several Ops; a part of the awaiting frame. All of them are finished before the task resumes, also
// when one failed; then the first failure, in the order given, ends the task.
class OpsAwaiter final : public Runnable {
  public:
    explicit OpsAwaiter(std::span<Op* const> ops) : ops_(ops) {}
    OpsAwaiter(const OpsAwaiter&) = delete;
    OpsAwaiter& operator=(const OpsAwaiter&) = delete;

    bool await_ready() noexcept;
    template <class P>
    bool await_suspend(std::coroutine_handle<P> h) noexcept {
        return suspend(h.promise());
    }
    void await_resume() noexcept {}

    void one_finished();
    void run() override;

  private:
    bool suspend(TaskState& task) noexcept;
    const Error* first_error() const;

    std::span<Op* const> ops_;   // owned by the awaiting function
    TaskState* task_ = nullptr;  // the awaiting task; null until it has suspended
    size_t pending_ = 0;         // ops_ that are not finished
};

}  // namespace detail

class Op {
  public:
    Op() = default;
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;

    bool done() const { return done_; }
    const std::optional<Error>& error() const { return error_; }

    void finish(Result<void> result = {}) {
        NEXAR_CHECK(!done_);
        done_ = true;
        if (!result) error_ = std::move(result).error();
        if (waiter_) waiter_->one_finished();
    }

  private:
    friend class detail::OpsAwaiter;
    bool done_ = false;
    std::optional<Error> error_;            // set when it finished with a failure
    detail::OpsAwaiter* waiter_ = nullptr;  // null: no task has suspended on it
};

namespace detail {
struct OneOp {
    Op* op;
    OpsAwaiter awaiter{std::span<Op* const>(&op, 1)};
    explicit OneOp(Op* o) : op(o) {}
    OneOp(const OneOp&) = delete;
    bool await_ready() noexcept { return awaiter.await_ready(); }
    template <class P>
    bool await_suspend(std::coroutine_handle<P> h) noexcept {
        return awaiter.await_suspend(h);
    }
    void await_resume() noexcept {}
};
}  // namespace detail

// co_await done(op);  co_await all(ops) with ops a vector or span of Op* that the awaiting function owns.
inline detail::OneOp done(Op& op) {
    return detail::OneOp(&op);
}
inline detail::OpsAwaiter all(std::span<Op* const> ops) {
    return detail::OpsAwaiter(ops);
}

namespace detail {

// Runs several tasks at the same time, in the awaiting frame.
class TasksAwaiter final : public Runnable {
  public:
    explicit TasksAwaiter(std::span<Task<>> tasks) : tasks_(tasks) {}
    TasksAwaiter(const TasksAwaiter&) = delete;
    TasksAwaiter& operator=(const TasksAwaiter&) = delete;

    bool await_ready() noexcept { return tasks_.empty(); }
    template <class P>
    bool await_suspend(std::coroutine_handle<P> h) noexcept {
        task_ = &h.promise();
        pending_ = tasks_.size();
        for (Task<>& t : tasks_)
            t.start(*task_->executor, this);  // each queues this awaiter once, at its end
        return true;
    }
    void await_resume() noexcept {}
    void run() override;

  private:
    std::span<Task<>> tasks_;    // owned by the awaiting function
    TaskState* task_ = nullptr;  // the awaiting task; null until it has suspended
    size_t pending_ = 0;         // tasks_ that have not ended
};

}  // namespace detail

// co_await all(tasks): every task has ended before the caller resumes; the first failure, in order, ends it.
inline detail::TasksAwaiter all(std::span<Task<>> tasks) {
    return detail::TasksAwaiter(tasks);
}

}  // namespace nexar
