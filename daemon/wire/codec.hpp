// Bytes to messages and back. The only decoder of control traffic: behind it every message is well formed,
// within wire/limits.hpp, and of a known kind.
#pragma once

#include <vector>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "wire/messages.hpp"

namespace nexar::wire {

std::vector<std::byte> encode(const Message& message);
Result<Message> decode(Bytes bytes);  // protocol_error naming the field and the limit

}  // namespace nexar::wire
