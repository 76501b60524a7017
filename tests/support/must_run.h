// A test that can't run on this machine: skipped, or failed where FO_MUST_RUN asks for it, as
// skip_because does in the Bats tests.
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

/// Ends the function, a test or its SetUp, that this is in.
#define FO_SKIP(kind, reason)                                                                     \
  do {                                                                                            \
    if (::fo::test::must_run(kind)) FAIL() << "FO_MUST_RUN asks for " kind ", but: " << (reason); \
    GTEST_SKIP() << (reason);                                                                     \
  } while (false)
