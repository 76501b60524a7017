#include "pod/kube_names.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::pod {
namespace {

TEST(KubeNames, LabelsHaveTheirLimits) {
  EXPECT_TRUE(is_dns_label(std::string(63, 'a')));
  EXPECT_FALSE(is_dns_label(std::string(64, 'a')));
  for (const char* bad : {"", "-a", "a-", "A", "a_b", "a.b", "a b", "\xc3\xa4"}) {
    EXPECT_FALSE(is_dns_label(bad)) << bad;
  }
}

TEST(KubeNames, LabelValuesHaveTheirLimits) {
  for (const std::string& good :
       {std::string(), std::string("a_B.c-d"), std::string("0.1"), std::string(63, 'x')}) {
    EXPECT_TRUE(is_label_value(good)) << good;
  }
  for (const std::string& bad :
       {std::string("b c"), std::string("-x"), std::string("x-"), std::string(64, 'x')}) {
    EXPECT_FALSE(is_label_value(bad)) << bad;
  }
}

}  // namespace
}  // namespace fo::pod
