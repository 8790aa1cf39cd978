// See catch_test_macros.hpp.
#pragma once

#include "catch2/catch_test_macros.hpp"
