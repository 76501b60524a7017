#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pod/dgd/dgd.h"
#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DgdV1Alpha1, TheMainContainerIsFirstAndKeepsEverything) {
  const Alpha alpha{
      .resources = "resources: {limits: {gpu: '2'}}",
      .pod =
          "nodeSelector: {a: b}\n        tolerations: [{operator: Exists}]\n"
          "        containers: [{name: side, image: s}]\n"
          "        initContainers: [{name: one, image: i}, {name: two, image: i}]",
      .main = "{image: i, command: [run], args: ['8000'], workingDir: /w, ofTomorrow: {a: [1]}}"};
  expect_same(template_of(alpha.text()),
              "spec: {nodeSelector: {a: b}, tolerations: [{operator: Exists}],\n"
              " containers: [{name: 'main', image: i, command: [run], args: ['8000'],\n"
              "  workingDir: /w, ofTomorrow: {a: [1]},\n"
              "  resources: {limits: {nvidia.com/gpu: '2'}}}, {name: side, image: s}],\n"
              " initContainers: [{name: one, image: i}, {name: two, image: i}]}");
}

TEST(DgdV1Alpha1, ServiceSaysItsReading) {
  const Read found = read(Alpha{.metadata = "{name: llm, namespace: here}"}.text());
  EXPECT_EQ(found.dgd.version, DgdVersion::kV1Alpha1);
  EXPECT_EQ(found.dgd.name, "llm");
  EXPECT_EQ(found.dgd.name_space, "here");
  const Service& service = found.dgd.services.at(0);
  EXPECT_EQ(service.name, "Worker");
  EXPECT_EQ(service.path, "spec.services.Worker");
  EXPECT_EQ(service.position.line, 7);
  EXPECT_EQ(service.position.column, 5);
  EXPECT_EQ(service.component_type, "worker");
  EXPECT_EQ(service.replicas, 1);
  EXPECT_TRUE(service.failover);
  EXPECT_EQ(service.gpus, 1);
  EXPECT_EQ(service.device_class, "gpu.nvidia.com");
}

TEST(DgdV1Alpha1, EnvOfTheContainerWinsOverTheServicesOverTheDeployments) {
  const Alpha alpha{
      .spec = "envs: [{name: A, value: d}, {name: B, value: d}, {name: C, value: d}]",
      .service = "envs: [{name: B, value: s}, {name: C, value: s}, {name: D, value: $(A)}]",
      .main = "{image: i, env: [{name: C, value: c}, {name: E, value: $(D)}]}"};
  const yaml::Node made = template_of(alpha.text());
  const yaml::Node* containers = made.find_path({"spec", "containers"});
  ASSERT_NE(containers, nullptr);
  expect_same(*containers->items().at(0).find("env"),
              "[{name: A, value: d}, {name: B, value: s}, {name: D, value: $(A)},"
              " {name: C, value: c}, {name: E, value: $(D)}]");
}

TEST(DgdV1Alpha1, TheServicesSecretComesBeforeTheContainersSources) {
  const Alpha alpha{.service = "envFromSecret: token",
                    .main = "{image: i, envFrom: [{configMapRef: {name: c}}]}"};
  expect_same(template_of(alpha.text()).find_path({"spec", "containers"})->items().at(0),
              "{name: 'main', image: i, resources: {limits: {nvidia.com/gpu: '1'}},\n"
              " envFrom: [{secretRef: {name: token}}, {configMapRef: {name: c}}]}");
}

TEST(DgdV1Alpha1, ResourcesAreMergedAndTheContainersWin) {
  const Alpha alpha{
      .resources =
          "resources: {limits: {gpu: '1', cpu: '8', custom: {rdma/ib: '2'}}, requests: {gpu: '1', "
          "memory: 1Gi, custom: {ephemeral-storage: 2Gi}}, claims: [{name: c}]}",
      .pod =
          "resourceClaims: [{name: c, resourceClaimName: one}, {name: d, resourceClaimName: two}]",
      .main =
          "{image: i, resources: {limits: {cpu: '4', nvidia.com/gpu: 4}, claims: [{name: d}]}}"};
  const Read found = read(alpha.text());
  EXPECT_THAT(found.findings, IsEmpty());
  EXPECT_EQ(found.dgd.services.at(0).gpus, 4);
  const yaml::Node& made = found.dgd.services.at(0).pod_template;
  expect_same(*made.find_path({"spec", "containers"})->items().at(0).find("resources"),
              "{limits: {cpu: '4', nvidia.com/gpu: 4, rdma/ib: '2'}, requests: {nvidia.com/gpu: "
              "'1', memory: 1Gi, ephemeral-storage: 2Gi}, claims: [{name: c}, {name: d}]}");
}

TEST(DgdV1Alpha1, ProbesOfTheServiceAreTheMainContainersWhenItHasNone) {
  Alpha alpha{
      .service = "livenessProbe: {httpGet: {port: 1}}\n      readinessProbe: {httpGet: {port: 2}}",
      .main = "{image: i, livenessProbe: {httpGet: {port: 3}}, readinessProbe: null}"};
  const yaml::Node made = template_of(alpha.text());
  const yaml::Node& main = made.find_path({"spec", "containers"})->items().at(0);
  expect_same(*main.find("livenessProbe"), "{httpGet: {port: 3}}");
  expect_same(*main.find("readinessProbe"), "{httpGet: {port: 2}}");
  alpha.service = "livenessProbe: {httpGet: {port: none}}";
  EXPECT_THAT(errors(alpha),
              ElementsAre(HasSubstr("spec.services.Worker.livenessProbe.httpGet.port: 'none': "
                                    "not a port of this container")));
}

TEST(DgdV1Alpha1, ProbesMayNameThePortThatTheOperatorAdds) {
  EXPECT_THAT(errors(Alpha{.service = "readinessProbe: {httpGet: {port: system}}",
                           .main = "{image: i, livenessProbe: {httpGet: {port: system}}}"}),
              IsEmpty());
  EXPECT_THAT(errors(Alpha{.service = "readinessProbe: {httpGet: {port: system}}",
                           .main = "{image: i, ports: [{containerPort: 1, name: p}]}"}),
              ElementsAre(HasSubstr("'system': not a port of this container")));
}

TEST(DgdV1Alpha1, MetadataOfThePodWinsOverTheServicesOverTheDeployments) {
  const Alpha alpha{
      .spec = "labels: {a: d, b: d, c: d}",
      .service =
          "labels: {b: s, c: s}\n      extraPodMetadata: {labels: {c: p}, annotations: {x: z}}"};
  expect_same(*template_of(alpha.text()).find("metadata"),
              "{labels: {a: d, b: s, c: p}, annotations: {x: z}}");
}

TEST(DgdV1Alpha1, PvcsAreVolumesOfTheirName) {
  const Alpha alpha{
      .spec = "pvcs: [{name: models}, {name: cache, create: true}, {name: unused}]",
      .service =
          "volumeMounts: [{name: models, mountPoint: /m}, {name: models, mountPoint: /n}, {name: "
          "own, "
          "mountPoint: /o}]",
      .pod = "volumes: [{name: own, emptyDir: {}}]",
      .main = "{image: i, volumeMounts: [{name: models, mountPath: /p, subPath: x}]}"};
  const yaml::Node made = template_of(alpha.text());
  expect_same(*made.find_path({"spec", "volumes"}),
              "[{name: own, emptyDir: {}}, {name: models, persistentVolumeClaim: {claimName: "
              "models}}]");
  expect_same(*made.find_path({"spec", "containers"})->items().at(0).find("volumeMounts"),
              "[{name: models, mountPath: /p, subPath: x}, {name: 'models', mountPath: /m}, {name: "
              "'models', mountPath: /n}, {name: 'own', mountPath: /o}]");
}

TEST(DgdV1Alpha1, MountsNameAPvcAndAFreePlace) {
  const Alpha alpha{
      .spec = "pvcs: [{name: models}]",
      .service =
          "volumeMounts: [{name: other, mountPoint: /o}, {name: models}, {mountPoint: /x}, {name: "
          "models, mountPoint: /p}]",
      .main = "{image: i, volumeMounts: [{name: models, mountPath: /p}]}"};
  EXPECT_THAT(
      errors(alpha),
      ElementsAre(
          "spec.services.Worker.volumeMounts[0].name: 'other': not a PVC of the deployment; "
          "name one of spec.pvcs",
          "spec.services.Worker.volumeMounts[1]: a mount without a path; set mountPoint",
          "spec.services.Worker.volumeMounts[2]: a mount without a volume; name one of "
          "spec.pvcs",
          "spec.services.Worker.volumeMounts[3].mountPoint: '/p': two mounts at one path; "
          "leave one of them out"));
}

TEST(DgdV1Alpha1, APvcWhoseNameIsNoVolumesIsRefused) {
  EXPECT_THAT(errors(Alpha{.spec = "pvcs: [{name: the.models}]",
                           .service = "volumeMounts: [{name: the.models, mountPoint: /m}]"}),
              ElementsAre("spec.services.Worker.volumeMounts[0].name: 'the.models': not a volume "
                          "name; at most 63 of a-z, 0-9 and -, no - at either end"));
}

TEST(DgdV1Alpha1, ACompilationCacheThatNoVariableNamesIsSaid) {
  Alpha alpha{
      .spec = "pvcs: [{name: cache}]",
      .service = "volumeMounts: [{name: cache, mountPoint: /c, useAsCompilationCache: true}]"};
  EXPECT_THAT(
      warnings(alpha),
      ElementsAre(
          "spec.services.Worker.volumeMounts[0].useAsCompilationCache: mounted, but no variable "
          "names it to the backend; set the backend's own, such as VLLM_CACHE_ROOT"));
  alpha.main = "{image: i, env: [{name: VLLM_CACHE_ROOT, value: /c}]}";
  EXPECT_THAT(warnings(alpha), IsEmpty());
}

TEST(DgdV1Alpha1, SharedMemoryIsMadeWhereItIsAskedFor) {
  Alpha alpha;
  EXPECT_EQ(template_of(alpha.text()).find_path({"spec", "volumes"}), nullptr);
  alpha.service = "sharedMemory: {disabled: true}";
  EXPECT_EQ(template_of(alpha.text()).find_path({"spec", "volumes"}), nullptr);
  alpha.service = "sharedMemory: {size: 2Gi}";
  const yaml::Node made = template_of(alpha.text());
  expect_same(*made.find_path({"spec", "volumes"}),
              "[{name: 'shared-memory', emptyDir: {medium: 'Memory', sizeLimit: 2Gi}}]");
  expect_same(*made.find_path({"spec", "containers"})->items().at(0).find("volumeMounts"),
              "[{name: 'shared-memory', mountPath: '/dev/shm'}]");
  alpha.service = "sharedMemory: {disabled: true, size: 2Gi}";
  EXPECT_THAT(
      errors(alpha),
      ElementsAre("spec.services.Worker.sharedMemory.size: a size, although it is disabled; "
                  "leave one of them out"));
  alpha.service = "sharedMemory: {}";
  alpha.main = "{image: i, volumeMounts: [{name: v, mountPath: /dev/shm}]}";
  alpha.pod = "volumes: [{name: v, emptyDir: {}}]";
  // It takes precedence, as in Dynamo's operator.
  EXPECT_THAT(errors(alpha), IsEmpty());
  EXPECT_THAT(warnings(alpha), ElementsAre("spec.services.Worker.sharedMemory: replaces the "
                                           "volume 'v' at /dev/shm; leave one of them out"));
  const yaml::Node won = template_of(alpha.text());
  expect_same(*won.find_path({"spec", "volumes"}),
              "[{name: 'shared-memory', emptyDir: {medium: 'Memory', sizeLimit: 8Gi}}]");
  expect_same(*won.find_path({"spec", "containers"})->items().at(0).find("volumeMounts"),
              "[{name: 'shared-memory', mountPath: '/dev/shm'}]");
  // A volume that another container mounts stays.
  alpha.pod =
      "volumes: [{name: v, emptyDir: {}}]\n"
      "        containers: [{name: s, image: i, volumeMounts: [{name: v, mountPath: /x}]}]";
  EXPECT_EQ(template_of(alpha.text()).find_path({"spec", "volumes"})->items().size(), 2U);
  alpha.pod = "volumes: [{name: v, emptyDir: {}}, {name: shared-memory, emptyDir: {}}]";
  EXPECT_THAT(errors(alpha),
              ElementsAre("spec.services.Worker.sharedMemory: 'shared-memory': a volume of the pod "
                          "has this name; rename it"));
}

TEST(DgdV1Alpha1, NullIsAbsent) {
  const Alpha alpha{
      .spec = "envs:\n  labels: ~",
      .service =
          "multinode: null\n      envs: ~\n      sharedMemory:\n      gpuMemoryService: null\n"
          "      frontendSidecar: null",
      .main = "{image: i, env: null, resources: null, envFrom: ~, command: null}"};
  const yaml::Node made = template_of(alpha.text());
  EXPECT_EQ(made.find("metadata"), nullptr);
  const yaml::Node& main = made.find_path({"spec", "containers"})->items().at(0);
  EXPECT_EQ(main.find("env"), nullptr);
  expect_same(*main.find("resources"), "{limits: {nvidia.com/gpu: '1'}}");
}

TEST(DgdV1Alpha1, PositionsOfTheInputStay) {
  const yaml::Node made = template_of(Alpha{.service = "envs: [{name: B, value: c}]"}.text());
  const yaml::Node& main = made.find_path({"spec", "containers"})->items().at(0);
  EXPECT_EQ(main.position().line, 14);
  EXPECT_EQ(main.find("env")->items().at(0).position().line, 11);
}

TEST(DgdV1Alpha1, AMainContainerWithAnImageIsWanted) {
  EXPECT_THAT(errors(Alpha{.main = "null"}),
              ElementsAre("spec.services.Worker.extraPodSpec.mainContainer: no main container; set "
                          "mainContainer with its image"));
  EXPECT_THAT(errors(Alpha{.main = "{command: [x]}"}),
              ElementsAre("spec.services.Worker.extraPodSpec.mainContainer: no image; set image"));
  EXPECT_THAT(errors(Alpha{.main = "{image: i, name: vllm}"}), IsEmpty());
  EXPECT_THAT(warnings(Alpha{.main = "{image: i, name: vllm}"}),
              ElementsAre(HasSubstr("'vllm': the main container is named 'main'; leave it out")));
}

TEST(DgdV1Alpha1, FailoverNeedsTheGms) {
  EXPECT_THAT(errors(Alpha{.service = "gpuMemoryService: {enabled: false}"}),
              ElementsAre("spec.services.Worker.gpuMemoryService.enabled: failover needs the GPU "
                          "memory service; set it to true, or leave gpuMemoryService out"));
}

TEST(DgdV1Alpha1, WhatOnlyTheOperatorDoesIsSaid) {
  EXPECT_THAT(errors(Alpha{.service = "frontendSidecar: {image: i}"}),
              ElementsAre("spec.services.Worker.frontendSidecar: only Dynamo's operator creates "
                          "this container; write it among extraPodSpec.containers"));
  EXPECT_THAT(warnings(Alpha{.service = "modelRef: {name: m}\n      scalingAdapter: {enabled: "
                                        "false}\n      ingress: {enabled: true}"}),
              ElementsAre("spec.services.Worker.modelRef: only Dynamo's operator acts on this: the "
                          "pod is generated without it",
                          "spec.services.Worker.ingress: only Dynamo's operator acts on this: the "
                          "pod is generated without it"));
}

TEST(DgdV1Alpha1, UnknownFieldsAreSaidAtEveryLevel) {
  EXPECT_THAT(warnings(Alpha{.spec = "servces: {}", .service = "replica: 1"}),
              ElementsAre("spec.servces: unknown field; did you mean 'services'?",
                          "spec.services.Worker.replica: unknown field; did you mean 'replicas'?"));
}

TEST(DgdV1Alpha1, ValuesThatAreNoStringsAreRefusedWithTheRemedy) {
  EXPECT_THAT(
      errors(Alpha{.main = "{image: i, env: [{name: A, value: 5}, {name: B, value: on}]}"}),
      ElementsAre("spec.services.Worker.extraPodSpec.mainContainer.env[0].value: '5': a number, "
                  "expected a string; put it in quotes",
                  "spec.services.Worker.extraPodSpec.mainContainer.env[1].value: 'on': a boolean, "
                  "expected a string; put it in quotes"));
}

TEST(DgdV1Alpha1, SharedMemoryMayBeUnwanted) {
  Alpha alpha;
  EXPECT_FALSE(read(alpha.text()).dgd.services.at(0).wants_no_shared_memory);
  alpha.service = "sharedMemory: {disabled: true}";
  EXPECT_TRUE(read(alpha.text()).dgd.services.at(0).wants_no_shared_memory);
  const Beta beta{.component = "sharedMemorySize: '0'"};
  EXPECT_TRUE(read(beta.text()).dgd.services.at(0).wants_no_shared_memory);
}

TEST(DgdV1Alpha1, GpusMayBeCustomOnesButSaidOnce) {
  const Read found =
      read(Alpha{.resources = "resources: {limits: {custom: {nvidia.com/gpu: '2'}}}"}.text());
  EXPECT_THAT(found.findings, IsEmpty());
  EXPECT_EQ(found.dgd.services.at(0).gpus, 2);
  EXPECT_THAT(
      errors(Alpha{.resources = "resources: {limits: {gpu: '1', custom: {nvidia.com/gpu: '2'}}}"}),
      ElementsAre("spec.services.Worker.resources.limits.custom['nvidia.com/gpu']: '2': it "
                  "replaces gpu: '1'; leave one of them out"));
}

TEST(DgdV1Alpha1, WhatGoesWithTheDeploymentIsSaid) {
  const Alpha alpha{
      .spec = "restart: {id: a}\n  labels: {a: b}\n  topologyConstraint: {packDomain: rack}"};
  EXPECT_THAT(
      warnings(alpha),
      ElementsAre(
          "spec.restart: is dropped with the deployment: all its services fail over",
          "spec.topologyConstraint: is dropped with the deployment: all its services fail over"));
  std::string text = alpha.text();
  text.replace(text.find("    Worker:"), 0, "    Front: {componentType: frontend}\n");
  EXPECT_THAT(warnings(text), IsEmpty());
}

}  // namespace
}  // namespace fo::pod
