#include "pod/generate/pod_plan.h"

#include <utility>

#include "base/units.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

std::string joined(std::string path, std::string_view field) {
  if (!field.empty()) path += '.';
  return path += field;
}

}  // namespace

LayoutNames layout_names(PodLayout layout) {
  if (layout == PodLayout::kDynamo) {
    return {"gms-server", "gms-intrapod-control", "/gms-intrapod-control", "intrapod-shared-gpu"};
  }
  return {"gms-weights", "failover-shared", "/shared", "shared-gpu"};
}

std::string PodPlan::workload_name() const { return dgd.name + "-" + text::lower(service.name); }

std::string PodPlan::program(std::string_view name) const {
  std::string path;
  if (has_tools()) path = std::string(kToolsFolder) + "/bin/";
  return path += name;
}

std::string PodPlan::lock_uri() const {
  return options.lock == LockKind::kLockd ? "unix:" + lockd_socket()
                                          : names.folder + "/failover.lock";
}

std::string PodPlan::kubernetes() const {
  const KubeVersion& version = options.kube_version;
  return "Kubernetes " + std::to_string(version.major) + "." + std::to_string(version.minor);
}

std::string PodPlan::device_list() const {
  std::string list;
  for (std::int64_t i = 0; i < service.gpus; ++i) list += (i > 0 ? "," : "") + std::to_string(i);
  return list;
}

std::string PodPlan::spec_path(std::string_view field) const {
  return joined(
      service.path + (dgd.version == DgdVersion::kV1Alpha1 ? ".extraPodSpec" : ".podTemplate.spec"),
      field);
}

std::string PodPlan::container_path(std::string_view list, const yaml::Node& container) const {
  const yaml::Position place = container.position();
  const yaml::Node* name = container.find("name");
  const yaml::Node* all = service.pod_template.find_path({"spec", list});
  std::size_t index = 0;
  bool is_past = false;
  if (all == nullptr) return spec_path(list);
  for (const yaml::Node& other : all->items()) {
    const yaml::Node* other_name = other.find("name");
    if (name != nullptr && other_name != nullptr && other_name->text() == name->text()) {
      is_past = true;
      continue;
    }
    if (is_main(other) && dgd.version == DgdVersion::kV1Alpha1) continue;
    // The main container was moved to the front; its path uses its original index.
    const yaml::Position at = other.position();
    const bool is_before =
        at.line == 0 ? !is_past
                     : std::pair(at.line, at.column) < std::pair(place.line, place.column);
    if (is_before) ++index;
  }
  return spec_path(item_path(list, index));
}

std::string PodPlan::main_path(std::string_view field) const {
  if (dgd.version == DgdVersion::kV1Alpha1) return joined(spec_path("mainContainer"), field);
  const yaml::Node* containers = service.pod_template.find_path({"spec", "containers"});
  const yaml::Node* main = yaml::find_named(containers, "name", kMainContainer);
  return joined(main == nullptr ? spec_path("containers") : container_path("containers", *main),
                field);
}

void PodPlan::refuse(yaml::Position position, std::string path, std::string reason,
                     std::string remedy) const {
  add(findings,
      {Severity::kError, position, std::move(path), std::move(reason), std::move(remedy)});
}

void PodPlan::warn(yaml::Position position, std::string path, std::string reason,
                   std::string remedy) const {
  add(findings,
      {Severity::kWarning, position, std::move(path), std::move(reason), std::move(remedy)});
}

void PodPlan::refuse(std::string reason, std::string remedy) const {
  refuse(service.position, service.path, std::move(reason), std::move(remedy));
}

std::string engine_name(int engine) { return "engine-" + std::to_string(engine); }

yaml::Node env_entry(std::string_view name, const std::string& value) {
  return yaml::Node::map(
      {{"name", yaml::Node::string(std::string(name))}, {"value", yaml::Node::string(value)}});
}

int port_of(std::string_view text) {
  const std::optional<std::uint64_t> number = base::parse_uint(text);
  return number && *number >= 1 && *number <= 65535 ? static_cast<int>(*number) : 0;
}

int port_of(const yaml::Node& node) {
  const std::int64_t number = yaml::as_integer(node).value_or(0);
  return number >= 1 && number <= 65535 ? static_cast<int>(number) : 0;
}

}  // namespace fo::pod
