// A test that cannot run on this machine is skipped, or fails if FO_MUST_RUN requires it, like
// skip_because in the Bats tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace fo::test {

/// Whether `kind` is one of FO_MUST_RUN, which are separated by commas.
inline bool must_run(const std::string& kind) {
  const char* kinds = std::getenv("FO_MUST_RUN");
  return kinds && ("," + std::string(kinds) + ",").find("," + kind + ",") != std::string::npos;
}

}  // namespace fo::test

/// Returns from the enclosing function, a test or its SetUp.
#define FO_SKIP(kind, reason)                                                                     \
  do {                                                                                            \
    if (::fo::test::must_run(kind)) FAIL() << "FO_MUST_RUN asks for " kind ", but: " << (reason); \
    GTEST_SKIP() << (reason);                                                                     \
  } while (false)
