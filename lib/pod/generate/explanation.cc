#include "pod/generate/explanation.h"

#include <algorithm>
#include <string_view>

namespace fo::pod {
namespace {

bool is_within(std::string_view path, std::string_view service) {
  if (!path.starts_with(service)) return false;
  return path.size() == service.size() || path[service.size()] == '.' ||
         path[service.size()] == '[';
}

std::string names_of(const yaml::Node& pod_spec) {
  std::string names;
  for (const char* const list : {"containers", "initContainers"}) {
    for (const yaml::Node& container : pod_spec.items_at({list})) {
      names += (names.empty() ? "" : ", ") + container.text_at({"name"});
    }
  }
  return names;
}

// The GPUs that a claim template requests.
std::string devices_of(const yaml::Node& manifest) {
  const yaml::Node* requests = manifest.find_path({"spec", "spec", "devices", "requests"});
  if (requests == nullptr || requests->items().empty()) return "";
  const yaml::Node& request = requests->items().front();
  const yaml::Node* exactly = request.find("exactly");
  const yaml::Node& said = exactly == nullptr ? request : *exactly;
  return said.text_at({"count"}) + " of the class " + said.text_at({"deviceClassName"});
}

}  // namespace

std::string describe(const yaml::Node& manifest) {
  const std::string& kind = manifest.text_at({"kind"});
  std::string line = kind + " " + manifest.text_at({"metadata", "name"});
  if (kind == "Deployment") {
    const std::string& replicas = manifest.text_at({"spec", "replicas"});
    const yaml::Node* pod_spec = manifest.find_path({"spec", "template", "spec"});
    line += ": " + replicas + (replicas == "1" ? " replica of " : " replicas of ") +
            (pod_spec == nullptr ? "" : names_of(*pod_spec));
  } else if (kind == "Pod") {
    if (const yaml::Node* pod_spec = manifest.find("spec")) line += ": " + names_of(*pod_spec);
  } else if (const std::string devices = devices_of(manifest); !devices.empty()) {
    line += ": " + devices;
  }
  return line;
}

DgdExplanation explain(const Dgd& dgd, const Findings& findings) {
  DgdExplanation explanation{dgd.name, dgd.name_space, {}, {}};
  for (const Service& service : dgd.services) {
    explanation.services.push_back(
        {service.name, service.component_type, service.failover, false, {}, {}, {}});
  }
  for (const Finding& finding : findings) {
    const auto service =
        std::find_if(dgd.services.begin(), dgd.services.end(),
                     [&](const Service& one) { return is_within(finding.path, one.path); });
    if (service == dgd.services.end() || finding.reason == kUnknownField) {
      explanation.findings.push_back(finding);
    } else {
      const auto index = static_cast<std::size_t>(service - dgd.services.begin());
      explanation.services[index].findings.push_back(finding);
    }
  }
  const bool is_all_refused = has_error(explanation.findings);
  for (ServiceExplanation& service : explanation.services) {
    service.refused = has_error(service.findings) || (service.failover && is_all_refused);
  }
  std::stable_partition(explanation.findings.begin(), explanation.findings.end(),
                        [](const Finding& finding) { return finding.reason == kUnknownField; });
  return explanation;
}

}  // namespace fo::pod
