// What a call throws, as something to compare.
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

/// The status of the Error that `action` throws; kOk when there is none.
inline base::ExitStatus status_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.status();
  }
  return base::ExitStatus::kOk;
}

/// The status and message of the Error that `action` throws; a failure of the test when there is
/// none.
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
