// Waits for conditions without an event.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "base/deadline.h"

namespace fo::test {

/// Long enough on a busy machine for anything that takes a moment.
inline constexpr base::Duration kLong = std::chrono::seconds(20);

/// Waits until `holds()`; fails the test if it never does.
template <typename Condition>
void await(const Condition& holds) {
  const base::Deadline deadline = base::Deadline::after(kLong);
  while (!holds()) {
    ASSERT_FALSE(deadline.expired());
    std::this_thread::yield();
  }
}

}  // namespace fo::test
