#include "yaml/node.h"

#include <gtest/gtest.h>

namespace {

using fo::yaml::Node;

TEST(Node, KeepsTheOrderOfItsMembers) {
  Node map = Node::map();
  map.set("z", Node::integer(1));
  map.set("a", Node::integer(2));
  map.set("z", Node::integer(3));
  ASSERT_EQ(map.members().size(), 2U);
  EXPECT_EQ(map.members()[0].key, "z");
  EXPECT_EQ(map.members()[0].value.text(), "3");
  EXPECT_EQ(map.members()[1].key, "a");
}

TEST(Node, ANullMemberIsAsGoodAsNone) {
  Node map = Node::map({{"a", Node()}, {"b", Node::string("")}, {"c", Node::plain("~")}});
  EXPECT_EQ(map.find("a"), nullptr);
  EXPECT_NE(map.find("b"), nullptr) << "an empty string is no null";
  EXPECT_EQ(map.find("c"), nullptr);
  EXPECT_EQ(map.find("d"), nullptr);
}

TEST(Node, FindsNothingInWhatIsNoMap) {
  EXPECT_EQ(Node::string("a").find("a"), nullptr);
  EXPECT_EQ(Node::strings({"a"}).find("a"), nullptr);
  const Node map = Node::map({{"a", Node::map({{"b", Node::integer(1)}})}});
  ASSERT_NE(map.find_path({"a", "b"}), nullptr);
  EXPECT_EQ(map.find_path({"a", "b", "c"}), nullptr);
  EXPECT_EQ(map.find_path({"b", "a"}), nullptr);
}

TEST(Node, GrowsFromNull) {
  Node map;
  map["spec"]["containers"].push_back(Node::string("a"));
  map["spec"]["containers"].push_back(Node::string("b"));
  const Node expected =
      Node::map({{"spec", Node::map({{"containers", Node::strings({"a", "b"})}})}});
  EXPECT_TRUE(map.same_as(expected));
}

TEST(Node, RemovesAMember) {
  Node map = Node::map({{"a", Node::integer(1)}, {"b", Node()}});
  EXPECT_TRUE(map.remove("b"));
  EXPECT_FALSE(map.remove("b"));
  EXPECT_TRUE(map.remove("a"));
  EXPECT_TRUE(map.members().empty());
}

TEST(Node, IsTheSameWhateverTheOrderOfItsMembers) {
  const Node one = Node::map({{"a", Node::integer(1)}, {"b", Node::string("x")}});
  const Node other = Node::map({{"b", Node::string("x")}, {"a", Node::integer(1)}});
  EXPECT_TRUE(one.same_as(other));
  EXPECT_TRUE(one.same_as(Node::map({{"a", Node::integer(1)}, {"b", Node::plain("x")}})));
  EXPECT_FALSE(one.same_as(Node::map({{"a", Node::string("1")}, {"b", Node::string("x")}})));
  EXPECT_FALSE(one.same_as(Node::map({{"a", Node::integer(1)}, {"c", Node::string("x")}})));
  EXPECT_FALSE(one.same_as(Node::map({{"a", Node::integer(1)}})));
  EXPECT_TRUE(Node().same_as(Node::plain("NULL")));
  EXPECT_FALSE(Node().same_as(Node::string("")));
  EXPECT_FALSE(Node::strings({"a", "b"}).same_as(Node::strings({"b", "a"})));
}

}  // namespace
