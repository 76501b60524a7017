#include "pod/dgd/budget.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::pod {
namespace {

TEST(Budget, CountsValuesAtEveryLevel) {
  const yaml::Node five = yaml::Node::map(
      {{"a", yaml::Node::list({yaml::Node(), yaml::Node::map()})}, {"b", yaml::Node()}});
  EXPECT_TRUE(Budget(5, 2).take(five));
  EXPECT_FALSE(Budget(4, 2).take(five));
}

TEST(Budget, CountsTheTextOfKeysAndScalars) {
  const yaml::Node node = yaml::Node::map({{"key", yaml::Node::string("value")}});
  EXPECT_TRUE(Budget(2, 8).take(node));
  EXPECT_FALSE(Budget(2, 7).take(node));
  EXPECT_FALSE(Budget(2, 2).take(node));
}

TEST(Budget, IsForAllTogether) {
  Budget budget(3, 100);
  EXPECT_TRUE(budget.take(yaml::Node()));
  EXPECT_TRUE(budget.take(yaml::Node::list({yaml::Node()})));
  EXPECT_FALSE(budget.is_spent());
  EXPECT_FALSE(budget.take(yaml::Node()));
  EXPECT_TRUE(budget.is_spent());
}

TEST(Budget, OnceSpentTakesNothing) {
  Budget budget(100, 3);
  EXPECT_FALSE(budget.take(yaml::Node::string("four")));
  EXPECT_FALSE(budget.take(yaml::Node::string("one")));
  EXPECT_FALSE(budget.take(yaml::Node()));
}

}  // namespace
}  // namespace fo::pod
