#include "pod/generate/cluster_needs.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Worker;

// The needs of a worker, one per line.
std::string needs_of(Worker worker, const GenerateOptions& options = {}) {
  worker.operator_defaults = true;
  Dgd dgd;
  dgd.name = "chat";
  std::string text;
  for (const std::string& line : worker.generate_in(dgd, options).needs) {
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
            "image img with the module gpu_memory_service, as in Dynamo's images");
}

TEST(ClusterNeeds, NamesWhatThePodRefersTo) {
  Worker worker;
  worker.main +=
      R"(,"envFrom":[{"secretRef":{"name":"token"}},{"secretRef":{"name":"o","optional":true}}],
         "env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"here","key":"k"}}},
                {"name":"B","valueFrom":{"configMapKeyRef":{"name":"elsewhere","key":"k"}}}])";
  worker.spec = R"("volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"models"}},
                              {"name":"w","secret":{"secretName":"tls"}}])";
  worker.inputs = R"({"kind":"ConfigMap","metadata":{"name":"here"},"data":{"k":"1"}})";
  const std::string needs = needs_of(worker);
  EXPECT_EQ(needs.substr(needs.find("ConfigMap")),
            "ConfigMap elsewhere\nPersistentVolumeClaim models\nSecret tls\nSecret token");
}

TEST(ClusterNeeds, LeaveOutWhatTheInputHas) {
  Worker worker{.spec =
                    R"("serviceAccountName":"own","imagePullSecrets":[{"name":"pull"}],"volumes":[
      {"name":"v","persistentVolumeClaim":{"claimName":"models"}},
      {"name":"w","projected":{"sources":[{"secret":{"name":"tls"}}]}}])"};
  const auto needs = [&worker](const char* inputs) {
    worker.inputs = inputs;
    const std::string text = needs_of(worker);
    return text.substr(text.find('\n', text.find("image img")) + 1);
  };
  EXPECT_EQ(needs("{}"),
            "service account own\nPersistentVolumeClaim models\nSecret pull\nSecret tls");
  EXPECT_EQ(needs(R"({"kind":"List","items":[
      {"kind":"PersistentVolumeClaim","metadata":{"name":"models"}},
      {"kind":"Secret","metadata":{"name":"tls"}},
      {"kind":"ServiceAccount","metadata":{"name":"own"}}]})"),
            "Secret pull");
}

TEST(ClusterNeeds, NameTheProgramsThatThePodRuns) {
  GenerateOptions options;
  options.gms = GmsProgram::kUpstream;
  options.tools_image = "tools";
  const std::string needs = needs_of(Worker(), options);
  EXPECT_EQ(needs.substr(needs.find("image tools")),
            "image tools with fo-podgen\nimage img with the module gpu_memory_service, as in "
            "Dynamo's images");
}

}  // namespace
}  // namespace fo::pod
