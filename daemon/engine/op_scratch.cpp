#include "engine/op_scratch.hpp"

#include <algorithm>
#include <utility>

namespace nexar::engine {

Result<void> OpScratch::start(TenantRef tenant, const Shape& shape) {
    tenant_ = std::move(tenant);
    shape_ = shape;
    for (uint32_t lane = 0; lane < shape.lanes; ++lane) next_.push_back(lane);
    return std::exchange(is_oldest_, false) ? set_oldest() : Result<void>{};
}

Result<void> OpScratch::set_oldest() {
    if (std::exchange(is_oldest_, true) || !counts(shape_.segment_bytes_max)) return {};
    if (lowest_to_begin() >= shape_.segments) return {};
    pass_permit_on();
    if (permit_) return {};
    auto charge = tenant_->charge_beyond(Resource::scratch_bytes, shape_.segment_bytes_max);
    if (!charge) return std::unexpected(std::move(charge).error());
    permit_ = std::move(*charge);
    pass_permit_on();
    return {};
}

uint32_t OpScratch::lowest_to_begin() const {
    const auto lowest = std::ranges::min_element(next_);
    return lowest == next_.end() ? shape_.segments : *lowest;
}

uint32_t OpScratch::lowest_open() const {
    const uint32_t to_begin = lowest_to_begin();
    return running_.empty() ? to_begin : std::min(to_begin, running_.begin()->first);
}

bool OpScratch::is_permitted(uint32_t segment) const {
    return permit_ && !permitted_ && segment == lowest_open();
}

bool OpScratch::may_begin(uint32_t segment, uint64_t bytes) const {
    return !counts(bytes) || is_permitted(segment) || share_->has_room(*tenant_);
}

void OpScratch::begin(uint32_t segment, uint64_t bytes) {
    ChargeRef charge;
    if (counts(bytes) && is_permitted(segment)) {
        charge = permit_;
        permitted_ = segment;
    } else if (counts(bytes)) {
        charge =
            std::allocate_shared<const Charge>(Recycled<Charge>(), tenant_, Resource::scratch_bytes, bytes);
    }
    running_.emplace(segment, Running{bytes, std::move(charge)});
    next_[segment % shape_.lanes] = segment + shape_.lanes;
}

void OpScratch::over(uint32_t segment) {
    const auto at = running_.find(segment);
    if (at->second.charge) share_->returned();
    running_.erase(at);
    if (permitted_ == segment) permitted_.reset();
    if (is_oldest_) pass_permit_on();
}

// To the lowest segment that is not over. Where that has a charge of its own, which is as large, it is the
// permit from now on: so the oldest collective is charged no more than any other.
void OpScratch::pass_permit_on() {
    if (permitted_) return;
    if (lowest_to_begin() >= shape_.segments) return drop_permit();
    const uint32_t lowest = lowest_open();
    const auto running = running_.find(lowest);
    if (running == running_.end()) {
        if (permit_) share_->open(this, lowest);
    } else if (running->second.charge && running->second.bytes >= shape_.segment_bytes_max) {
        drop_permit();
        permit_ = running->second.charge;
        permitted_ = lowest;
    }
}

void OpScratch::drop_permit() {
    if (permit_) share_->returned();
    permit_.reset();
    permitted_.reset();
}

void OpScratch::fail(const Error& error) {
    share_->fail(this, error);
    end();
}

// Running segments stay charged until they are over.
void OpScratch::end() {
    drop_permit();
    is_oldest_ = false;
}

void OpScratch::clear() {
    end();
    if (!running_.empty()) share_->returned();
    running_.clear();
}

}  // namespace nexar::engine
