#include "pod/krm_function.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
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

Node result_of(const Finding& finding) {
  Node result = Node::map();
  std::string message = finding.reason;
  if (!finding.remedy.empty()) message += "; " + finding.remedy;
  result.set("message", Node::string(std::move(message)));
  result.set("severity", Node::string(finding.severity == Severity::kError ? "error" : "warning"));
  if (!finding.path.empty()) {
    result.set("field", Node::map()).set("path", Node::string(finding.path));
  }
  return result;
}

// The file that it came from, as kustomize and kpt note it.
void add_file(Node& result, const Node& resource) {
  for (const std::string prefix : {"internal.config.kubernetes.io/", "config.kubernetes.io/"}) {
    const Node* path = resource.find_path({"metadata", "annotations", prefix + "path"});
    if (path == nullptr) continue;
    Node& file = result.set("file", Node::map());
    file.set("path", *path);
    const Node* index = resource.find_path({"metadata", "annotations", prefix + "index"});
    if (index != nullptr) file.set("index", Node::plain(index->text()));
    return;
  }
}

void refuse(const Node& where, const char* path, std::string reason, Findings& findings) {
  add(findings, {Severity::kError, where.position(), path, std::move(reason), {}});
}

GenerateOptions configured(const Node& list, GenerateOptions options, Findings& findings) {
  const Node* config = list.find("functionConfig");
  if (config == nullptr) return options;
  if (!config->is_map()) refuse(*config, "functionConfig", "wants a map", findings);
  for (const std::string_view part : {"data", "spec"}) {
    const Node* words = config->find(part);
    if (words == nullptr) continue;
    if (!words->is_map()) {
      refuse(*words, "functionConfig", "its " + std::string(part) + " wants a map", findings);
    }
    for (const Node::Member& member : words->members()) {
      if (member.value.is_null()) continue;
      try {
        set_option(options, member.key, member.value.text());
      } catch (const base::Error& error) {
        refuse(member.value, "functionConfig", error.what(), findings);
      }
    }
  }
  return options;
}

}  // namespace

bool is_resource_list(const Node& document) {
  return document.text_at({"kind"}) == "ResourceList" &&
         document.text_at({"apiVersion"}).starts_with("config.kubernetes.io/");
}

FunctionAnswer run_function(const Node& list, const GenerateOptions& defaults, Budget& budget) {
  FunctionAnswer answer{list, {}};
  Filtered& all = answer.filtered;
  const GenerateOptions options = configured(list, defaults, all.findings);
  Node results = Node::list();
  for (const Finding& finding : all.findings) results.push_back(result_of(finding));
  const Node* given = list.find("items");
  if (given != nullptr && !given->is_list()) {
    refuse(*given, "items", "wants a list", all.findings);
    results.push_back(result_of(all.findings.back()));
  }
  all.others = all.findings;
  const auto inputs = std::make_shared<InputObjects>();
  if (given != nullptr) {
    for (const Node& item : given->items()) inputs->add(item);
  }
  for (const Node& item : given == nullptr ? std::vector<Node>() : given->items()) {
    Filtered one = filter({{item, "as it was"}}, inputs, options, budget);
    for (Finding& finding : one.findings) {
      Node& result = results.push_back(result_of(finding));
      result.set("resourceRef", reference_to(item));
      add_file(result, item);
      all.findings.push_back(std::move(finding));
    }
    std::move(one.manifests.begin(), one.manifests.end(), std::back_inserter(all.manifests));
    std::move(one.explanations.begin(), one.explanations.end(),
              std::back_inserter(all.explanations));
  }
  if (!all.failed() && given != nullptr) {
    Node items = Node::list();
    for (const Manifest& one : all.manifests) items.push_back(one.root);
    answer.list.set("items", std::move(items));
  }
  answer.list.remove("results");
  if (!results.items().empty()) answer.list.set("results", std::move(results));
  return answer;
}

}  // namespace fo::pod
