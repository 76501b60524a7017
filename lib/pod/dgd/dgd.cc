#include "pod/dgd/dgd.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "pod/dgd/budget.h"
#include "pod/dgd/dgd_service.h"
#include "pod/dgd/pod_schema.h"
#include "pod/kube_names.h"
#include "text/ascii.h"

namespace fo::pod {
namespace {

constexpr std::string_view kGroup = "nvidia.com/";

/// A cluster's API refuses much larger objects, and some algorithms here are quadratic.
constexpr std::size_t kMaxValues = 30'000;
constexpr std::size_t kMaxBytes = std::size_t{3} << 19;

/// Checks the names of the generated objects.
void check_names(const Located& document, const Dgd& dgd, Findings& findings) {
  const Located name = document.member("metadata").member("name");
  if (dgd.name.empty()) {
    add(findings, {Severity::kError, document.node->position(), name.path, "no name",
                   "the generated objects are named after it"});
    return;
  }
  // The name is also the value of labels.
  if (!is_dns_subdomain(dgd.name) || !is_label_value(dgd.name)) {
    refuse(findings, name, base::quoted(dgd.name) + ": not a name for generated objects",
           "at most 63 of a-z, 0-9, - and ., a letter or digit at both ends");
    return;
  }
  std::map<std::string, const Service*> taken;
  for (const Service& service : dgd.services) {
    if (!service.failover) continue;
    const std::string lower_case = text::lower(service.name);
    const auto refuse_service = [&](std::string reason, std::string remedy) {
      add(findings,
          {Severity::kError, service.position, service.path, std::move(reason), std::move(remedy)});
    };
    if (service.name.empty()) {
      refuse_service("a component without a name", "set name");
    } else if (!is_dns_label(lower_case)) {
      refuse_service(base::quoted(service.name) + ": not a name for generated objects",
                     "letters, digits and -, no - at either end");
    } else if (const auto [other, first] = taken.emplace(lower_case, &service); !first) {
      refuse_service(fmt::format("{}: its generated objects have the same names as those of {}",
                                 base::quoted(service.name), base::quoted(other->second->name)),
                     "rename one of them");
    }
  }
}

/// If all services fail over, the deployment itself is dropped: warns of each field that is in no
/// generated object.
void warn_of_the_rest(const Located& spec, const Dgd& dgd, Findings& findings) {
  constexpr std::array<std::string_view, 8> kCarried = {
      "annotations", "backendFramework", "components", "env", "envs", "labels", "pvcs", "services"};
  if (spec.node == nullptr || dgd.services.empty() ||
      !std::all_of(dgd.services.begin(), dgd.services.end(),
                   [](const Service& service) { return service.failover; })) {
    return;
  }
  // check_schema warns of unknown fields.
  const char* const type = dgd.version == DgdVersion::kV1Alpha1 ? "DgdAlpha" : "DgdBeta";
  for (const SchemaField& field : fields_of(type)) {
    if (text::is_one_of(field.name, kCarried)) continue;
    const Located member = spec.member(field.name);
    if (member.node == nullptr) continue;
    warn(findings, member, "is dropped with the deployment: all its services fail over");
  }
}

}  // namespace

bool is_main(const yaml::Node& container) { return container.text_at({"name"}) == kMainContainer; }

bool is_dgd(const yaml::Node& document) {
  return document.text_at({"kind"}) == "DynamoGraphDeployment" &&
         document.text_at({"apiVersion"}).starts_with(kGroup);
}

Dgd read_dgd(const yaml::Node& root, Findings& findings) {
  const Located document{&root, ""};
  const Located spec = document.member("spec");
  const Located api_version = document.member("apiVersion");
  Dgd dgd;
  dgd.name = text_of(document.member("metadata").member("name"));
  dgd.name_space = text_of(document.member("metadata").member("namespace"));
  if (const yaml::Node* annotations = document.member("metadata").member("annotations").node) {
    dgd.annotations = *annotations;
  }
  Findings found;
  if (!Budget(kMaxValues, kMaxBytes).take(root)) {
    refuse(findings, document,
           fmt::format("more than {} values or {} bytes of text", kMaxValues, kMaxBytes),
           "too large for a cluster");
    return dgd;
  }
  const std::string version = text_of(api_version);
  if (version == "nvidia.com/v1alpha1") {
    dgd.version = DgdVersion::kV1Alpha1;
    read_v1alpha1(spec, dgd, found);
  } else if (version == "nvidia.com/v1beta1") {
    dgd.version = DgdVersion::kV1Beta1;
    read_v1beta1(spec, dgd, found);
  } else {
    refuse(findings, api_version, base::quoted(version) + ": unknown version",
           "v1alpha1 and v1beta1 are supported");
    return dgd;
  }
  const bool alpha = dgd.version == DgdVersion::kV1Alpha1;
  const bool any = std::any_of(dgd.services.begin(), dgd.services.end(),
                               [](const Service& service) { return service.failover; });
  const Located services = spec.member(alpha ? "services" : "components");
  const bool readable =
      (spec.node == nullptr || spec.node->is_map()) &&
      (services.node == nullptr || (alpha ? services.node->is_map() : services.node->is_list()));
  const WrongKind wrong_kind = any || !readable ? WrongKind::kError : WrongKind::kIgnore;
  check_schema(root, "Dgd", "", wrong_kind, found);
  if (spec.node != nullptr) {
    check_schema(*spec.node, alpha ? "DgdAlpha" : "DgdBeta", "spec", wrong_kind, found);
  }
  if (any) {
    check_names(document, dgd, found);
    warn_of_the_rest(spec, dgd, found);
  }
  std::stable_sort(found.begin(), found.end(), [](const Finding& one, const Finding& other) {
    return std::tie(one.position.line, one.position.column) <
           std::tie(other.position.line, other.position.column);
  });
  for (Finding& finding : found) add(findings, std::move(finding));
  return dgd;
}

}  // namespace fo::pod
