// See loop_bulk.hpp.
#include "node/loop_bulk.hpp"

#include <utility>

namespace nexar::node {

Result<void> LoopBulk::open(shards::BulkEndpointConfig config, loop::Loop& loop) {
    NEXAR_TRY(endpoint_, shards::BulkEndpoint::open(std::move(config)));
    drive_.begin(*endpoint_, loop);
    return {};
}

void LoopBulk::close(Time now) {
    drive_.end();
    drive_.drop_events();
    if (endpoint_) endpoint_->close(now);
    endpoint_.reset();
}

link::TrafficCounts LoopBulk::traffic() const {
    return endpoint_ ? endpoint_->traffic()->read() : link::TrafficCounts{};
}

}  // namespace nexar::node
