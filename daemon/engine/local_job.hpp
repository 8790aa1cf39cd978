// A worker job done on the spot: for jobs so small that handing them to a thread costs more than doing them.
#pragma once

#include "engine/ports.hpp"

namespace nexar::engine {

size_t total_bytes(const WorkerJob& job);  // read and written: what the job costs
void run_here(const WorkerJob& job);

}  // namespace nexar::engine
