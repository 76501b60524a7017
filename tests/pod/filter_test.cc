#include "pod/filter.h"

#include <gtest/gtest.h>

#include "yaml/writer.h"

namespace fo::pod {
namespace {

constexpr const char* kDgd = R"(apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: chat}
spec:
  services:
    Worker: &worker
      componentType: worker
      resources: {limits: {gpu: "1"}}
      failover: {enabled: true}
      gpuMemoryService: {enabled: true}
      envs: [{name: DYN_NAMESPACE, value: chat}]
      extraPodSpec: {mainContainer: {image: i, command: [python3, -m, dynamo.vllm, --load-format, gms]}}
)";

Filtered filtered(const std::string& text) {
  Budget budget;
  return filter(yaml::read_yaml(text, "test"), std::make_shared<InputObjects>(), {}, budget);
}

std::vector<std::string> kinds(const Filtered& filtered) {
  std::vector<std::string> result;
  for (const Manifest& one : filtered.manifests) result.push_back(one.root.find("kind")->text());
  return result;
}

TEST(Filter, NothingStaysOfADeploymentWhoseServicesAllFailOver) {
  const Filtered result = filtered(kDgd);
  EXPECT_FALSE(result.failed());
  EXPECT_FALSE(result.untouched());
  EXPECT_EQ(kinds(result), (std::vector<std::string>{"ResourceClaimTemplate", "Deployment"}));
  EXPECT_TRUE(result.manifests[0].generated);
}

std::string with_frontend(std::string text) {
  text.insert(text.find("    Worker:"), "    Front: {componentType: frontend, envs: }\n");
  return text;
}

TEST(Filter, WhatStaysIsToldToLookForContainers) {
  const Filtered result = filtered(with_frontend(kDgd));
  ASSERT_EQ(kinds(result), (std::vector<std::string>{"DynamoGraphDeployment",
                                                     "ResourceClaimTemplate", "Deployment"}));
  const yaml::Node& rest = result.manifests[0].root;
  EXPECT_EQ(rest.text_at({"metadata", "annotations", "nvidia.com/dynamo-kube-discovery-mode"}),
            "container");
  // A null stays a null.
  EXPECT_NE(yaml::to_yaml(rest).find("envs: null"), std::string::npos);
}

TEST(Filter, CommentsAtTheHeadStay) {
  const std::string head = "# Of Helm.\n# Source: chart/templates/dgd.yaml\n\n";
  const Filtered result = filtered(head + with_frontend(kDgd));
  ASSERT_EQ(result.manifests.size(), 3U);
  EXPECT_EQ(result.manifests[0].head, head);
  for (const std::size_t i : {1U, 2U}) {
    EXPECT_EQ(result.manifests[i].head, "# Source: chart/templates/dgd.yaml\n");
  }
  // If nothing else is left, the first object gets them.
  EXPECT_EQ(filtered(head + kDgd).manifests[0].head, head);
}

TEST(Filter, EveryDeploymentIsExplained) {
  const Filtered good = filtered(with_frontend(kDgd));
  ASSERT_EQ(good.explanations.size(), 1U);
  const DgdExplanation& explained = good.explanations[0];
  ASSERT_EQ(explained.services.size(), 2U);
  EXPECT_FALSE(explained.services[0].failover);
  EXPECT_TRUE(explained.services[0].writes.empty());
  EXPECT_EQ(explained.services[1].writes.size(), 2U);
  EXPECT_FALSE(explained.services[1].needs.empty());
  // Services are explained even if another one is refused.
  std::string text = with_frontend(kDgd);
  text += "    Other: {componentType: frontend, failover: {enabled: true}}\n";
  const Filtered bad = filtered(text);
  EXPECT_TRUE(bad.failed());
  ASSERT_EQ(bad.explanations.size(), 1U);
  EXPECT_EQ(bad.explanations[0].services[1].writes.size(), 2U);
  EXPECT_FALSE(bad.explanations[0].services[1].refused);
  EXPECT_TRUE(bad.explanations[0].services[2].refused);
}

// A deployment whose services all get an env of this size.
std::string dgd_with(int services, std::size_t bytes) {
  std::string text = kDgd;
  text.insert(text.find("    Worker:"), "    Front: {componentType: frontend}\n");
  text.insert(text.find("  services:"),
              "  envs: [{name: A, value: " + std::string(bytes, 'x') + "}]\n");
  for (int i = 1; i < services; ++i) text += "    W" + std::to_string(i) + ": *worker\n";
  return text;
}

TEST(Filter, AnErrorOfTheDeploymentRefusesWhatWouldFailOver) {
  std::string text = with_frontend(kDgd);
  text.replace(text.find("name: chat}"), 11, "name: Chat_x}");
  const Filtered result = filtered(text);
  ASSERT_EQ(result.explanations.size(), 1U);
  const auto& services = result.explanations[0].services;
  ASSERT_EQ(services.size(), 2U);
  EXPECT_FALSE(services[0].refused);
  EXPECT_TRUE(services[1].refused);
  EXPECT_TRUE(services[1].writes.empty());
}

TEST(Filter, WhatOneRunGeneratesIsLimited) {
  const std::size_t size = std::size_t{1} << 20;
  const std::string text = dgd_with(20, size) + "---\n" + dgd_with(20, size);
  const Filtered result = filtered(text);
  std::vector<std::string> errors;
  for (const Finding& finding : result.findings) {
    if (finding.severity == Severity::kError) errors.push_back(finding.reason);
  }
  EXPECT_EQ(errors, (std::vector<std::string>{"the output would be too large"}));
  EXPECT_LT(result.manifests.size(), 50U);

  Budget budget;
  const std::vector<yaml::Document> one = yaml::read_yaml(dgd_with(12, size), "test");
  EXPECT_FALSE(filter(one, std::make_shared<InputObjects>(), {}, budget).failed());
  EXPECT_TRUE(filter(one, std::make_shared<InputObjects>(), {}, budget).failed());
}

TEST(Filter, ManyPortsOfManyContainersAreCheap) {
  std::string text = kDgd;
  std::string others = "extraPodSpec: {containers: [";
  for (int i = 0; i < 3500; ++i) {
    others += "{name: s" + std::to_string(i) + ", image: i, ports: [{containerPort: 9090}]},";
  }
  text.replace(text.find("extraPodSpec: {"), 15, others + "], ");
  const Filtered result = filtered(text);
  EXPECT_TRUE(result.failed());
  ASSERT_EQ(result.findings.size(), kMaxFindings);
  EXPECT_EQ(result.findings.back().path,
            "spec.services.Worker.extraPodSpec.containers[999].ports[0]");
}

TEST(Filter, OtherServicesStayAsTheyWere) {
  const std::string text =
      std::string(kDgd) +
      "    Other: *worker\n    Front: {componentType: frontend, replicas: 0x2, extra: ~}\n";
  const Filtered result = filtered(text);
  EXPECT_FALSE(result.failed());
  EXPECT_EQ(kinds(result),
            (std::vector<std::string>{"DynamoGraphDeployment", "ResourceClaimTemplate",
                                      "Deployment", "ResourceClaimTemplate", "Deployment"}));
  const yaml::Node* services = result.manifests[0].root.find_path({"spec", "services"});
  ASSERT_EQ(services->members().size(), 1u);
  EXPECT_EQ(services->find_path({"Front", "replicas"})->text(), "0x2");
  EXPECT_FALSE(result.manifests[0].generated);
}

TEST(Filter, ComponentsOfTheNewerVersionLeaveTheList) {
  const Filtered result = filtered(R"(apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: chat, namespace: ns}
spec:
  components:
  - {name: Front, type: frontend, podTemplate: {spec: {containers: [{name: main, image: i}]}}}
  - name: Worker
    type: worker
    experimental: {failover: {}, gpuMemoryService: {}}
    podTemplate:
      spec:
        containers:
        - {name: main, image: i, command: [python3, -m, dynamo.vllm], resources: {limits: {nvidia.com/gpu: 1}}}
)");
  EXPECT_FALSE(result.failed());
  ASSERT_EQ(result.manifests.size(), 3u);
  EXPECT_EQ(result.manifests[0].root.find_path({"spec", "components"})->items().size(), 1u);
  EXPECT_EQ(result.manifests[2].root.find_path({"metadata", "namespace"})->text(), "ns");
}

TEST(Filter, ListsAreTakenApartOnlyWhenSomethingIsReplaced) {
  const std::string map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
  const Filtered plain =
      filtered("{apiVersion: v1, kind: List, items: [" + map + ", " + map + "]}");
  EXPECT_TRUE(plain.untouched());
  EXPECT_EQ(kinds(plain), std::vector<std::string>{"List"});
  const Filtered mixed = filtered(
      "apiVersion: v1\nkind: List\nitems:\n- " + map +
      "\n- {apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, metadata: {name: c}, "
      "spec: "
      "{services: {W: {componentType: worker, resources: {limits: {gpu: 1}}, failover: {enabled: "
      "true}, gpuMemoryService: {enabled: true}, extraPodSpec: {mainContainer: {image: i, command: "
      "[python3, -m, dynamo.vllm]}}}}}}\n");
  EXPECT_FALSE(mixed.failed());
  EXPECT_EQ(kinds(mixed),
            (std::vector<std::string>{"ConfigMap", "ResourceClaimTemplate", "Deployment"}));
}

TEST(Filter, OneBadDocumentDoesNotHideWhatIsWrongWithTheNext) {
  std::string bad = kDgd;
  bad.replace(bad.find("\"1\""), 3, "\"0\"");
  const Filtered result = filtered(bad + "---\n" + bad);
  EXPECT_TRUE(result.failed());
  EXPECT_GE(result.findings.size(), 2u);
  EXPECT_NE(result.findings.front().position.line, result.findings.back().position.line);
}

// Two services use one claim, and none uses the other.
std::string with_claims(const std::string& cache) {
  std::string text = kDgd;
  text.replace(text.find("{name: chat}"), 12, "{name: chat, namespace: ns}");
  text.replace(text.find("  services:"), 0,
               "  pvcs: [" + cache + ", {name: unused, create: true}, {name: there}]\n");
  text.replace(text.find("componentType"), 0,
               "volumeMounts: [{name: cache, mountPoint: /c}, {name: there, mountPoint: /t}]\n"
               "      ");
  return text + "    Other: *worker\n";
}

TEST(Filter, VolumeClaimsThatTheDeploymentWouldCreateAreMade) {
  const Filtered result =
      filtered(with_claims("{name: cache, create: true, size: 10Gi, storageClass: fast, "
                           "volumeAccessMode: ReadWriteMany}"));
  EXPECT_FALSE(result.failed());
  EXPECT_EQ(kinds(result),
            (std::vector<std::string>{"PersistentVolumeClaim", "ResourceClaimTemplate",
                                      "Deployment", "ResourceClaimTemplate", "Deployment"}));
  const yaml::Node claim = yaml::read_yaml(R"(apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: cache, namespace: ns}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 10Gi}}
  storageClassName: fast
)",
                                           "test")
                               .at(0)
                               .root;
  EXPECT_TRUE(result.manifests[0].root.same_as(claim));
}

TEST(Filter, VolumeClaimsAreTheOperatorsWhileTheDeploymentStays) {
  const Filtered result = filtered(with_claims("{name: cache, create: true}") +
                                   "    Front: {componentType: frontend}\n");
  EXPECT_FALSE(result.failed());
  EXPECT_EQ(kinds(result).at(0), "DynamoGraphDeployment");
  EXPECT_EQ(kinds(result).at(1), "ResourceClaimTemplate");
}

TEST(Filter, AVolumeClaimNeedsAllThatItIsMadeFrom) {
  const Filtered result = filtered(with_claims("{name: cache, create: true, storageClass: fast}"));
  EXPECT_TRUE(result.failed());
  std::string errors;
  for (const Finding& finding : result.findings) {
    if (finding.severity == Severity::kError) errors += finding.path + ": " + finding.reason + "\n";
  }
  EXPECT_EQ(errors,
            "spec.pvcs[0]: volumeAccessMode: missing, for a claim to create\n"
            "spec.pvcs[0]: size: missing, for a claim to create\n");
}

}  // namespace
}  // namespace fo::pod
