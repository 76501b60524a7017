#include "pod/dgd/dgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Dgd, IsOneByGroupAndKind) {
  EXPECT_TRUE(is_dgd(parse("{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment}")));
  EXPECT_TRUE(is_dgd(parse("{apiVersion: nvidia.com/v9, kind: DynamoGraphDeployment}")));
  EXPECT_FALSE(is_dgd(parse("{apiVersion: v1, kind: DynamoGraphDeployment}")));
  EXPECT_FALSE(is_dgd(parse("{apiVersion: nvidia.com/v1alpha1, kind: DynamoModel}")));
  EXPECT_FALSE(is_dgd(parse("[apiVersion, kind]")));
  EXPECT_FALSE(is_dgd(parse("{apiVersion: [nvidia.com/v1beta1], kind: {a: b}}")));
  EXPECT_FALSE(is_dgd(yaml::Node()));
}

TEST(Dgd, RefusesAnUnknownVersion) {
  EXPECT_THAT(
      errors("{apiVersion: nvidia.com/v2, kind: DynamoGraphDeployment, spec: {}}"),
      ElementsAre(
          "apiVersion: 'nvidia.com/v2': unknown version; v1alpha1 and v1beta1 are supported"));
}

TEST(Dgd, FindingsHaveTheirPlaceAndTheDocumentsOrder) {
  const Alpha alpha{.metadata = "{name: Llm}",
                    .failover = "failover: {enabled: true, numShadows: 2}",
                    .resources = "resources: {limits: {gpu: half}}"};
  const Findings findings = read(alpha.text()).findings;
  std::vector<std::string> all;
  for (const Finding& finding : findings) all.push_back(format(finding, "f.yaml"));
  EXPECT_THAT(
      all,
      ElementsAre(
          "f.yaml:3:18: metadata.name: 'Llm': not a name for generated objects; at most 63 of "
          "a-z, 0-9, - and ., a letter or digit at both ends",
          "f.yaml:9:45: spec.services.Worker.failover.numShadows: 2: only one shadow is "
          "supported; leave it out, or set it to 1",
          "f.yaml:10:33: spec.services.Worker.resources.limits.gpu: 'half': not a whole number of "
          "GPUs; set it to \"1\""));
}

TEST(Dgd, FailoverIsForWorkers) {
  for (const char* good :
       {"componentType: worker", "componentType: prefill", "componentType: decode",
        "{componentType: worker, subComponentType: decode}"}) {
    Alpha alpha;
    alpha.type = good[0] == '{' ? "componentType: worker\n      subComponentType: decode" : good;
    EXPECT_THAT(errors(alpha), IsEmpty()) << good;
  }
  Alpha frontend;
  frontend.type = "componentType: frontend";
  EXPECT_THAT(errors(frontend),
              ElementsAre("spec.services.Worker.componentType: 'frontend': failover is for workers "
                          "only; leave failover out, or make it a worker, prefill or decode"));
  EXPECT_THAT(errors(Alpha{.type = ""}),
              ElementsAre(HasSubstr("spec.services.Worker: no component type: failover is for")));
  Beta planner;
  planner.type = "type: planner";
  EXPECT_THAT(errors(planner), ElementsAre(HasSubstr("spec.components[0].type: 'planner'")));
}

TEST(Dgd, FailoverIsNotForSeveralNodes) {
  EXPECT_THAT(errors(Alpha{.service = "multinode: {nodeCount: 2}"}),
              ElementsAre("spec.services.Worker.multinode: failover is not supported with "
                          "multinode deployments; leave one of them out"));
  EXPECT_THAT(errors(Alpha{.service = "multinode: null"}), IsEmpty());
  EXPECT_THAT(errors(Beta{.component = "multinode: {}"}),
              ElementsAre("spec.components[0].multinode: failover is not supported with "
                          "multinode deployments; leave one of them out"));
}

TEST(Dgd, FailoverNeedsWholeGpus) {
  const auto with = [](const std::string& limits) {
    const Alpha alpha{.resources = "resources: {limits: " + limits + "}"};
    return errors(alpha);
  };
  EXPECT_THAT(with("{gpu: 2}"), IsEmpty());
  EXPECT_THAT(with("{gpu: '32'}"), IsEmpty());
  EXPECT_THAT(with("{}"), ElementsAre("spec.services.Worker.resources.limits.gpu: missing: "
                                      "failover needs at least one GPU; set it to \"1\""));
  EXPECT_THAT(with("{gpu: '0'}"), ElementsAre(HasSubstr("0: failover needs at least one GPU")));
  EXPECT_THAT(with("{gpu: '1.5'}"), ElementsAre(HasSubstr("'1.5': not a whole number of GPUs")));
  EXPECT_THAT(with("{gpu: 500m}"), ElementsAre(HasSubstr("'500m': not a whole number of GPUs")));
  EXPECT_THAT(with("{gpu: '33'}"), ElementsAre(HasSubstr("33: a claim allocates at most 32")));
  EXPECT_THAT(with("{gpu: '99999999999999999999'}"), ElementsAre(HasSubstr("not a whole number")));
  EXPECT_THAT(with("{gpu: [1]}"), Contains(HasSubstr("a list, expected a quantity")));
  EXPECT_THAT(
      with("{gpu: '1', gpuType: gpu.intel.com/xe}"),
      Contains("spec.services.Worker.resources.limits.gpuType: 'gpu.intel.com/xe': failover "
               "shares NVIDIA's GPUs only; leave it out"));
}

TEST(Dgd, ModesAreOfOnePod) {
  EXPECT_THAT(errors(Alpha{.failover = "failover: {enabled: true, mode: interPod}"}),
              ElementsAre("spec.services.Worker.failover.mode: 'interPod': engines and GMS share "
                          "one pod here; leave it out, or set it to intraPod"));
  EXPECT_THAT(errors(Alpha{.failover = "failover: {enabled: true, mode: IntraPod}"}),
              ElementsAre(HasSubstr("'IntraPod': unknown mode")));
  EXPECT_THAT(errors(Alpha{.failover = "failover: {enabled: true, mode: intraPod}",
                           .service = "gpuMemoryService: {enabled: true, mode: interPod}"}),
              ElementsAre(HasSubstr("gpuMemoryService.mode: 'interPod': engines and GMS share")));
  EXPECT_THAT(errors(Beta{.experimental =
                              "{failover: {mode: IntraPod}, gpuMemoryService: {mode: InterPod}}"}),
              ElementsAre(HasSubstr("gpuMemoryService.mode: 'InterPod': engines and GMS share")));
}

TEST(Dgd, OneShadowIsAllThatIsBuilt) {
  for (const char* count : {"0", "2", "-1"}) {
    const Beta beta{.experimental = std::string("{failover: {numShadows: ") + count + "}}"};
    EXPECT_THAT(
        errors(beta),
        ElementsAre(std::string("spec.components[0].experimental.failover.numShadows: ") + count +
                    ": only one shadow is supported; leave it out, or set it to 1"));
  }
  const Beta one{.experimental = "{failover: {numShadows: 1}}"};
  EXPECT_THAT(errors(one), IsEmpty());
}

TEST(Dgd, NamesOfGeneratedContainersAreTaken) {
  for (const char* name :
       {"engine-0", "engine-x", "gms-weights", "gms-server", "gms-lockd", "fo-tools"}) {
    const Alpha alpha{.pod = std::string("initContainers: [{image: i, name: ") + name + "}]"};
    EXPECT_THAT(
        errors(alpha),
        ElementsAre("spec.services.Worker.extraPodSpec.initContainers[0].name: '" +
                    std::string(name) + "': a container of failover has this name; rename it"));
  }
}

TEST(Dgd, ASecondMainContainerIsRefusedInitContainersIncluded) {
  Alpha alpha;
  for (const std::string& list : {std::string("initContainers"), std::string("containers")}) {
    alpha.pod = list + ": [{image: i, name: main}]";
    EXPECT_THAT(errors(alpha),
                ElementsAre("spec.services.Worker.extraPodSpec." + list +
                            "[0].name: 'main': two containers with one name; rename one of them"));
  }
  EXPECT_THAT(errors(Beta{.containers = "[{name: main, image: i, resources: {limits: "
                                        "{nvidia.com/gpu: 1}}}, {name: main, image: j}]"}),
              ElementsAre("spec.components[0].podTemplate.spec.containers[1].name: 'main': two "
                          "containers with one name; rename one of them"));
}

TEST(Dgd, WhatTheApiServerRefusesIsLeftToIt) {
  const Alpha alpha{
      .spec = "labels: {a/: b c}",
      .service = "envs: [{name: A=B, value: a, valueFrom: {fieldRef: {fieldPath: p}}}]",
      .pod =
          "volumes: [{name: V}, {name: V}]\n        resourceClaims: [{name: c}]\n"
          "        containers: [{name: a}, {name: a, ports: [{containerPort: 70000, protocol: x}]},"
          " {name: b, livenessProbe: {periodSeconds: 1, exec: {command: [x]}, tcpSocket: {}}}]",
      .main =
          "{image: i, imagePullPolcy: Always, volumeMounts: [{name: w, mountPath: 'a:b'}],"
          " resources: {limits: {memory: 8GB}, claims: [{name: d}]}}"};
  EXPECT_THAT(read(alpha.text()).findings, IsEmpty());
}

TEST(Dgd, AnEngineHasToComeBack) {
  EXPECT_THAT(errors(Alpha{.pod = "restartPolicy: Never"}),
              ElementsAre("spec.services.Worker.extraPodSpec.restartPolicy: 'Never': a dead engine "
                          "must be restarted; leave it out, or set it to Always"));
  EXPECT_THAT(errors(Alpha{.pod = "restartPolicy: Always"}), IsEmpty());
}

TEST(Dgd, ProbesNameAPortThatIsThere) {
  const auto with = [](const std::string& probe) {
    const Alpha alpha{
        .pod =
            "containers: [{name: a, image: i, ports: [{containerPort: 80, name: http}], "
            "livenessProbe: " +
            probe + "}]"};
    return errors(alpha);
  };
  EXPECT_THAT(with("{httpGet: {port: http}}"), IsEmpty());
  EXPECT_THAT(with("{httpGet: {port: 9}}"), IsEmpty());
  EXPECT_THAT(
      with("{httpGet: {port: htp}}"),
      ElementsAre("spec.services.Worker.extraPodSpec.containers[0].livenessProbe.httpGet.port: "
                  "'htp': not a port of this container; name one of its ports, or use a number"));
}

TEST(Dgd, GmsClientsAreContainers) {
  Alpha alpha{
      .service = "gpuMemoryService: {enabled: true, extraClientContainers: [side, side, other]}",
      .pod = "containers: [{name: side, image: i}]"};
  EXPECT_THAT(errors(alpha),
              ElementsAre("spec.services.Worker.gpuMemoryService.extraClientContainers[1]: 'side': "
                          "named twice; leave one of them out",
                          "spec.services.Worker.gpuMemoryService.extraClientContainers[2]: "
                          "'other': unknown container; name a container of this service"));
  alpha.service =
      "gpuMemoryService: {enabled: true, deviceClassName: big.gpu, "
      "extraClientContainers: [side]}";
  const Read good = read(alpha.text());
  EXPECT_THAT(good.findings, IsEmpty());
  EXPECT_THAT(good.dgd.services.at(0).gms_clients, ElementsAre("side"));
  EXPECT_EQ(good.dgd.services.at(0).device_class, "big.gpu");
}

TEST(Dgd, NamesFitWhatIsMade) {
  Alpha alpha{.metadata = "{}"};
  EXPECT_THAT(errors(alpha),
              ElementsAre("metadata.name: no name; the generated objects are named after it"));
  // It is a label's value, and part of names with up to 253 characters.
  for (const std::string& good :
       {std::string(63, 'a'), std::string("qwen3-0.6b"), std::string("a.b-c")}) {
    alpha.metadata = "{name: " + good + "}";
    EXPECT_THAT(errors(alpha), IsEmpty()) << good;
  }
  for (const std::string& bad : {std::string(64, 'a'), std::string("a..b"), std::string("a.-b"),
                                 std::string("a."), std::string("A"), std::string("a_b")}) {
    alpha.metadata = "{name: " + bad + "}";
    EXPECT_THAT(errors(alpha),
                ElementsAre("metadata.name: '" + bad +
                            "': not a name for generated objects; at "
                            "most 63 of a-z, 0-9, - and ., a letter or digit at both ends"));
  }
  alpha.metadata = "{name: a}";
  Alpha odd;
  std::string text = odd.text();
  text.replace(text.find("Worker:"), 7, "My_Worker:");
  EXPECT_THAT(errors(text),
              ElementsAre(HasSubstr(
                  "spec.services.My_Worker: 'My_Worker': not a name for generated objects")));
}

TEST(Dgd, TwoServicesThatDifferInCaseOnlyAreRefused) {
  const std::string text = Alpha().text();
  const std::string service = text.substr(text.find("    Worker:") + 11);
  EXPECT_THAT(
      errors(text + "    worker:" + service),
      ElementsAre(
          "spec.services.worker: 'worker': its generated objects have the same names as those of "
          "'Worker'; rename one of them"));
}

TEST(Dgd, ServicesWithoutFailoverAreLeftAlone) {
  const Alpha alpha{.metadata = "{}",
                    .type = "componentType: 5",
                    .failover = "failover: {enabled: false, numShadows: 7, mode: what}",
                    .resources = "resources: [1]",
                    .pod = "containers: no list",
                    .main = "{comand: 5}"};
  const Read found = read(alpha.text());
  EXPECT_THAT(lines(found.findings, Severity::kError), IsEmpty());
  EXPECT_THAT(lines(found.findings, Severity::kWarning), IsEmpty());
  ASSERT_EQ(found.dgd.services.size(), 1U);
  EXPECT_FALSE(found.dgd.services[0].failover);
  EXPECT_TRUE(found.dgd.services[0].pod_template.is_null());
}

TEST(Dgd, WhatHidesWhetherThereIsFailoverIsRefused) {
  EXPECT_THAT(errors(Alpha{.failover = "failover: yes"}),
              ElementsAre("spec.services.Worker.failover: 'yes': a boolean, expected a map"));
  EXPECT_THAT(errors(Alpha{.failover = "failover: {}"}),
              ElementsAre("spec.services.Worker.failover: does not set whether it is enabled; set "
                          "enabled: true, or leave failover out"));
  EXPECT_THAT(
      errors(Alpha{.failover = "failover: {enabled: 'true'}"}),
      ElementsAre("spec.services.Worker.failover.enabled: 'true': a string, expected true or "
                  "false; leave the quotes out"));
  const std::string head = "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\n";
  EXPECT_THAT(errors(head + "spec: [1]\n"), ElementsAre("spec: a list, expected a map"));
  EXPECT_THAT(errors(head + "spec: {services: [1]}\n"),
              ElementsAre("spec.services: a list, expected a map"));
  EXPECT_THAT(errors(head + "spec: {services: {a: 1}}\n"),
              ElementsAre("spec.services.a: '1': a number, expected a map"));
  const std::string beta = "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n";
  EXPECT_THAT(errors(beta + "spec: {components: {a: 1}}\n"),
              ElementsAre("spec.components: a map, expected a list"));
  EXPECT_THAT(errors(beta + "spec: {components: [1]}\n"),
              ElementsAre("spec.components[0]: '1': a number, expected a map"));
  EXPECT_THAT(errors(beta + "spec: {components: [{name: a, experimental: on}]}\n"),
              ElementsAre("spec.components[0].experimental: 'on': a boolean, expected a map"));
  EXPECT_THAT(errors(head), IsEmpty());
}

TEST(Dgd, ReplicasAreCounted) {
  EXPECT_EQ(read(Alpha{.service = "replicas: 3"}.text()).dgd.services.at(0).replicas, 3);
  EXPECT_THAT(
      errors(Alpha{.service = "replicas: -1"}),
      ElementsAre("spec.services.Worker.replicas: -1: not a number of replicas; 0 or more"));
  EXPECT_THAT(errors(Alpha{.service = "replicas: 99999999999"}),
              ElementsAre(HasSubstr("not a number of replicas")));
  EXPECT_THAT(errors(Alpha{.service = "replicas: '3'"}),
              ElementsAre(HasSubstr("expected a whole number")));
}

TEST(Dgd, OneThatNoClusterTakesIsNotLookedAt) {
  Alpha alpha;
  alpha.service = "labels: {";
  for (int i = 0; i < 40'000; ++i) alpha.service += "a" + std::to_string(i) + ": b,\n        ";
  alpha.service += "}";
  EXPECT_THAT(errors(alpha), ElementsAre("more than 30000 values or 1572864 bytes of text; "
                                         "too large for a cluster"));
}

TEST(Dgd, OneWithMoreTextThanAClusterTakesIsNotLookedAt) {
  const Alpha alpha{.service = "labels: {a: " + std::string(std::size_t{2} << 20, 'x') + "}"};
  EXPECT_THAT(errors(alpha), ElementsAre(HasSubstr("or 1572864 bytes of text")));
}

TEST(Dgd, HoldsAsManyServicesAsTheNewerVersionTakes) {
  const auto with = [](int count) {
    std::string text = Alpha().text();
    const std::string service = text.substr(text.find("    Worker:") + 11);
    for (int i = 1; i < count; ++i) text += "    w" + std::to_string(i) + ":" + service;
    return errors(text);
  };
  EXPECT_THAT(with(25), IsEmpty());
  EXPECT_THAT(with(26), ElementsAre("spec.services.w25: more than 25 services with failover; "
                                    "spread them over several deployments"));
}

/// Replaces every value of a valid document in turn by values of all other kinds.
void spoil(const yaml::Node& root, yaml::Node& node) {
  const yaml::Node kept = node;
  for (const char* other : {"5", "text", "on", "[]", "[1, [2], {a: b}]", "{}", "{a: {b: c}}"}) {
    node = parse(std::string("x: ") + other).members()[0].value;
    Findings findings;
    if (!is_dgd(root)) continue;
    EXPECT_NO_THROW(read_dgd(root, findings));
  }
  node = kept;
  for (yaml::Node& item : node.items()) spoil(root, item);
  for (yaml::Node::Member& member : node.members()) spoil(root, member.value);
}

TEST(Dgd, AnyValueMayBeOfAnyKind) {
  const Alpha alpha{
      .spec =
          "labels: {a: b}\n  envs: [{name: A, value: b}]\n  pvcs: [{name: cache, create: true}]",
      .service =
          "envs: [{name: B, value: c}]\n      envFromSecret: s\n      sharedMemory: {size: 2Gi}\n"
          "      volumeMounts: [{name: cache, mountPoint: /c, useAsCompilationCache: true}]\n"
          "      extraPodMetadata: {labels: {c: d}}\n      livenessProbe: {httpGet: {port: 80}}\n"
          "      gpuMemoryService: {enabled: true, extraClientContainers: [side]}",
      .pod =
          "containers: [{name: side, image: i}]\n        volumes: [{name: v, emptyDir: {}}]\n"
          "        resourceClaims: [{name: c, resourceClaimName: d}]",
      .main =
          "{image: i, env: [{name: C, value: d}], envFrom: [{secretRef: {name: t}}], ports: "
          "[{containerPort: 80, name: p}], volumeMounts: [{name: v, mountPath: /v}], resources: "
          "{limits: {cpu: 1}, claims: [{name: c}]}}"};
  yaml::Node root = parse(alpha.text());
  Findings findings;
  read_dgd(root, findings);
  EXPECT_THAT(lines(findings, Severity::kError), IsEmpty());
  spoil(root, root);

  const Beta beta{
      .spec = "labels: {a: b}\n  env: [{name: A, value: b}]",
      .component = "sharedMemorySize: 2Gi\n    compilationCache: {pvcName: cache, mountPath: /c}",
      .pod = "volumes: [{name: v, emptyDir: {}}]\n        initContainers: [{name: a, image: i}]"};
  root = parse(beta.text());
  findings.clear();
  read_dgd(root, findings);
  EXPECT_THAT(lines(findings, Severity::kError), IsEmpty());
  spoil(root, root);
}

}  // namespace
}  // namespace fo::pod
