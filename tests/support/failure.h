// The error that a call throws, for comparisons.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace fo::test {

struct Failure {
  base::ExitStatus status = base::ExitStatus::kOk;
  std::string message;
};

/// The status of the Error that `action` throws; kOk without one.
inline base::ExitStatus status_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.status();
  }
  return base::ExitStatus::kOk;
}

/// The status and message of the Error that `action` throws; fails the test if there is none.
inline Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return {error.status(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace fo::test
