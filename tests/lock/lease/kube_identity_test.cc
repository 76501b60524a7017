#include "lock/lease/kube_identity.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::lock {
namespace {

TEST(KubeIdentity, IdIsShownWithoutItsDigits) {
  const std::string digits = "0123456789abcdef";
  EXPECT_EQ(make_identity("engine-0", digits), "engine-0_0123456789abcdef");
  EXPECT_EQ(id_of_identity(make_identity("engine-0", digits)), "engine-0");
  EXPECT_EQ(id_of_identity(make_identity("a_b", digits)), "a_b");
  for (const char* whole : {"", "engine-0", "_0123456789abcdef", "a_0123456789abcdeF",
                            "a-0123456789abcdef", "host_8d3c1f0a-5b7e-4c1d-9a53-0d2f7c2b9e11"}) {
    EXPECT_EQ(id_of_identity(whole), whole);
  }
  EXPECT_EQ(id_of_identity("a\x1b[2Jb\nc"), "a[2Jb");
}

}  // namespace
}  // namespace fo::lock
