#include "fleet/record/deployment_hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hex.h"
#include "support/failure.h"
#include "yaml/reader.h"

namespace fo::fleet {
namespace {

DeploymentIds ids_of(const std::string& text) {
  return deployment_ids(yaml::read_yaml(text, "f.yaml").front().root, "generate", "f.yaml");
}

std::string hash_of(const std::string& text) { return ids_of(text).hash; }

constexpr const char* kHead =
    "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: llama-3.1}\n";
constexpr const char* kBetaHead =
    "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: llama-3.1}\n";

// A deployment with these lines in each of its places.
struct Deployment {
  std::string spec = {};
  std::string frontend = {};
  std::string planner = {};
  std::string prefill = {};
  std::string decode = {};

  [[nodiscard]] std::string text() const {
    return kHead + std::string("spec:\n  ") + spec +
           "\n  services:\n    Frontend:\n      componentType: frontend\n      " + frontend +
           "\n    Planner:\n      componentType: planner\n      " + planner +
           "\n    Prefill:\n      componentType: worker\n      subComponentType: prefill\n      " +
           prefill +
           "\n    Decode:\n      componentType: worker\n      subComponentType: decode\n      " +
           decode + "\n";
  }
};

// A component with these members beside name, type and image.
std::string beta(const std::string& members, const std::string& metadata = "{}") {
  return kBetaHead +
         std::string("spec: {components: [{name: w, type: worker, podTemplate: {metadata: ") +
         metadata + ", spec: {containers: [{name: main, image: i}]}}" + members + "}]}";
}

std::vector<std::string> lines(const DeploymentIds& ids) {
  std::vector<std::string> all;
  for (const auto& [service, id] : ids.services) all.push_back(service + " " + to_string(id));
  return all;
}

TEST(DeploymentHash, IsPartOfTheIdsOfAllServices) {
  const DeploymentIds ids = ids_of(Deployment{}.text());
  EXPECT_EQ(ids.deployment, "llama-3.1");
  EXPECT_EQ(ids.hash.size(), kHashDigits);
  EXPECT_TRUE(base::is_hex(ids.hash));
  const std::string space = "llama-3-1-" + ids.hash;
  EXPECT_EQ(lines(ids),
            (std::vector<std::string>{"Decode " + space + "/worker-decode/generate",
                                      "Frontend " + space + "/frontend/generate",
                                      "Planner " + space + "/planner/generate",
                                      "Prefill " + space + "/worker-prefill/generate"}));
}

// The hash is part of names in a cluster: another version of this program must compute the same.
TEST(DeploymentHash, IsThatOfTheCanonicalJson) {
  // sha256 of {"services":{"W":{"componentType":"worker","envs":[{"name":"A","value":"1"}]}}}
  EXPECT_EQ(hash_of(kHead + std::string("spec:\n  services:\n    W:\n      componentType: worker\n"
                                        "      replicas: 2\n"
                                        "      envs: [{value: '1', name: A}]\n")),
            "6472ac01dd577b54");
}

TEST(DeploymentHash, IgnoresOrderAnchorsAndNotation) {
  const std::string plain = kHead + std::string(R"(
spec:
  services:
    Prefill:
      componentType: worker
      subComponentType: prefill
      resources: {limits: {gpu: "1"}}
      extraPodSpec: {mainContainer: {image: "i", args: [-a, -b], env: [{name: A, value: x}]}}
    Decode:
      componentType: worker
      subComponentType: decode
      resources: {limits: {gpu: "1"}}
      extraPodSpec: {mainContainer: {image: "i", args: [-a, -b], env: [{name: A, value: x}]}}
)");
  const std::string anchored = R"(
kind: "DynamoGraphDeployment"
spec:
  services:
    Decode:
      subComponentType: decode
      extraPodSpec:
        mainContainer: &main
          env:
          - value: x
            name: A
          args: ["-a", '-b']
          image: i
      componentType: &type worker
      resources: &resources
        limits:
          gpu: "1"
      envs:   # none
    Prefill:
      resources: *resources
      <<: {componentType: *type, subComponentType: prefill}
      extraPodSpec: {mainContainer: *main}
metadata: {name: llama-3.1}
apiVersion: nvidia.com/v1alpha1
)";
  EXPECT_EQ(hash_of(plain), hash_of(anchored));
  EXPECT_EQ(lines(ids_of(plain)), lines(ids_of(anchored)));
}

TEST(DeploymentHash, IgnoresWhatNoWorkerRuns) {
  const std::string hash = hash_of(Deployment{}.text());
  for (const char* const ignored :
       {"replicas: 7", "autoscaling: {enabled: true}", "scalingAdapter: {enabled: true}",
        "ingress: {enabled: true}", "labels: {a: b}", "annotations: {a: b}",
        "extraPodMetadata: {labels: {a: b}, annotations: {c: d}}", "envs:"}) {
    EXPECT_EQ(hash, hash_of(Deployment{.decode = ignored}.text())) << ignored;
  }
  for (const char* const image :
       {"extraPodSpec: {mainContainer: {image: new}}", "envs: [{name: A}]"}) {
    EXPECT_EQ(hash, hash_of(Deployment{.frontend = image}.text()));
    EXPECT_EQ(hash, hash_of(Deployment{.planner = image}.text()));
  }
  EXPECT_EQ(hash, hash_of(Deployment{.spec = "labels: {a: b}"}.text()));

  const std::string beta_hash = hash_of(beta(""));
  for (const char* const ignored : {", replicas: 7", ", minAvailable: 2", ", scalingAdapter: {}"}) {
    EXPECT_EQ(beta_hash, hash_of(beta(ignored))) << ignored;
  }
  EXPECT_EQ(beta_hash, hash_of(beta("", "{labels: {a: b}, annotations: {c: d}}")));
}

TEST(DeploymentHash, ChangesWithWhatAWorkerRuns) {
  const std::string hash = hash_of(Deployment{}.text());
  for (const char* const member :
       {"envs: [{name: MODEL_REVISION, value: abc}]", "resources: {limits: {gpu: \"2\"}}",
        "extraPodSpec: {mainContainer: {image: new}}", "sharedMemory: {size: 8Gi}",
        "livenessProbe: {}"}) {
    EXPECT_NE(hash, hash_of(Deployment{.prefill = member}.text())) << member;
    EXPECT_NE(hash, hash_of(Deployment{.decode = member}.text())) << member;
    EXPECT_NE(hash_of(Deployment{.prefill = member}.text()),
              hash_of(Deployment{.decode = member}.text()));
  }
  EXPECT_NE(hash, hash_of(Deployment{.spec = "envs: [{name: MODEL_REVISION, value: a}]"}.text()));
  EXPECT_NE(hash, hash_of(Deployment{.spec = "backendFramework: vllm"}.text()));
  EXPECT_NE(hash_of(beta("")), hash_of(beta(", sharedMemorySize: 8Gi")));
  // The order of a list, such as arguments, matters.
  EXPECT_NE(hash_of(Deployment{.decode = "envs: [{name: A}, {name: B}]"}.text()),
            hash_of(Deployment{.decode = "envs: [{name: B}, {name: A}]"}.text()));
  // So does the type of a scalar.
  EXPECT_NE(hash_of(Deployment{.decode = "envs: [{name: A, value: 1}]"}.text()),
            hash_of(Deployment{.decode = "envs: [{name: A, value: '1'}]"}.text()));
}

TEST(DeploymentHash, MapsTypesToComponents) {
  const auto component = [](const std::string& members) {
    return ids_of(kHead + std::string("spec: {services: {W: {") + members + "}}}")
        .services.at(0)
        .id.component;
  };
  EXPECT_EQ(component("componentType: worker"), "worker");
  EXPECT_EQ(component("componentType: Worker, subComponentType: Decode"), "worker-decode");
  EXPECT_EQ(component("componentType: prefill"), "worker-prefill");
  EXPECT_EQ(component("componentType: decode"), "worker-decode");
  EXPECT_EQ(component("componentType: epp"), "epp");
  EXPECT_EQ(component("replicas: 1"), "default");
  EXPECT_EQ(ids_of(beta("")).services.at(0).id.component, "worker");
}

TEST(DeploymentHash, KnowsTheGlobalNamespace) {
  const auto ids = ids_of(Deployment{.frontend = "globalDynamoNamespace: true"}.text());
  EXPECT_EQ(to_string(ids.services.at(1).id), "dynamo/frontend/generate");
  EXPECT_EQ(ids.services.at(0).id.name_space, "llama-3-1-" + ids.hash);
}

TEST(DeploymentHash, RefusesWhatHasNoIds) {
  const auto message = [](const std::string& text) {
    const test::Failure failure = test::failure_of([&] { ids_of(text); });
    EXPECT_EQ(failure.status, base::ExitStatus::kBadData);
    return failure.message;
  };
  const std::string kind = "kind: DynamoGraphDeployment\n";
  EXPECT_EQ(message("apiVersion: nvidia.com/v2\n" + kind),
            "f.yaml:1:13: apiVersion: 'nvidia.com/v2': unknown version; v1alpha1 and v1beta1 are "
            "supported");
  EXPECT_EQ(message("apiVersion: nvidia.com/v1beta1\n" + kind),
            "f.yaml:1:1: metadata.name: '': not a name for a namespace");
  EXPECT_EQ(message("apiVersion: nvidia.com/v1beta1\nmetadata: {name: A_B}\n" + kind),
            "f.yaml:2:18: metadata.name: 'A_B': not a name for a namespace");
  EXPECT_EQ(message(kHead + std::string("spec: {services: [a]}")),
            "f.yaml:4:18: spec.services: expected a map");
  EXPECT_EQ(message(kHead + std::string("spec: {services: {W: on}}")),
            "f.yaml:4:22: spec.services.W: expected a map");
  EXPECT_EQ(message(kHead + std::string("spec: {services: {W: {componentType: my-worker}}}")),
            "f.yaml:4:38: spec.services.W.componentType: 'my-worker': not a component of an "
            "endpoint id; a type is one word of a-z and 0-9");
  EXPECT_EQ(message(kBetaHead + std::string("spec: {components: {}}")),
            "f.yaml:4:20: spec.components: expected a list");
  EXPECT_EQ(message(kBetaHead + std::string("spec: {components: [{type: worker}]}")),
            "f.yaml:4:21: spec.components[0]: a service without a name");
  EXPECT_EQ(message(kBetaHead + std::string("spec: {components: [{name: a}, {name: a}]}")),
            "f.yaml:4:32: spec.components[1]: 'a': appears twice");
  const std::string deep = std::string(90, '[') + std::string(90, ']');
  EXPECT_EQ(message(kHead + std::string("spec: {services: {W: {envs: ") + deep + "}}}"),
            "f.yaml:4:7: spec: nested too deep");
}

TEST(DeploymentHash, ExistsWithoutServices) {
  EXPECT_TRUE(ids_of(kHead).services.empty());
  EXPECT_EQ(hash_of(kHead), hash_of(kBetaHead));
}

}  // namespace
}  // namespace fo::fleet
