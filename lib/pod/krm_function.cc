#include "pod/krm_function.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pod/generate/generate_options.h"

namespace fo::pod {
namespace {

// The object that a result is about.
yaml::Node reference_to(const yaml::Node& resource) {
  yaml::Node reference = yaml::Node::map();
  for (const std::string_view key : {"apiVersion", "kind"}) {
    if (const yaml::Node* value = resource.find(key)) reference.set(key, *value);
  }
  for (const std::string_view key : {"name", "namespace"}) {
    if (const yaml::Node* value = resource.find_path({"metadata", key})) reference.set(key, *value);
  }
  return reference;
}

yaml::Node result_of(const Finding& finding) {
  yaml::Node result = yaml::Node::map();
  std::string message = finding.reason;
  if (!finding.remedy.empty()) message += "; " + finding.remedy;
  result.set("message", yaml::Node::string(std::move(message)));
  result.set("severity",
             yaml::Node::string(finding.severity == Severity::kError ? "error" : "warning"));
  if (!finding.path.empty()) {
    result.set("field", yaml::Node::map()).set("path", yaml::Node::string(finding.path));
  }
  return result;
}

// The file of the resource, as annotated by kustomize and kpt.
void add_file(yaml::Node& result, const yaml::Node& resource) {
  for (const std::string prefix : {"internal.config.kubernetes.io/", "config.kubernetes.io/"}) {
    const yaml::Node* path = resource.find_path({"metadata", "annotations", prefix + "path"});
    if (path == nullptr) continue;
    yaml::Node& file = result.set("file", yaml::Node::map());
    file.set("path", *path);
    const yaml::Node* index = resource.find_path({"metadata", "annotations", prefix + "index"});
    if (index != nullptr) file.set("index", yaml::Node::plain(index->text()));
    return;
  }
}

void refuse(const yaml::Node& where, const char* path, std::string reason, Findings& findings) {
  add(findings, {Severity::kError, where.position(), path, std::move(reason), {}});
}

GenerateOptions configured(const yaml::Node& list, GenerateOptions options, Findings& findings) {
  const yaml::Node* config = list.find("functionConfig");
  if (config == nullptr) return options;
  if (!config->is_map()) refuse(*config, "functionConfig", "expected a map", findings);
  for (const std::string_view part : {"data", "spec"}) {
    const yaml::Node* words = config->find(part);
    if (words == nullptr) continue;
    if (!words->is_map()) {
      refuse(*words, "functionConfig", "its " + std::string(part) + " must be a map", findings);
    }
    for (const yaml::Node::Member& member : words->members()) {
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

bool is_resource_list(const yaml::Node& document) {
  return document.text_at({"kind"}) == "ResourceList" &&
         document.text_at({"apiVersion"}).starts_with("config.kubernetes.io/");
}

FunctionAnswer run_function(const yaml::Node& list, const GenerateOptions& defaults,
                            Budget& budget) {
  FunctionAnswer answer{list, {}};
  Filtered& all = answer.filtered;
  const GenerateOptions options = configured(list, defaults, all.findings);
  yaml::Node results = yaml::Node::list();
  for (const Finding& finding : all.findings) results.push_back(result_of(finding));
  const yaml::Node* given = list.find("items");
  if (given != nullptr && !given->is_list()) {
    refuse(*given, "items", "expected a list", all.findings);
    results.push_back(result_of(all.findings.back()));
  }
  all.others = all.findings;
  const auto inputs = std::make_shared<InputObjects>();
  if (given != nullptr) {
    for (const yaml::Node& item : given->items()) inputs->add(item);
  }
  for (const yaml::Node& item : given == nullptr ? std::vector<yaml::Node>() : given->items()) {
    Filtered one = filter({{item, "unchanged"}}, inputs, options, budget);
    for (Finding& finding : one.findings) {
      yaml::Node& result = results.push_back(result_of(finding));
      result.set("resourceRef", reference_to(item));
      add_file(result, item);
      all.findings.push_back(std::move(finding));
    }
    std::move(one.manifests.begin(), one.manifests.end(), std::back_inserter(all.manifests));
    std::move(one.explanations.begin(), one.explanations.end(),
              std::back_inserter(all.explanations));
  }
  if (!all.failed() && given != nullptr) {
    yaml::Node items = yaml::Node::list();
    for (const Manifest& one : all.manifests) items.push_back(one.root);
    answer.list.set("items", std::move(items));
  }
  answer.list.remove("results");
  if (!results.items().empty()) answer.list.set("results", std::move(results));
  return answer;
}

}  // namespace fo::pod
