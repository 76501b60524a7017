// A Kubernetes object as a whole: what it is called, and how it differs from another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::pod {

/// "Deployment/vllm-agg-worker", as --only takes it; "" for what names no kind.
std::string manifest_name(const yaml::Node& manifest);

/// As kubectl prints it: "deployment.apps/vllm-agg-worker", "pod/one"; "unnamed" for what names no
/// kind. One line, whatever the names are.
std::string kubectl_name(const yaml::Node& manifest);

/// The name of a file for it, without an extension: "deployment-vllm-agg-worker", the namespace in
/// front where there is one; made of letters, digits, '.' and '-'. Two objects may have one name;
/// fewer have with the group in it: "deployment.apps-vllm-agg-worker".
enum class GroupInName { kNo, kYes };
std::string manifest_file_name(const yaml::Node& manifest, GroupInName group = GroupInName::kNo);

/// Whether KIND, KIND/NAME, or the same with the group as kubectl prints it, in any case, means
/// this manifest.
bool matches(const yaml::Node& manifest, std::string_view selector);

/// How two sets of manifests differ: "- Pod/a", "+ Pod/b", "~ Deployment/c spec.replicas: 1 -> 2".
/// Objects belong together by kind, namespace and name, items of a list by their name (mountPath,
/// key …) where all have one, else by their place. None: they mean the same.
std::vector<std::string> differences(const std::vector<yaml::Node>& before,
                                     const std::vector<yaml::Node>& after);

}  // namespace fo::pod
