#include "pod/dgd/discovery.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::node;
using test::Worker;

// A worker whose deployment keeps a Frontend.
struct Graph {
  Worker worker = {};
  std::string name = "qwen3-0.6b";
  std::string name_space = "prod";
  std::string annotations = "{}";
  std::string kept_type = "frontend";

  [[nodiscard]] Generated generate(const GenerateOptions& options = {}) const {
    Service kept;
    kept.name = "Frontend";
    kept.path = "spec.services.Frontend";
    kept.component_type = kept_type;
    Dgd dgd;
    dgd.name = name;
    dgd.name_space = name_space;
    dgd.annotations = node(annotations);
    dgd.services = {kept, worker.service};
    return worker.generate_in(std::move(dgd), options);
  }
};

std::string variable(const Generated& made, std::string_view name, int engine = 1) {
  const yaml::Node container = made.container(engine_name(engine));
  const yaml::Node* entry = yaml::find_named(container.find("env"), "name", name);
  if (entry == nullptr) return "(none)";
  const yaml::Node* field = entry->find_path({"valueFrom", "fieldRef", "fieldPath"});
  return field != nullptr ? "field " + field->text() : entry->text_at({"value"});
}

std::string metadata(const Generated& made, std::string_view kind, std::string_view key) {
  const yaml::Node* found = made.workload().find_path({"spec", "template", "metadata", kind, key});
  return found == nullptr ? "(none)" : found->text();
}

TEST(Discovery, AWorkerIsGivenWhatAFrontendLooksFor) {
  for (const PodLayout layout : {PodLayout::kPlan, PodLayout::kDynamo}) {
    GenerateOptions options;
    options.layout = layout;
    const Generated made = Graph().generate(options);
    ASSERT_EQ(made.errors(), "");
    EXPECT_EQ(variable(made, "POD_NAME"), "field metadata.name");
    EXPECT_EQ(variable(made, "POD_NAMESPACE"), "field metadata.namespace");
    EXPECT_EQ(variable(made, "POD_UID"), "field metadata.uid");
    EXPECT_EQ(variable(made, "DYN_NAMESPACE"), "prod-qwen3-0-6b");
    EXPECT_EQ(variable(made, "DYN_COMPONENT"), "worker");
    EXPECT_EQ(variable(made, "DYN_PARENT_DGD_K8S_NAME"), "qwen3-0.6b");
    EXPECT_EQ(variable(made, "DYN_PARENT_DGD_K8S_NAMESPACE"), "prod");
    EXPECT_EQ(variable(made, "DYN_DISCOVERY_BACKEND"), "kubernetes");
    EXPECT_EQ(variable(made, "DYN_KUBE_DISCOVERY_MODE"), "container");
    EXPECT_EQ(variable(made, "CONTAINER_NAME", 0), "engine-0");
    EXPECT_EQ(variable(made, "CONTAINER_NAME", 1), "engine-1");
    EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-discovery-backend"), "kubernetes");
    EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-discovery-enabled"), "true");
    EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-namespace"), "prod-qwen3-0-6b");
    EXPECT_EQ(metadata(made, "annotations", kDiscoveryMode), "container");
    EXPECT_EQ(made.pod_spec().text_at({"serviceAccountName"}), "qwen3-0.6b-k8s-service-discovery");
    // The GMS does not register.
    EXPECT_EQ(made.env(layout_names(layout).gms_container, "DYN_NAMESPACE"), "(none)");
  }
}

TEST(Discovery, WhatOnlyTheOperatorKnowsIsSaid) {
  EXPECT_EQ(Graph().generate().warnings(),
            "f: spec.services.Decode: only Dynamo's operator knows DYN_NAMESPACE_WORKER_SUFFIX and "
            "the label nvidia.com/dynamo-worker-hash of its rolling updates, and what it is "
            "configured to add to pods, such as NATS_SERVER and ETCD_ENDPOINTS: the pod is "
            "generated without them; set in envs what other workers of the cluster have");
}

TEST(Discovery, ThePodKnowsItsNamespaceWhereTheManifestDoesNot) {
  Graph graph{.name_space = ""};
  const Generated made = graph.generate();
  EXPECT_EQ(variable(made, "DYN_NAMESPACE"), "$(POD_NAMESPACE)-qwen3-0-6b");
  EXPECT_EQ(variable(made, "DYN_PARENT_DGD_K8S_NAMESPACE"), "$(POD_NAMESPACE)");
  EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-namespace"), "(none)");
  EXPECT_NE(made.warnings().find(
                "without the label nvidia.com/dynamo-namespace, since no namespace is set"),
            std::string::npos);
  // It must precede the variables that refer to it.
  const yaml::Node container = made.container("engine-0");
  std::size_t at_pod = 0;
  std::size_t at_dynamo = 0;
  const auto& env = container.find("env")->items();
  for (std::size_t i = 0; i < env.size(); ++i) {
    if (env[i].text_at({"name"}) == "POD_NAMESPACE") at_pod = i;
    if (env[i].text_at({"name"}) == "DYN_NAMESPACE") at_dynamo = i;
  }
  EXPECT_LT(at_pod, at_dynamo);
  graph.worker.service.global_namespace = true;
  EXPECT_EQ(variable(graph.generate(), "DYN_NAMESPACE"), "dynamo");
}

TEST(Discovery, WhatTheUserSaysStays) {
  Graph graph;
  graph.worker.main =
      R"j("command":["python3","-m","dynamo.vllm"],"env":[{"name":"DYN_NAMESPACE","value":"mine"},
         {"name":"CONTAINER_NAME","value":"x"},{"name":"A","value":"a"},
         {"name":"POD_NAME","value":"$(A)"}])j";
  graph.worker.spec = R"("serviceAccountName":"own")";
  graph.worker.metadata = R"({"labels":{"nvidia.com/dynamo-namespace":"mine"}})";
  const Generated made = graph.generate();
  EXPECT_EQ(variable(made, "DYN_NAMESPACE"), "mine");
  EXPECT_EQ(variable(made, "POD_NAME"), "$(A)");
  // Two engines of one pod must differ in it.
  EXPECT_EQ(variable(made, "CONTAINER_NAME"), "engine-1");
  EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-namespace"), "mine");
  EXPECT_EQ(made.pod_spec().text_at({"serviceAccountName"}), "own");
  EXPECT_NE(made.warnings().find("'own': a worker registers with the rights of "
                                 "qwen3-0.6b-k8s-service-discovery"),
            std::string::npos);
}

TEST(Discovery, IsNoneWhereNobodyLooksByKubernetes) {
  const auto expect_none = [](const Graph& graph) {
    const Generated made = graph.generate();
    EXPECT_EQ(made.errors(), "");
    EXPECT_EQ(variable(made, "DYN_DISCOVERY_BACKEND").find("kubernetes"), std::string::npos);
    EXPECT_EQ(metadata(made, "labels", "nvidia.com/dynamo-discovery-enabled"), "(none)");
    EXPECT_EQ(made.pod_spec().find("serviceAccountName"), nullptr);
  };
  Graph etcd;
  etcd.annotations = R"({"nvidia.com/dynamo-discovery-backend":"etcd"})";
  expect_none(etcd);
  Graph by_variable;
  by_variable.worker.main =
      R"("command":["python3","-m","dynamo.vllm"],
         "env":[{"name":"DYN_DISCOVERY_BACKEND","value":"etcd"}])";
  expect_none(by_variable);
  // Without another service, no component discovers it.
  const Generated alone = Worker().generate();
  EXPECT_EQ(variable(alone, "DYN_DISCOVERY_BACKEND"), "(none)");
  EXPECT_EQ(alone.pod_spec().find("serviceAccountName"), nullptr);
}

TEST(Discovery, ADeploymentThatSaysAnotherModeIsRefused) {
  Graph graph{.annotations = R"({"nvidia.com/dynamo-kube-discovery-mode":"pod"})"};
  EXPECT_EQ(graph.generate().errors(),
            "f: metadata.annotations['nvidia.com/dynamo-kube-discovery-mode']: 'pod': two engines "
            "of one pod register by container; set it to container, or leave it out");
  graph.annotations = R"({"nvidia.com/dynamo-kube-discovery-mode":"container"})";
  EXPECT_EQ(graph.generate().errors(), "");
}

TEST(Discovery, APlannerIsWarnedOf) {
  const Graph graph{.kept_type = "planner"};
  EXPECT_NE(graph.generate().warnings().find(
                "f: spec.services.Frontend: the planner can't scale 'Decode', which becomes a "
                "separate Deployment; scale the Deployment qwen3-0.6b-decode yourself"),
            std::string::npos);
}

}  // namespace
}  // namespace fo::pod
