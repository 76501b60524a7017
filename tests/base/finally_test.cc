#include "base/finally.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace fo::base {
namespace {

TEST(Finally, CallsAtTheEndOfItsScope) {
  std::string calls;
  {
    const Finally first([&] { calls += "a"; });
    const Finally second([&] { calls += "b"; });
    EXPECT_EQ(calls, "");
  }
  EXPECT_EQ(calls, "ba");
}

TEST(Finally, CallsAlsoAfterAnException) {
  int calls = 0;
  const auto fail = [&] {
    const Finally count([&] { ++calls; });
    throw std::runtime_error("");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace fo::base
