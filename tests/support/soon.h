// The deadline of a test's waits: long enough for a machine that is busy with other things.
#pragma once

#include <chrono>

#include "base/deadline.h"

namespace fo::test {

inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(30)); }

}  // namespace fo::test
