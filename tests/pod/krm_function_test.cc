#include "pod/krm_function.h"

#include <gtest/gtest.h>

#include "tests/pod/dgd_text.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

constexpr const char* kList = R"(apiVersion: config.kubernetes.io/v1
kind: ResourceList
functionConfig:
  kind: ConfigMap
  data: {layout: LAYOUT}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {internal.config.kubernetes.io/index: '0'}}}
- apiVersion: nvidia.com/v1alpha1
  kind: DynamoGraphDeployment
  metadata:
    name: chat
    namespace: ns
    annotations: {internal.config.kubernetes.io/path: a/b.yaml, internal.config.kubernetes.io/index: '1'}
  spec:
    services:
      W:
        componentType: worker
        resources: {limits: {gpu: GPUS}}
        failover: {enabled: true}
        gpuMemoryService: {enabled: true}
        unheardOf: 1
        envs: [{name: DYN_NAMESPACE, value: chat}]
        extraPodSpec: {mainContainer: {image: i, command: [python3, -m, dynamo.vllm, --load-format, gms]}}
results:
- {message: of the last function}
)";

FunctionAnswer run(const yaml::Node& list) {
  Budget budget;
  return run_function(list, {}, budget);
}

yaml::Node list(const std::string& layout, const std::string& gpus) {
  std::string text = kList;
  text.replace(text.find("LAYOUT"), 6, layout);
  text.replace(text.find("GPUS"), 4, gpus);
  return parse(text);
}

TEST(KrmFunction, KnowsItsInput) {
  EXPECT_TRUE(is_resource_list(list("plan", "1")));
  EXPECT_FALSE(is_resource_list(parse("{kind: ResourceList, apiVersion: v1}")));
  EXPECT_FALSE(is_resource_list(parse("[1]")));
}

TEST(KrmFunction, AConfigThatIsNoMapIsRefusedByItsName) {
  for (const std::string part : {"data", "spec"}) {
    const FunctionAnswer answer = run(parse("functionConfig: {" + part + ": [1]}"));
    ASSERT_EQ(answer.filtered.findings.size(), 1u);
    EXPECT_EQ(answer.filtered.findings[0].reason, "its " + part + " must be a map");
  }
}

TEST(KrmFunction, FiltersTheItemsByItsConfig) {
  const FunctionAnswer answer = run(list("dynamo", "1"));
  EXPECT_FALSE(answer.filtered.failed());
  const auto& items = answer.list.find("items")->items();
  ASSERT_EQ(items.size(), 3u);
  EXPECT_TRUE(items[0].same_as(list("plan", "1").find("items")->items()[0]));
  const yaml::Node* volumes = items[2].find_path({"spec", "template", "spec", "volumes"});
  EXPECT_NE(yaml::find_named(volumes, "name", "gms-intrapod-control"), nullptr);
}

TEST(KrmFunction, SaysWhatItFound) {
  const FunctionAnswer answer = run(list("plan", "1"));
  const yaml::Node* results = answer.list.find("results");
  ASSERT_NE(results, nullptr);
  ASSERT_EQ(results->items().size(), 1u);
  const yaml::Node& result = results->items()[0];
  EXPECT_EQ(result.find("severity")->text(), "warning");
  EXPECT_EQ(result.find_path({"resourceRef", "namespace"})->text(), "ns");
  EXPECT_EQ(result.find_path({"field", "path"})->text(), "spec.services.W.unheardOf");
  EXPECT_EQ(result.find_path({"file", "path"})->text(), "a/b.yaml");
  EXPECT_EQ(yaml::to_json_scalar(*result.find_path({"file", "index"})), "1");
}

TEST(KrmFunction, LeavesTheItemsWhenAnyIsRefused) {
  const yaml::Node input = list("plan", "0");
  const FunctionAnswer answer = run(input);
  EXPECT_TRUE(answer.filtered.failed());
  EXPECT_TRUE(answer.list.find("items")->same_as(*input.find("items")));
  EXPECT_GE(answer.list.find("results")->items().size(), 1u);
}

TEST(KrmFunction, RefusesAConfigThatItDoesNotKnow) {
  const FunctionAnswer answer = run(list("other", "1"));
  EXPECT_TRUE(answer.filtered.failed());
  EXPECT_EQ(answer.list.find("results")->items().at(0).find("message")->text(),
            "layout 'other': expected plan or dynamo");
}

TEST(KrmFunction, RefusesWhatIsNoListAndNoConfig) {
  for (const char* const rest : {"items: {}", "items: []\nfunctionConfig: [x]",
                                 "items: []\nfunctionConfig: {data: [x]}", "items: 5"}) {
    const std::string text =
        std::string("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n") + rest;
    const FunctionAnswer answer = run(parse(text));
    EXPECT_TRUE(answer.filtered.failed()) << rest;
    EXPECT_EQ(answer.list.find("results")->items().size(), 1u) << rest;
  }
}

}  // namespace
}  // namespace fo::pod
