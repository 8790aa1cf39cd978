#include "task/task.hpp"

namespace nexar {

void TaskState::finish() {
    ended = true;
    if (on_end) executor->push(on_end);
    if (!parent) return;
    if (error && !parent_wants_error) {
        parent->end_with(*error);  // its awaiting line fails, so it ends too; its owner destroys the frame
        return;
    }
    executor->push(parent);
}

void TaskState::end_with(Error why) {
    error = std::move(why);
    finish();
}

}  // namespace nexar
