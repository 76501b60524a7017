// Settings that Dynamo's operator adds to every pod of a deployment, unless the user sets them.
#pragma once

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// Adds memory at /dev/shm for the main container, a termination grace period, and a group for
/// volumes.
void add_operator_defaults(yaml::Node& pod_spec, yaml::Node& main, const PodPlan& plan);

/// The labels by which the operator's objects select pods for metrics and counts.
void add_operator_labels(yaml::Node& labels, const PodPlan& plan);

}  // namespace fo::pod
