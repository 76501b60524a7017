// Waits for conditions without an event.
#pragma once

#include <gtest/gtest.h>

#include "base/deadline.h"
#include "os/pause.h"
#include "support/soon.h"

namespace fo::test {

/// Long enough on a busy machine for anything that takes a moment.
inline constexpr base::Duration kLong = std::chrono::seconds(20);

/// Pause between two looks at a condition, so that what it waits for has the CPU.
inline void pause_between_looks() { os::pause_for(std::chrono::milliseconds(1)); }

/// Waits until `holds()`; fails the test if it never does. It looks less often after some 20 ms,
/// because a look may be a request to a server.
template <typename Condition>
void await(const Condition& holds) {
  const base::Deadline deadline = soon();
  for (int looks = 0; !holds(); ++looks) {
    ASSERT_FALSE(deadline.expired());
    os::pause_for(std::chrono::milliseconds(looks < 20 ? 1 : 10));
  }
}

}  // namespace fo::test
