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

/// Waits until `holds()`; fails the test if it never does.
template <typename Condition>
void await(const Condition& holds) {
  const base::Deadline deadline = soon();
  while (!holds()) {
    ASSERT_FALSE(deadline.expired());
    pause_between_looks();
  }
}

}  // namespace fo::test
