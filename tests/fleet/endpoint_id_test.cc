#include "fleet/record/endpoint_id.h"

#include <gtest/gtest.h>

#include "fleet/card/digest.h"

namespace fo::fleet {
namespace {

constexpr const char* kHash = "0123456789abcdef";

TEST(EndpointId, IsThreeDnsLabels) {
  const auto id = parse_endpoint_id("llama-0123456789abcdef/worker-decode/generate");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->name_space, "llama-0123456789abcdef");
  EXPECT_EQ(id->component, "worker-decode");
  EXPECT_EQ(id->endpoint, "generate");
  EXPECT_EQ(to_string(*id), "llama-0123456789abcdef/worker-decode/generate");
  EXPECT_TRUE(parse_endpoint_id(std::string(63, 'a') + "/b/1"));
}

TEST(EndpointId, RefusesOtherTexts) {
  const std::string texts[] = {"",
                               "/",
                               "a",
                               "a/b",
                               "a/b/",
                               "/b/c",
                               "a//c",
                               "a/b/c/",
                               "a/b/c/d",
                               "a/b/-c",
                               "a/b-/c",
                               "A/b/c",
                               "a/b/c_d",
                               "a.b/c/d",
                               "a/b/c ",
                               "a/b/c\n",
                               "a/b/*",
                               "a/b/\xc3\xa9",
                               std::string("a/b/c\0", 6),
                               std::string(64, 'a') + "/b/c"};
  for (const std::string& text : texts) EXPECT_FALSE(parse_endpoint_id(text)) << text;
}

TEST(EndpointId, IsComparedAsAWhole) {
  const auto id = parse_endpoint_id("llama-0123456789abcdef/worker/generate");
  EXPECT_EQ(id, parse_endpoint_id("llama-0123456789abcdef/worker/generate"));
  for (const char* other :
       {"llama-0123456789abcdef/worker/generate2", "llama-0123456789abcdef/worker-decode/generate",
        "llama-70b-0123456789abcdef/worker/generate", "llama/worker/generate"}) {
    EXPECT_NE(id, parse_endpoint_id(other)) << other;
  }
}

TEST(EndpointId, HasAComponentOfTypeAndSubtype) {
  EXPECT_EQ(component_name("worker", ""), "worker");
  EXPECT_EQ(component_name("worker", "decode"), "worker-decode");
  EXPECT_EQ(component_name("encoder", "decode-long"), "encoder-decode-long");
  EXPECT_EQ(component_name("", ""), std::nullopt);
  EXPECT_EQ(component_name("", "decode"), std::nullopt);
  EXPECT_EQ(component_name("two-words", ""), std::nullopt);
  EXPECT_EQ(component_name("Worker", ""), std::nullopt);
  EXPECT_EQ(component_name("worker", "a/b"), std::nullopt);
  EXPECT_EQ(component_name("worker", std::string(57, 'a')), std::nullopt);
}

TEST(NamespacePrefix, ReplacesDotsAndShortensLongNames) {
  EXPECT_EQ(namespace_prefix("llama-3.1-70b"), "llama-3-1-70b");
  const std::string longest(46, 'a');
  EXPECT_EQ(namespace_prefix(longest), longest);
  const std::string longer(47, 'a');
  EXPECT_EQ(namespace_prefix(longer), std::string(37, 'a') + "-" + sha256_hex(longer).substr(0, 8));
  // Names that differ after the cut stay different, and a namespace is a DNS label at its longest.
  EXPECT_NE(namespace_prefix(longer), namespace_prefix(longest + "b"));
  EXPECT_EQ((*namespace_prefix(longer) + "-" + kHash).size(), 63);
  for (const char* name : {"", "-", "a-", ".a", "A", "a_b"}) {
    EXPECT_EQ(namespace_prefix(name), std::nullopt) << name;
  }
}

TEST(NamespacePattern, SelectsOneNamespaceByItsWholeName) {
  const auto pattern = NamespacePattern::parse("llama-0123456789abcdef");
  ASSERT_TRUE(pattern);
  EXPECT_TRUE(pattern->matches("llama-0123456789abcdef"));
  for (const char* other : {"llama-0123456789abcdef0", "llama-0123456789abcde", "llama", "dynamo",
                            "llama-fedcba9876543210", "llama-70b-0123456789abcdef"}) {
    EXPECT_FALSE(pattern->matches(other)) << other;
  }
}

TEST(NamespacePattern, SelectsEveryHashOfAName) {
  const auto pattern = NamespacePattern::parse("llama-*");
  ASSERT_TRUE(pattern);
  EXPECT_EQ(pattern->text(), "llama-*");
  EXPECT_TRUE(pattern->matches("llama-0123456789abcdef"));
  EXPECT_TRUE(pattern->matches("llama-fedcba9876543210"));
  for (const char* other :
       {"llama", "llama-", "llama-70b", "llama-70b-0123456789abcdef", "llama-0123456789abcde",
        "llama-0123456789abcdef0", "llama-0123456789ABCDEF", "llama-0123456789abcdeg",
        "llama-0123456789abcdef-0123456789abcdef", "llama2-0123456789abcdef", "-0123456789abcdef",
        "0123456789abcdef", "dynamo"}) {
    EXPECT_FALSE(pattern->matches(other)) << other;
  }
}

TEST(NamespacePattern, SelectsAllByTheGlobalNamespace) {
  const auto pattern = NamespacePattern::parse("dynamo");
  ASSERT_TRUE(pattern);
  for (const char* other : {"dynamo", "llama", "llama-0123456789abcdef"}) {
    EXPECT_TRUE(pattern->matches(other)) << other;
  }
  // A deployment of that name has a namespace like any other.
  EXPECT_FALSE(NamespacePattern::parse("dynamo-*")->matches("llama-0123456789abcdef"));
  EXPECT_TRUE(NamespacePattern::parse("dynamo-*")->matches("dynamo-0123456789abcdef"));
}

TEST(NamespacePattern, RefusesOtherTexts) {
  for (const std::string text : {"", "*", "-*", "llama*", "ll*ma", "llama-*-*", "llama-**",
                                 "llama.*", "Llama-*", "llama/", "llama-*/worker"}) {
    EXPECT_FALSE(NamespacePattern::parse(text)) << text;
  }
  EXPECT_TRUE(NamespacePattern::parse(std::string(46, 'a') + "-*"));
  EXPECT_FALSE(NamespacePattern::parse(std::string(47, 'a') + "-*"));
}

}  // namespace
}  // namespace fo::fleet
