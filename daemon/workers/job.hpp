// Runs one piece of a WorkerJob: bytes [begin, end) of its logical range, cut where any of its extent lists
// is cut. Pure; the worker threads and the tests use it.
#pragma once

#include <cstddef>

#include "engine/ports.hpp"

namespace nexar::workers {

size_t bytes_of(const engine::WorkerJob& job);
void run_piece(const engine::WorkerJob& job, size_t begin, size_t end);

}  // namespace nexar::workers
