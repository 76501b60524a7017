// A Kubernetes object as a whole: its name, and its differences from another one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::pod {

/// In kubectl's form: "deployment.apps/vllm-agg-worker", "pod/one"; "unnamed" without a kind. One
/// line, whatever the names contain.
std::string kubectl_name(const yaml::Node& manifest);

/// A file name without an extension: "deployment-vllm-agg-worker", after the namespace if there is
/// one; of letters, digits, '.' and '-'. Two objects may have the same one; with the group, fewer
/// do: "deployment.apps-vllm-agg-worker".
enum class GroupInName { kNo, kYes };
std::string manifest_file_name(const yaml::Node& manifest, GroupInName group = GroupInName::kNo);

/// Whether KIND, KIND/NAME, or the same with kubectl's group, selects this manifest; case is
/// ignored.
bool matches(const yaml::Node& manifest, std::string_view selector);

/// The differences of two sets of manifests: "- Pod/a", "+ Pod/b", "~ Deployment/c spec.replicas: 1
/// -> 2". Objects are matched by kind, namespace and name; items of a list by their name
/// (mountPath, key …) if all have one, else by index. Empty if the sets are equivalent.
std::vector<std::string> differences(const std::vector<yaml::Node>& before,
                                     const std::vector<yaml::Node>& after);

}  // namespace fo::pod
