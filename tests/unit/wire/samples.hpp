// One of each message, every field different from its default and from the others; shared by codec tests.
#pragma once

#include <vector>

#include "wire/messages.hpp"

namespace nexar::wire {

std::vector<Message> sample_messages();

}  // namespace nexar::wire
