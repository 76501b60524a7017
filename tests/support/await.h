// For what comes soon, though nothing tells when.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "base/deadline.h"

namespace fo::test {

/// For what is over in a moment, on a machine that is busy.
inline constexpr base::Duration kLong = std::chrono::seconds(20);

/// Until `holds()`; a failure of the test when it never does.
template <typename Condition>
void await(const Condition& holds) {
  const base::Deadline deadline = base::Deadline::after(kLong);
  while (!holds()) {
    ASSERT_FALSE(deadline.expired());
    std::this_thread::yield();
  }
}

}  // namespace fo::test
