#include "pod/krm_function.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "pod/filter.h"
#include "pod/generate_options.h"

namespace fo::pod {
namespace {

// Of whom a result speaks.
Node reference_to(const Node& resource) {
  Node reference = Node::map();
  for (const std::string_view key : {"apiVersion", "kind"}) {
    if (const Node* value = resource.find(key)) reference.set(key, *value);
  }
  for (const std::string_view key : {"name", "namespace"}) {
    if (const Node* value = resource.find_path({"metadata", key})) reference.set(key, *value);
  }
  return reference;
}

Node result_of(const std::string& message, Severity severity) {
  Node result = Node::map();
  result.set("message", Node::string(message));
  result.set("severity", Node::string(severity == Severity::kError ? "error" : "warning"));
  return result;
}

Node result_of(const Finding& finding, const Node& resource) {
  std::string message = finding.reason;
  if (!finding.remedy.empty()) message += "; " + finding.remedy;
  Node result = result_of(message, finding.severity);
  result.set("resourceRef", reference_to(resource));
  if (!finding.path.empty()) {
    result.set("field", Node::map()).set("path", Node::string(finding.path));
  }
  return result;
}

GenerateOptions configured(const Node& list, GenerateOptions options) {
  for (const std::string_view part : {"data", "spec"}) {
    const Node* config = list.find_path({"functionConfig", part});
    if (config == nullptr) continue;
    for (const Node::Member& member : config->members()) {
      if (!member.value.is_null()) set_option(options, member.key, member.value.text());
    }
  }
  return options;
}

}  // namespace

bool is_resource_list(const Node& document) {
  const Node* kind = document.find("kind");
  const Node* version = document.find("apiVersion");
  return kind != nullptr && kind->text() == "ResourceList" && version != nullptr &&
         version->text().starts_with("config.kubernetes.io/");
}

FunctionAnswer run_function(const Node& list, const GenerateOptions& defaults) {
  FunctionAnswer answer{list};
  Node items = Node::list();
  Node results = Node::list();
  try {
    const GenerateOptions options = configured(list, defaults);
    Budget budget;
    const Node* given = list.find("items");
    for (const Node& item : given == nullptr ? std::vector<Node>() : given->items()) {
      Filtered filtered = filter("", {{item, "as it was"}}, options, budget);
      for (const Finding& finding : filtered.findings) {
        results.push_back(result_of(finding, item));
      }
      answer.failed = answer.failed || filtered.failed();
      for (Manifest& one : filtered.manifests) items.push_back(std::move(one.root));
    }
  } catch (const base::Error& error) {
    results.push_back(result_of(std::string("functionConfig: ") + error.what(), Severity::kError));
    answer.failed = true;
  }
  if (!answer.failed) answer.list.set("items", std::move(items));
  answer.list.remove("results");
  if (!results.items().empty()) answer.list.set("results", std::move(results));
  return answer;
}

}  // namespace fo::pod
