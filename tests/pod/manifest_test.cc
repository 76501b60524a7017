#include "pod/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yaml/reader.h"

namespace fo::pod {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<yaml::Node> nodes(const std::string& text) {
  std::vector<yaml::Node> result;
  for (yaml::Document& one : yaml::read_yaml(text, "test")) result.push_back(std::move(one.root));
  return result;
}

yaml::Node manifest_node(const std::string& text) { return nodes(text).at(0); }

TEST(Manifest, HasNames) {
  const yaml::Node one =
      manifest_node("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: b}}");
  EXPECT_EQ(kubectl_name(one), "deployment.apps/a");
  EXPECT_EQ(manifest_file_name(one), "b-deployment-a");
  EXPECT_EQ(kubectl_name(manifest_node("{apiVersion: v1, kind: Pod, metadata: {name: p}}")),
            "pod/p");
}

TEST(Manifest, FileNamesStayInTheirFolder) {
  EXPECT_EQ(manifest_file_name(
                manifest_node("{kind: ../Pod, metadata: {name: '../../etc/x', namespace: ..}}")),
            "-.-..-pod-..-..-etc-x");
}

TEST(Manifest, NamesAreOneLine) {
  EXPECT_EQ(kubectl_name(manifest_node("{kind: \"a\\nb\", metadata: {name: \"x\\ny\"}}")),
            "'a\\x0ab'/'x\\x0ay'");
  EXPECT_EQ(kubectl_name(manifest_node("{a: 1}")), "unnamed");
}

TEST(Manifest, IsChosenByKindOrKindAndName) {
  const yaml::Node pod = manifest_node("{kind: Pod, metadata: {name: p}}");
  EXPECT_TRUE(matches(pod, "pod"));
  EXPECT_TRUE(matches(pod, "POD/p"));
  EXPECT_FALSE(matches(pod, "pod/q"));
  EXPECT_FALSE(matches(pod, "p"));
  EXPECT_FALSE(matches(manifest_node("{a: 1}"), ""));
  const yaml::Node one =
      manifest_node("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}");
  EXPECT_TRUE(matches(one, "deployment.apps/d"));
  EXPECT_TRUE(matches(one, "Deployment.apps"));
  EXPECT_FALSE(matches(one, "deployment.batch"));
}

std::vector<std::string> compared(const std::string& before, const std::string& after) {
  const std::string head = "{kind: Pod, metadata: {name: p}, spec: ";
  return differences(nodes(head + before + "}"), nodes(head + after + "}"));
}

TEST(Differences, OfTheSameAreNone) {
  EXPECT_THAT(compared("{a: 1, b: [x, y]}", "{b: [x, y], a: 1, c: null}"), IsEmpty());
}

TEST(Differences, NameTheField) {
  EXPECT_THAT(compared("{a: 1}", "{a: 2}"), ElementsAre("~ Pod/p spec.a: 1 -> 2"));
  EXPECT_THAT(compared("{a: 1}", "{a: '1'}"), ElementsAre("~ Pod/p spec.a: 1 -> \"1\""));
  EXPECT_THAT(
      compared("{a: {b: 1, c: [x]}}", "{a: 5}"),
      ElementsAre("- Pod/p spec.a.b: 1", "- Pod/p spec.a.c[0]: \"x\"", "+ Pod/p spec.a: 5"));
  EXPECT_THAT(compared("{a: {}}", "{b: []}"),
              ElementsAre("- Pod/p spec.a: {}", "+ Pod/p spec.b: []"));
}

TEST(Differences, ItemsWithNamesBelongTogether) {
  EXPECT_THAT(compared("{env: [{name: A, value: x}, {name: B, value: w}]}",
                       "{env: [{name: C, value: z}, {name: A, value: x}, {name: B, value: q}]}"),
              ElementsAre("~ Pod/p spec.env[B].value: \"w\" -> \"q\"",
                          "+ Pod/p spec.env[C].name: \"C\"", "+ Pod/p spec.env[C].value: \"z\""));
  EXPECT_THAT(compared("{c: [{name: a}, {name: b}]}", "{c: [{name: b}, {name: a}]}"),
              ElementsAre("~ Pod/p spec.c: order a, b -> b, a"));
  EXPECT_THAT(compared("{args: [a, b]}", "{args: [b]}"),
              ElementsAre("~ Pod/p spec.args[0]: \"a\" -> \"b\"", "- Pod/p spec.args[1]: \"b\""));
}

TEST(Differences, ObjectsBelongTogetherByKindNameAndNamespace) {
  EXPECT_THAT(differences(nodes("{kind: Pod, metadata: {name: p}}"),
                          nodes("{kind: Pod, metadata: {name: p, namespace: n}}")),
              ElementsAre("- Pod/p", "+ Pod/p in n"));
  EXPECT_THAT(
      differences(nodes("{kind: Pod, metadata: {name: p}}\n---\n{kind: Pod, metadata: {name: p}}"),
                  nodes("{kind: Pod, metadata: {name: p}}")),
      ElementsAre("- Pod/p (2)"));
}

}  // namespace
}  // namespace fo::pod
