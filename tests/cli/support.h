// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "support/failure.h"

namespace fo::cli::test {

using fo::test::Failure;
using fo::test::failure_of;

/// Sets an environment variable while it lives.
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
