// Cutting extent lists by logical position.
#pragma once

#include <cstddef>
#include <span>

#include "link/transfer.hpp"

namespace nexar::collectives {

// The run [offset, offset + bytes) of the logical memory that `extents` describes.
// Requires: the run lies within that memory.
link::Extents slice(std::span<const link::Extent> extents, size_t offset, size_t bytes);

}  // namespace nexar::collectives
