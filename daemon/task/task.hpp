// Task<T>: a coroutine that begins, waits for things, and ends. Lazy, owned by one variable. Awaiting a
// failure ends the awaiting function with that failure, as `return error` would, up to the nearest
// `as_result`. A completion never runs a task, it queues the task (Executor). Thread: one.
//
// No symmetric transfer: a child runs on its parent's stack until it first suspends. When the child ends
// without suspending, the parent continues; a million children in a loop need no tail call to stay shallow.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/check.hpp"
#include "core/recycled.hpp"
#include "core/result.hpp"
#include "task/executor.hpp"

namespace nexar {

// What every task frame has, whatever its result type.
struct TaskState : Runnable {
    std::coroutine_handle<> handle;
    Executor* executor = nullptr;
    TaskState* parent = nullptr;      // the awaiting task, once this one has suspended; null: a root task
    bool parent_wants_error = false;  // the parent awaits as_result(): resume it also with a failure
    bool ended = false;
    std::optional<Error> error;  // set when the task ended with a failure
    Runnable* on_end = nullptr;  // of a root task: queued when it has ended; null: nothing waits

    void run() override { handle.resume(); }
    // Ends a task that is suspended at an await which failed, and its parents up to one that wants the error.
    void end_with(Error why);
    void finish();

  protected:
    ~TaskState() = default;
};

template <class T>
class [[nodiscard]] Task;

namespace detail {

template <class T>
struct TaskPromiseBase : TaskState, RecycledObject {
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
        bool await_ready() noexcept { return false; }
        template <class P>
        void await_suspend(std::coroutine_handle<P> h) noexcept {
            h.promise().finish();
        }
        void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void unhandled_exception() noexcept { std::terminate(); }  // no code of this repository throws
};

template <class T>
struct TaskPromise final : TaskPromiseBase<T> {
    std::optional<T> value;
    Task<T> get_return_object();
    void return_value(T v) { value.emplace(std::move(v)); }
    // `co_return fail(...)` ends the task with a failure.
    void return_value(std::unexpected<Error> e) { this->error = std::move(e).error(); }
    // `co_return result` passes a Result on.
    void return_value(Result<T> r) {
        if (r)
            value.emplace(std::move(*r));
        else
            this->error = std::move(r).error();
    }
    Result<T> take() {
        if (this->error) return std::unexpected(*this->error);
        return std::move(*value);
    }
};

template <>
struct TaskPromise<void> final : TaskPromiseBase<void> {
    Task<void> get_return_object();
    void return_value(Result<void> r) {
        if (!r) this->error = std::move(r).error();
    }
    Result<void> take() {
        if (this->error) return std::unexpected(*this->error);
        return {};
    }
};

}  // namespace detail

// A Task<> ends with `co_return ok();` or with `co_return fail(...)`.
inline Result<void> ok() {
    return {};
}

template <class T = void>
class [[nodiscard]] Task {
  public:
    using promise_type = detail::TaskPromise<T>;

    Task() = default;
    explicit Task(std::coroutine_handle<promise_type> h) : handle_(h) {}
    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~Task() { reset(); }

    explicit operator bool() const { return handle_ != nullptr; }
    bool ended() const { return handle_ && handle_.promise().ended; }
    Result<T> take_result() {
        NEXAR_CHECK(ended());
        return handle_.promise().take();
    }
    // Starts a root task; its end queues `on_end` on the executor, also when it ends at once.
    void start(Executor& executor, Runnable* on_end = nullptr) {
        TaskState& s = handle_.promise();
        s.executor = &executor;
        s.on_end = on_end;
        s.handle = handle_;
        handle_.resume();
    }
    std::coroutine_handle<promise_type> handle() const { return handle_; }

  private:
    void reset() {
        if (handle_) handle_.destroy();
        handle_ = nullptr;
    }
    std::coroutine_handle<promise_type> handle_;  // null: moved from, or never a task
};

namespace detail {

template <class T>
Task<T> TaskPromise<T>::get_return_object() {
    auto h = std::coroutine_handle<TaskPromise<T>>::from_promise(*this);
    this->handle = h;
    return Task<T>(h);
}
inline Task<void> TaskPromise<void>::get_return_object() {
    auto h = std::coroutine_handle<TaskPromise<void>>::from_promise(*this);
    this->handle = h;
    return Task<void>(h);
}

template <class T, bool wants_error>
struct TaskAwaiter {
    Task<T> child;

    bool await_ready() noexcept { return false; }
    template <class P>
    bool await_suspend(std::coroutine_handle<P> h) noexcept {
        TaskState& parent = h.promise();
        auto& state = child.handle().promise();
        state.executor = parent.executor;
        child.handle().resume();
        if (!state.ended) {  // it has suspended: its end will queue the parent
            state.parent = &parent;
            state.parent_wants_error = wants_error;
            return true;
        }
        if (wants_error || !state.error) return false;
        parent.end_with(*state.error);  // the child failed: the parent ends with its error
        return true;
    }
    auto await_resume() {
        if constexpr (wants_error) {
            return child.take_result();
        } else if constexpr (!std::is_void_v<T>) {
            return std::move(*child.take_result());
        }
    }
};

template <class T>
struct AsResult {
    Task<T> task;
};

}  // namespace detail

// co_await as_result(task): the failure comes back as a value instead of ending this function.
template <class T>
detail::AsResult<T> as_result(Task<T> task) {
    return {std::move(task)};
}
template <class T>
auto operator co_await(Task<T>&& task) {
    return detail::TaskAwaiter<T, false>{std::move(task)};
}
template <class T>
auto operator co_await(detail::AsResult<T>&& r) {
    return detail::TaskAwaiter<T, true>{std::move(r.task)};
}

}  // namespace nexar
