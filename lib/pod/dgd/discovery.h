// How the workers of a failover pod are found by what Dynamo's operator goes on running: which of
// the things that it gives its own pods they are given, too.
#pragma once

#include <string_view>

#include "pod/dgd/dgd.h"
#include "pod/engine/engine_command.h"
#include "pod/generate/generate.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The annotation by which workers register by container and not by pod, on a deployment and on its
/// pods.
inline constexpr std::string_view kDiscoveryMode = "nvidia.com/dynamo-kube-discovery-mode";
inline constexpr std::string_view kDiscoveryByContainer = "container";

/// Whether the engine may be a worker of Dynamo's.
bool may_be_dynamo_worker(const EngineCommand& command, const GenerateOptions& options);

/// Whether a service is found through Kubernetes: a worker of Dynamo's whose deployment keeps other
/// services, and does not say that they use etcd.
bool is_found_by_kubernetes(const Dgd& dgd, const Service& service, const EngineCommand& command,
                            const GenerateOptions& options);

/// Refuses a deployment that says another mode, and warns of what only the operator knows.
void check_discovery(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// To an engine's env, before all others: pod, namespace, component and deployment.
void add_discovery_variables(int engine, yaml::Node& env, const PodPlan& plan);

/// The labels by which workers are looked for; what the user says stays.
void add_discovery_labels(yaml::Node& labels, const PodPlan& plan);

/// The service account that Dynamo's operator makes for those who register.
std::string discovery_account(const PodPlan& plan);
/// The account that may register, unless the pod has another.
void set_service_account(yaml::Node& pod_spec, const PodPlan& plan);

}  // namespace fo::pod
