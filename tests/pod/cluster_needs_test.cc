#include "pod/cluster_needs.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::node;
using test::Worker;

// Of a worker, a line each.
std::string needs_of(const Worker& worker, GenerateOptions options = {}) {
  if (!options.gms) options.gms = worker.gms;
  Service service = worker.service;
  service.pod_template = worker.pod_template();
  Dgd dgd;
  dgd.name = "chat";
  dgd.config_maps.add(node(worker.config_maps));
  Findings findings;
  std::string text;
  for (const std::string& line : generate(dgd, service, options, findings).needs) {
    text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

TEST(ClusterNeeds, NamesDriverAndImages) {
  EXPECT_EQ(needs_of(Worker()),
            "Kubernetes 1.34 or later, which serves resource.k8s.io/v1 by default\n"
            "NVIDIA's DRA driver for GPUs, and its DeviceClass gpu.nvidia.com\n"
            "image img with gms-serve, gms-probe");
  GenerateOptions options;
  options.kube_version = {1, 32};
  options.supervise = true;
  options.tools_image = "tools";
  EXPECT_EQ(needs_of(Worker(), options),
            "Kubernetes 1.32 with the feature gate DynamicResourceAllocation and "
            "resource.k8s.io/v1beta1 switched on, which it has off by default\n"
            "NVIDIA's DRA driver for GPUs, and its DeviceClass gpu.nvidia.com\n"
            "image tools with fo-podgen, gms-serve, gms-probe, fo-shadow");
  GenerateOptions plugin;
  plugin.gpu_sharing = GpuSharing::kDevicePlugin;
  plugin.gms = GmsProgram::kUpstream;
  EXPECT_EQ(needs_of(Worker(), plugin),
            "NVIDIA's device plugin, with each GPU shared by time-slicing or MPS: 3 containers ask "
            "for 1 each\n"
            "image img with the module gpu_memory_service, which Dynamo's have");
}

TEST(ClusterNeeds, NamesWhatThePodRefersTo) {
  Worker worker;
  worker.main +=
      R"(,"envFrom":[{"secretRef":{"name":"token"}},{"secretRef":{"name":"o","optional":true}}],
         "env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"here","key":"k"}}},
                {"name":"B","valueFrom":{"configMapKeyRef":{"name":"elsewhere","key":"k"}}}])";
  worker.spec = R"("volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"models"}},
                              {"name":"w","secret":{"secretName":"tls"}}])";
  worker.config_maps = R"({"kind":"ConfigMap","metadata":{"name":"here"},"data":{"k":"1"}})";
  const std::string needs = needs_of(worker);
  EXPECT_EQ(needs.substr(needs.find("ConfigMap")),
            "ConfigMap elsewhere\nPersistentVolumeClaim models\nSecret tls\nSecret token");
}

}  // namespace
}  // namespace fo::pod
