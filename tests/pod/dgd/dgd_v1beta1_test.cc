#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pod/dgd/dgd.h"
#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kMain = "{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}";

TEST(DgdV1Beta1, TheTemplateIsTakenAsItIsWithMainFirst) {
  const Beta beta{
      .pod = "nodeSelector: {a: b}",
      .containers = std::string("[{name: side, image: s}, ") + kMain + ", {name: last, image: l}]"};
  expect_same(template_of(beta.text()), std::string("spec: {nodeSelector: {a: b}, containers: [") +
                                            kMain +
                                            ", {name: side, image: s}, {name: last, image: l}]}");
}

TEST(DgdV1Beta1, ServiceSaysItsReading) {
  const Read found = read(Beta().text());
  EXPECT_THAT(found.findings, IsEmpty());
  EXPECT_EQ(found.dgd.version, DgdVersion::kV1Beta1);
  const Service& service = found.dgd.services.at(0);
  EXPECT_EQ(service.name, "Worker");
  EXPECT_EQ(service.path, "spec.components[0]");
  EXPECT_EQ(service.component_type, "worker");
  EXPECT_TRUE(service.failover);
  EXPECT_EQ(service.gpus, 1);
}

TEST(DgdV1Beta1, BeingThereIsWhatEnables) {
  EXPECT_FALSE(
      read(Beta{.experimental = "{gpuMemoryService: {}}"}.text()).dgd.services.at(0).failover);
  EXPECT_FALSE(read(Beta{.experimental = "{failover: null}"}.text()).dgd.services.at(0).failover);
  EXPECT_TRUE(read(Beta{.experimental = "{failover: {}}"}.text()).dgd.services.at(0).failover);
  EXPECT_THAT(warnings(Beta{.experimental = "{failover: {enabled: true}}"}),
              ElementsAre("spec.components[0].experimental.failover.enabled: unknown field"));
  EXPECT_THAT(errors(Beta{.experimental = "{failover: {enabled: false}}"}),
              ElementsAre("spec.components[0].experimental.failover.enabled: v1beta1 enables it by "
                          "its presence; leave failover out"));
}

TEST(DgdV1Beta1, ClientsInPodsOfTheirOwnAreRefused) {
  EXPECT_THAT(
      errors(Beta{.experimental = "{failover: {}, gpuMemoryService: {extraClientPods: [{}]}}"}),
      ElementsAre("spec.components[0].experimental.gpuMemoryService.extraClientPods[0]: "
                  "engines and GMS share one pod here; leave it out"));
}

TEST(DgdV1Beta1, AContainerNamedMainIsWanted) {
  EXPECT_THAT(errors(Beta{.containers = "[{name: vllm, image: i}]"}),
              ElementsAre("spec.components[0].podTemplate.spec.containers: no container named "
                          "'main'; name the engine's container main"));
  EXPECT_THAT(
      errors(Beta{.containers = "[{name: main, resources: {limits: {nvidia.com/gpu: '1'}}}]"}),
      ElementsAre("spec.components[0].podTemplate.spec.containers[0]: no image; set image"));
}

TEST(DgdV1Beta1, WhatTheDeploymentSaysIsBehindTheComponents) {
  const Beta beta{.spec = "env: [{name: A, value: d}, {name: B, value: d}]\n  labels: {a: d, b: d}",
                  .containers =
                      "[{name: main, image: i, env: [{name: B, value: c}], resources: {limits: "
                      "{nvidia.com/gpu: "
                      "1}}}]"};
  std::string text = beta.text();
  text.replace(text.find("podTemplate:"), 12, "podTemplate:\n      metadata: {labels: {b: p}}");
  const Read found = read(text);
  EXPECT_THAT(found.findings, IsEmpty());
  const yaml::Node& made = found.dgd.services.at(0).pod_template;
  expect_same(*made.find("metadata"), "{labels: {a: d, b: p}}");
  expect_same(*made.find_path({"spec", "containers"})->items().at(0).find("env"),
              "[{name: A, value: d}, {name: B, value: c}]");
}

TEST(DgdV1Beta1, SharedMemoryAndCacheAreMounted) {
  Beta beta{.component =
                "sharedMemorySize: 2Gi\n    compilationCache: {pvcName: cache, mountPath: /c}"};
  const yaml::Node made = template_of(beta.text());
  expect_same(*made.find_path({"spec", "volumes"}),
              "[{name: cache, persistentVolumeClaim: {claimName: cache}}, {name: 'shared-memory', "
              "emptyDir: {medium: 'Memory', sizeLimit: 2Gi}}]");
  expect_same(*made.find_path({"spec", "containers"})->items().at(0).find("volumeMounts"),
              "[{name: 'cache', mountPath: /c}, {name: 'shared-memory', mountPath: '/dev/shm'}]");
  for (const char* const none : {"'0'", "0", "0Gi", "0.0"}) {
    beta.component = std::string("sharedMemorySize: ") + none;
    EXPECT_EQ(template_of(beta.text()).find_path({"spec", "volumes"}), nullptr) << none;
  }
  // The API server refuses the last one.
  for (const char* const some : {"0.5Gi", "1", "lots"}) {
    beta.component = std::string("sharedMemorySize: ") + some;
    EXPECT_NE(template_of(beta.text()).find_path({"spec", "volumes"}), nullptr) << some;
  }
  beta.component = "compilationCache: {pvcName: cache}";
  EXPECT_THAT(
      errors(beta),
      ElementsAre("spec.components[0].compilationCache: a mount without a path; set mountPath"));
  beta.component = "compilationCache: {pvcName: cache, mountPath: /c}";
  beta.pod = "volumes: [{name: cache, emptyDir: {}}]";
  EXPECT_THAT(errors(beta),
              ElementsAre("spec.components[0].compilationCache.pvcName: 'cache': a volume of the "
                          "pod has this name; rename it"));
}

TEST(DgdV1Beta1, FindingsNameThePlaceInTheInput) {
  EXPECT_THAT(errors(Beta{.containers =
                              std::string("[{name: side, image: s, env: [{name: A, value: 5}]}, ") +
                              kMain + "]"}),
              ElementsAre("spec.components[0].podTemplate.spec.containers[0].env[0].value: '5': a "
                          "number, expected a string; put it in quotes"));
}

TEST(DgdV1Beta1, WhatOnlyTheOperatorDoesIsSaid) {
  EXPECT_THAT(errors(Beta{.component = "dynamoSidecar: s"}),
              ElementsAre("spec.components[0].dynamoSidecar: failover is not supported with a "
                          "runtime in a sidecar; leave one of them out"));
  EXPECT_THAT(warnings(Beta{.component = "minAvailable: 1"}),
              ElementsAre("spec.components[0].minAvailable: only Dynamo's operator acts on this: "
                          "the pod is generated without it"));
}

}  // namespace
}  // namespace fo::pod
