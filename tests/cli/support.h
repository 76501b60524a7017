// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace fo::cli::test {

struct Failure {
  base::ExitStatus status = base::ExitStatus::kOk;
  std::string message;
};
/// The status and message of the Error that `action` throws.
inline Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return {error.status(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// An environment variable for as long as this lives.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() { ::unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
};

}  // namespace fo::cli::test
