// What Dynamo's operator gives every pod of a deployment, where the user says nothing of it.
#pragma once

#include "pod/node.h"
#include "pod/pod_plan.h"

namespace fo::pod {

/// Memory at /dev/shm for the main container, a time to end, and a group for volumes.
void add_operator_defaults(Node& pod_spec, Node& main, const PodPlan& plan);

/// The labels by which the operator's objects choose pods to scrape and to count.
void add_operator_labels(Node& labels, const PodPlan& plan);

}  // namespace fo::pod
