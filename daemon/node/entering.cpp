// See entering.hpp.
#include "node/entering.hpp"

namespace nexar::node {

Entering::Entering(storage::Port& port, storage::Batch files, storage::Batch undo)
    : port_(&port), undo_(std::move(undo)), saving_(port.save(std::move(files))) {}

std::optional<Result<void>> Entering::poll() {
    const storage::Outcome* outcome = saving_.outcome();
    if (!outcome) return std::nullopt;
    if (!failure_) {
        if (outcome->result) return Result<void>{};
        give_up(outcome->result.error());
        return poll();
    }
    if (!outcome->result)
        failure_->text += "; and what was written could not be removed: " + outcome->result.error().text;
    return fail(*failure_);
}

void Entering::give_up(Error why) {
    failure_ = std::move(why);
    saving_ = port_->save(undo_);
}

}  // namespace nexar::node
