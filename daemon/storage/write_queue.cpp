#include "storage/write_queue.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::storage {
namespace {

size_t bytes_of(const Batch& batch) {
    size_t bytes = 0;
    for (const Change& change : batch) bytes += change.content ? change.content->size() : 0;
    return bytes;
}

bool changes(const Batch& batch, const std::string& file) {
    return std::ranges::any_of(batch, [&](const Change& change) { return change.file == file; });
}

}  // namespace

Saving WriteQueue::push(Batch batch) {
    const size_t bytes = bytes_of(batch);
    Entry* older = find_mergeable(batch);
    const size_t replaced = older ? bytes_of(older->batch) : 0;
    const bool has_place = older ? older->waiting.size() < merged_max : entries_.size() < batches_max;
    if (!has_place || bytes_ - replaced + bytes > bytes_max)
        return Saving::refused({Errc::table_full,
                                "the disk is too slow: " + std::to_string(entries_.size()) +
                                    " changes of the state directory wait for it",
                                -1,
                                -1,
                                {}});
    if (!older) older = &entries_.emplace_back();
    bytes_ += bytes - replaced;
    older->batch = std::move(batch);
    return older->waiting.emplace_back();
}

// The waiting batch of the same file alone, unless a later one changes that file together with others [K3].
WriteQueue::Entry* WriteQueue::find_mergeable(const Batch& batch) {
    if (batch.size() != 1) return nullptr;
    const size_t waiting_from = in_progress_ ? 1 : 0;
    for (size_t i = entries_.size(); i-- > waiting_from;)
        if (changes(entries_[i].batch, batch.front().file))
            return entries_[i].batch.size() == 1 ? &entries_[i] : nullptr;
    return nullptr;
}

const Batch* WriteQueue::begin() {
    if (in_progress_ || entries_.empty()) return nullptr;
    in_progress_ = true;
    return &entries_.front().batch;
}

void WriteQueue::end(Outcome outcome) {
    NEXAR_CHECK(in_progress_);
    for (Saving& saving : entries_.front().waiting) saving.settle(outcome);
    bytes_ -= bytes_of(entries_.front().batch);
    entries_.pop_front();
    in_progress_ = false;
}

}  // namespace nexar::storage
