// Runs a WorkerJob: whole in the calling thread, for jobs so small that a hand-off to a worker costs more, or
// one piece of it, for workers.
#pragma once

#include <cstddef>

#include "engine/ports.hpp"

namespace nexar::engine {

size_t bytes_of(const WorkerJob& job);     // the length of its logical range
size_t total_bytes(const WorkerJob& job);  // read and written: the cost of the job
void run_here(const WorkerJob& job);
// Runs bytes [begin, end) of the logical range, in runs that lie within one extent of every list.
// Requires: all lists cover the same bytes; begin and end are multiples of the element size.
void run_piece(const WorkerJob& job, size_t begin, size_t end);

}  // namespace nexar::engine
