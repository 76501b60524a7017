// What Dynamo's operator gives every pod of a deployment, where the user says nothing of it.
#pragma once

#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

/// Memory at /dev/shm for the main container, a time to end, and a group for volumes.
void add_operator_defaults(yaml::Node& pod_spec, yaml::Node& main, const PodPlan& plan);

/// The labels by which the operator's objects choose pods to scrape and to count.
void add_operator_labels(yaml::Node& labels, const PodPlan& plan);

}  // namespace fo::pod
