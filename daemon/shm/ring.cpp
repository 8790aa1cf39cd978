#include "shm/ring.hpp"

#include "shm/words.hpp"

namespace nexar::shm {

namespace {
// Positions wrap at 2^32, a multiple of every ring's length times 256: so a turn's number never skips.
uint8_t turn_of(uint32_t position, size_t entries) {
    return static_cast<uint8_t>(position / entries + 1);
}
}  // namespace

bool SubmissionProducer::try_push(const Entry& entry) {
    auto ring = view_.submission();
    std::atomic_ref<uint32_t> tail(view_.header().submit_tail);
    uint32_t at = tail.load(std::memory_order_relaxed);
    for (;;) {
        // Acquire: the daemon has read the entry before this thread overwrites it.
        const uint32_t head = load_acquire(view_.header().submit_head);
        if (at - head < ring.size()) {
            if (tail.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) break;
            continue;
        }
        // Full; or other threads moved the tail and the daemon its head meanwhile, and `head` is newer than
        // `at`.
        const uint32_t seen = at;
        at = tail.load(std::memory_order_relaxed);
        if (at == seen) return false;
    }
    // Release: pairs with the acquire in try_pop; the slot's descriptor comes with it.
    store_release(ring[at & (ring.size() - 1)], entry.pack(turn_of(at, ring.size())));
    return true;
}

bool SubmissionConsumer::has_entry() const {
    auto ring = view_.submission();
    const uint64_t raw = load_relaxed(ring[head_ & (ring.size() - 1)]);
    return static_cast<uint8_t>(raw >> 24) == turn_of(head_, ring.size());
}

std::optional<Entry> SubmissionConsumer::try_pop() {
    auto ring = view_.submission();
    const uint64_t raw = load_acquire(ring[head_ & (ring.size() - 1)]);
    if (static_cast<uint8_t>(raw >> 24) != turn_of(head_, ring.size())) return std::nullopt;
    ++head_;
    store_release(view_.header().submit_head, head_);
    return Entry::unpack(raw);
}

void CompletionProducer::push(uint32_t slot, uint32_t generation) {
    auto ring = view_.completion();
    const Entry entry{slot, generation, NEXAR_ENTRY_COMPLETION};
    store_relaxed(ring[tail_ & (ring.size() - 1)], entry.pack(turn_of(tail_, ring.size())));
    ++tail_;
    store_release(view_.header().completion_tail, tail_);
}

bool CompletionConsumer::behind() const {
    return load_acquire(view_.header().completion_tail) != next_;
}

std::optional<Entry> CompletionConsumer::try_pop() {
    auto ring = view_.completion();
    const uint32_t tail = load_acquire(view_.header().completion_tail);
    if (tail == next_) return std::nullopt;
    if (tail - next_ > ring.size()) {
        overrun_ = true;
        next_ = tail;
        return std::nullopt;
    }
    const uint64_t raw = load_acquire(ring[next_ & (ring.size() - 1)]);
    if (static_cast<uint8_t>(raw >> 24) != turn_of(next_, ring.size())) {
        // The daemon has overwritten the entry since the load of the tail: a whole turn of the ring passed.
        overrun_ = true;
        next_ = load_acquire(view_.header().completion_tail);
        return std::nullopt;
    }
    ++next_;
    return Entry::unpack(raw);
}

}  // namespace nexar::shm
