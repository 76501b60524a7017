// Service discovery for the workers of a failover pod by components that Dynamo's operator still
// runs: the settings of the operator's pods that these pods get, too. The functions that add or set
// something do nothing unless PodPlan::is_found_by_kubernetes.
#pragma once

#include <string_view>

#include "pod/dgd/dgd.h"
#include "pod/engine/engine_command.h"
#include "pod/generate/generate.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// The annotation of a deployment and its pods by which workers register by container instead of by
/// pod.
inline constexpr std::string_view kDiscoveryMode = "nvidia.com/dynamo-kube-discovery-mode";
inline constexpr std::string_view kDiscoveryByContainer = "container";

/// Whether the engine may be one of Dynamo's workers.
bool may_be_dynamo_worker(const EngineCommand& command, const GenerateOptions& options);

/// Whether a service is discovered through Kubernetes: it is a Dynamo worker, and its deployment
/// keeps other services and does not use etcd.
bool is_found_by_kubernetes(const Dgd& dgd, const Service& service, const EngineCommand& command,
                            const GenerateOptions& options);

/// For an engine that may be a Dynamo worker: refuses a deployment with another discovery mode, and
/// warns of settings that only the operator adds.
void check_discovery(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

/// Adds the variables of pod, namespace, component and deployment at the front of an engine's env.
/// The user's values stay, except CONTAINER_NAME and DYN_KUBE_DISCOVERY_MODE.
void add_discovery_variables(int engine, yaml::Node& env, const PodPlan& plan);

/// The labels by which workers are selected; the user's values stay.
void add_discovery_labels(yaml::Node& labels, const PodPlan& plan);

/// The service account that Dynamo's operator creates for workers that register.
std::string discovery_account(const PodPlan& plan);
/// Sets that account, unless the pod names one; warns if it is another.
void set_service_account(yaml::Node& pod_spec, const PodPlan& plan);

}  // namespace fo::pod
