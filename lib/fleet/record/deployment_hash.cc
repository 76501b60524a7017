#include "fleet/record/deployment_hash.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "fleet/card/digest.h"
#include "json/canonical.h"
#include "json/object.h"
#include "pod/finding.h"
#include "pod/located.h"
#include "text/ascii.h"
#include "yaml/scalar.h"
#include "yaml/writer.h"

namespace fo::fleet {
namespace {

using base::Error;
using base::ExitStatus;
using pod::Located;

// Members of a service that do not change what a worker runs, in either version.
constexpr std::string_view kNotRun[] = {"annotations", "autoscaling",   "extraPodMetadata",
                                        "ingress",     "labels",        "minAvailable",
                                        "replicas",    "scalingAdapter"};
// Members of a deployment that all its workers get.
constexpr std::string_view kShared[] = {"backendFramework", "env", "envs"};

class Reader {
 public:
  Reader(const yaml::Node& dgd, std::string_view endpoint, const std::string& file)
      : document_{&dgd, ""}, endpoint_(endpoint), file_(file) {}

  DeploymentIds read() {
    const Located spec = document_.member("spec");
    const Located version = document_.member("apiVersion");
    if (text_of(version) == "nvidia.com/v1alpha1") {
      read_map(spec.member("services"));
    } else if (text_of(version) == "nvidia.com/v1beta1") {
      read_list(spec.member("components"));
    } else {
      refuse(version, base::quoted(text_of(version)) + ": unknown version",
             "v1alpha1 and v1beta1 are supported");
    }
    const Located name = document_.member("metadata").member("name");
    const auto prefix = namespace_prefix(text_of(name));
    if (!prefix) refuse(name, base::quoted(text_of(name)) + ": not a name for a namespace");
    DeploymentIds ids{text_of(name), hash(spec), {}};
    for (const auto& [service, at] : services_) {
      const bool is_global = is_true(at.member("globalDynamoNamespace"));
      EndpointId id{is_global ? std::string(kGlobalNamespace) : *prefix + "-" + ids.hash,
                    component_of(at), std::string(endpoint_)};
      ids.services.push_back({service, std::move(id)});
    }
    return ids;
  }

 private:
  [[noreturn]] void refuse(const Located& where, std::string reason, std::string remedy = {}) {
    const yaml::Node* node = where.node != nullptr ? where.node : document_.node;
    const pod::Finding finding{pod::Severity::kError, node->position(), where.path,
                               std::move(reason), std::move(remedy)};
    throw Error(ExitStatus::kBadData, pod::format(finding, file_));
  }

  // Version 1alpha1.
  void read_map(const Located& services) {
    if (services.node == nullptr) return;
    if (!services.node->is_map()) refuse(services, "expected a map");
    type_ = "componentType";
    for (const yaml::Node::Member& member : services.node->members()) {
      add(member.key, {&member.value, pod::member_path(services.path, member.key)});
    }
  }

  // Version 1beta1.
  void read_list(const Located& components) {
    if (components.node == nullptr) return;
    if (!components.node->is_list()) refuse(components, "expected a list");
    type_ = "type";
    for (const Located& at : items_of(components)) add(text_of(at.member("name")), at);
  }

  void add(const std::string& name, const Located& at) {
    if (at.node->is_null()) return;
    if (!at.node->is_map()) refuse(at, "expected a map");
    if (name.empty()) refuse(at, "a service without a name");
    if (!services_.emplace(name, at).second) refuse(at, base::quoted(name) + ": appears twice");
  }

  std::string component_of(const Located& service) {
    const Located at = service.member(type_);
    std::string type = text::lower(text_of(at));
    std::string subtype = text::lower(text_of(service.member("subComponentType")));
    if (type.empty()) type = "default";  // as in Dynamo's operator
    if (subtype.empty() && (type == "prefill" || type == "decode")) {
      subtype = std::exchange(type, "worker");
    }
    auto component = component_name(type, subtype);
    if (!component) {
      refuse(at,
             base::quoted(subtype.empty() ? type : type + "-" + subtype) +
                 ": not a component of an endpoint id",
             "a type is one word of a-z and 0-9");
    }
    return *std::move(component);
  }

  [[nodiscard]] bool is_worker(const Located& service) const {
    const std::string type = text::lower(text_of(service.member(type_)));
    return type != "frontend" && type != "planner";
  }

  std::string hash(const Located& spec) {
    yaml::Node hashed = yaml::Node::map();
    for (const std::string_view key : kShared) {
      const Located shared = spec.member(key);
      if (shared.node != nullptr) hashed.set(key, *shared.node);
    }
    std::vector<yaml::Node::Member> workers;
    for (const auto& [name, at] : services_) {
      if (!is_worker(at)) continue;
      yaml::Node& worker = workers.emplace_back(yaml::Node::Member{name, *at.node}).value;
      for (const std::string_view key : kNotRun) worker.remove(key);
      if (yaml::Node* pod = worker.find("podTemplate")) pod->remove("metadata");
    }
    hashed.set("services", yaml::Node::map(std::move(workers)));
    hashed.drop_null_members();
    try {
      const std::string text = yaml::to_json(hashed);
      return sha256_hex(json::canonical(json::parse(text, text.size()))).substr(0, kHashDigits);
    } catch (const json::Misfit& misfit) {
      refuse(spec, misfit.what());
    }
  }

  Located document_;
  std::string_view endpoint_;
  const std::string& file_;
  // The key of a service's type.
  std::string_view type_;
  std::map<std::string, Located> services_;
};

}  // namespace

DeploymentIds deployment_ids(const yaml::Node& dgd, std::string_view endpoint,
                             const std::string& file) {
  return Reader(dgd, endpoint, file).read();
}

}  // namespace fo::fleet
