#include "pod/dgd/operator_defaults.h"

#include <string>
#include <string_view>

#include "pod/generate/shared_memory.h"
#include "pod/kube_names.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

constexpr std::string_view kGrace = "terminationGracePeriodSeconds";
constexpr int kGraceSeconds = 60;
constexpr int kFsGroup = 1000;
// fo-shadow waits up to 30 s by default for requests in flight, and then 5 s for the engine's end.
constexpr int kMinDrainSeconds = 40;

void add_memory(yaml::Node& pod_spec, yaml::Node& main, const PodPlan& plan) {
  const bool wants_none = plan.service.wants_no_shared_memory;
  if (wants_none || shared_memory_mount(main) != nullptr) return;
  if (plan.options.operator_defaults) {
    const yaml::Node* taken =
        yaml::find_named(pod_spec.find("volumes"), "name", kSharedMemoryVolume);
    if (taken == nullptr) return add_shared_memory(pod_spec, main, nullptr);
    plan.warn(taken->position(), plan.spec_path("volumes"),
              "'shared-memory': the volume at /dev/shm would have this name: that mount is omitted",
              "rename it, or mount it there");
  } else if (plan.service.gpus > 1) {
    const bool alpha = plan.dgd.version == DgdVersion::kV1Alpha1;
    plan.warn(plan.service.position, plan.service.path,
              "nothing is mounted at /dev/shm, where an engine on several GPUs needs more than the "
              "64 MiB of any container",
              alpha ? "set sharedMemory: {size: 8Gi}" : "set sharedMemorySize: 8Gi");
  }
}

void set_grace(yaml::Node& pod_spec, const PodPlan& plan) {
  const yaml::Node* own = pod_spec.find(kGrace);
  if (own == nullptr) {
    if (plan.options.operator_defaults || plan.options.supervise) {
      pod_spec.set(kGrace, yaml::Node::integer(kGraceSeconds));
    }
  } else if (plan.options.supervise &&
             yaml::as_integer(*own).value_or(kGraceSeconds) < kMinDrainSeconds) {
    plan.warn(own->position(), plan.spec_path(kGrace),
              own->text() + ": fo-shadow takes up to 35 s to let requests finish",
              "set at least " + std::to_string(kMinDrainSeconds) + ", or leave it out");
  }
}

}  // namespace

void add_operator_defaults(yaml::Node& pod_spec, yaml::Node& main, const PodPlan& plan) {
  add_memory(pod_spec, main, plan);
  set_grace(pod_spec, plan);
  if (plan.options.operator_defaults && pod_spec.find("securityContext") == nullptr) {
    pod_spec["securityContext"].set("fsGroup", yaml::Node::integer(kFsGroup));
  }
}

void add_operator_labels(yaml::Node& labels, const PodPlan& plan) {
  if (!plan.options.operator_defaults) return;
  const yaml::Node* metrics = plan.dgd.annotations.find("nvidia.com/enable-metrics");
  if (metrics == nullptr || metrics->text() != "false") {
    add_label(labels, "nvidia.com/metrics-enabled", "true");
  }
  add_label(labels, "nvidia.com/selector", plan.workload_name());
}

}  // namespace fo::pod
