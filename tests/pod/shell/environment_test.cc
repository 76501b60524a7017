#include "pod/shell/environment.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/input_objects.h"
#include "pod/json_node.h"

namespace fo::pod {
namespace {

using test::node;

InputObjects maps_of(const std::string& documents) {
  InputObjects maps;
  const yaml::Node all = node(documents);
  for (const yaml::Node& document : all.items()) maps.add(document);
  return maps;
}

std::string value_of(const Environment& environment, std::string_view name) {
  const std::string* const value = environment.value(name);
  if (value != nullptr) return *value;
  return environment.has(name) ? "(unknown)" : "(none)";
}

TEST(InputObjects, AreFoundByNameAndNamespace) {
  const InputObjects maps = maps_of(
      R"([{"kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"}},
          {"kind":"Secret","metadata":{"name":"s"},"data":{"k":"2"}},
          {"kind":"List","items":[{"kind":"ConfigMap","metadata":{"name":"b","namespace":"n"}}]}])");
  ASSERT_NE(maps.config_map("", "a"), nullptr);
  EXPECT_EQ(maps.config_map("any", "a")->text_at({"k"}), "1");
  EXPECT_EQ(maps.config_map("", "s"), nullptr);
  EXPECT_NE(maps.config_map("", "b"), nullptr);
  EXPECT_NE(maps.config_map("n", "b"), nullptr);
  EXPECT_EQ(maps.config_map("m", "b"), nullptr);
  EXPECT_TRUE(maps.has("Secret", "any", "s"));
  EXPECT_FALSE(maps.has("Secret", "", "a"));
}

TEST(InputObjects, OfSeveralNamespacesAreToldApart) {
  const InputObjects maps = maps_of(
      R"([{"kind":"ConfigMap","metadata":{"name":"c","namespace":"prod"},"data":{"k":"1"}},
          {"kind":"ConfigMap","metadata":{"name":"c","namespace":"test"},"data":{"k":"2"}}])");
  EXPECT_EQ(maps.config_map("prod", "c")->text_at({"k"}), "1");
  EXPECT_EQ(maps.config_map("test", "c")->text_at({"k"}), "2");
  EXPECT_EQ(maps.config_map("", "c"), nullptr);
  EXPECT_EQ(maps.config_map("other", "c"), nullptr);
}

TEST(Environment, IsWhatTheContainerSays) {
  const InputObjects maps = maps_of(
      R"([{"kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"from c","A":"of c","B":"of c"}}])");
  const Environment environment(node(R"j({
      "envFrom":[{"configMapRef":{"name":"c"},"prefix":"C_"},{"configMapRef":{"name":"c"}}],
      "env":[{"name":"A","value":"1"},{"name":"E"},
             {"name":"K","valueFrom":{"configMapKeyRef":{"name":"c","key":"k"}}},
             {"name":"L","valueFrom":{"configMapKeyRef":{"name":"c","key":"none"}}},
             {"name":"M","valueFrom":{"configMapKeyRef":{"name":"other","key":"k"}}},
             {"name":"P","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},
             {"name":"X","value":"$(A)-$(K)"},{"name":"Y","value":"$(P)"},
             {"name":"Z","value":"$(NONE) $$(A)"}]})j"),
                                maps);
  EXPECT_EQ(value_of(environment, "A"), "1");
  EXPECT_EQ(value_of(environment, "B"), "of c");
  EXPECT_EQ(value_of(environment, "C_B"), "of c");
  EXPECT_EQ(value_of(environment, "E"), "");
  EXPECT_EQ(value_of(environment, "K"), "from c");
  for (const char* const name : {"L", "M", "P", "Y"}) {
    EXPECT_EQ(value_of(environment, name), "(unknown)") << name;
  }
  EXPECT_EQ(value_of(environment, "X"), "1-from c");
  EXPECT_EQ(value_of(environment, "Z"), "$(NONE) $(A)");
  EXPECT_EQ(value_of(environment, "NONE"), "(none)");
  EXPECT_FALSE(environment.may_have("NONE"));
}

TEST(Environment, ASecretMaySetAnything) {
  const Environment environment(
      node(R"({"envFrom":[{"secretRef":{"name":"s"}}],"env":[{"name":"A","value":"1"}]})"));
  EXPECT_TRUE(environment.may_have("TOKEN"));
  EXPECT_EQ(environment.expanded("$(A) $"), "1 $");
  EXPECT_EQ(environment.expanded("$(TOKEN)"), std::nullopt);
}

TEST(Environment, ALaterSecretMaySetWhatAConfigMapSets) {
  const InputObjects maps =
      maps_of(R"([{"kind":"ConfigMap","metadata":{"name":"c"},"data":{"P":"6000"}}])");
  const char* const kMap = R"({"configMapRef":{"name":"c"}})";
  const char* const kSecret = R"({"secretRef":{"name":"s"}})";
  const auto of = [&](const std::string& first, const std::string& second) {
    return value_of(Environment(node(R"({"envFrom":[)" + first + "," + second + "]}"), maps), "P");
  };
  EXPECT_EQ(of(kSecret, kMap), "6000");
  EXPECT_EQ(of(kMap, kSecret), "(unknown)");
}

TEST(Environment, ExpandsAsKubernetesDoes) {
  const Environment environment(node(R"({"env":[{"name":"A","value":"1"}]})"));
  EXPECT_EQ(environment.expanded(""), "");
  EXPECT_EQ(environment.expanded("$(A)$(A)"), "11");
  EXPECT_EQ(environment.expanded("$$(A) $$$(A) $A ${A} $(A"), "$(A) $1 $A ${A} $(A");
  EXPECT_EQ(environment.expanded("$("), "$(");
  EXPECT_EQ(environment.expanded("$()"), "$()");
}

TEST(Environment, WhatGrowsWithoutEndIsNotKnown) {
  std::string env = R"({"name":"V0","value":"xxxxxxxx"})";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "$(V" + std::to_string(i - 1) + ")";
    env += R"(,{"name":"V)" + std::to_string(i) + R"(","value":")" + before + before + "\"}";
  }
  const Environment environment(node("{\"env\":[" + env + "]}"));
  EXPECT_EQ(value_of(environment, "V3").size(), 64U);
  EXPECT_EQ(value_of(environment, "V59"), "(unknown)");
}

TEST(Environment, WhatGrowsSlowlyIsLimitedInAll) {
  std::string env = R"({"name":"V0","value":")" + std::string(30'000, 'x') + "\"}";
  for (int i = 1; i < 1000; ++i) {
    env += R"(,{"name":"V)" + std::to_string(i) + R"x(","value":"$(V0)$(V0)"})x";
  }
  const Environment environment(node("{\"env\":[" + env + "]}"));
  EXPECT_EQ(value_of(environment, "V1").size(), 60'000U);
  EXPECT_EQ(value_of(environment, "V999"), "(unknown)");
}

}  // namespace
}  // namespace fo::pod
