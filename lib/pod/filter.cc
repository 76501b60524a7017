#include "pod/filter.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "pod/dgd/dgd.h"
#include "pod/dgd/discovery.h"

namespace fo::pod {
namespace {

// The `source` of an unchanged item of a list: an item has no text of its own in the input.
const std::string kUnchanged = "unchanged";

// The comments and empty lines before a document.
std::string head_of(const std::string& source) {
  std::size_t end = 0;
  while (end < source.size() && (source[end] == '#' || source[end] == '\n')) {
    end = std::min(source.find('\n', end), source.size() - 1) + 1;
  }
  return source.substr(0, end);
}

// The "# Source:" lines of Helm.
std::string source_lines_of(const std::string& head) {
  constexpr std::string_view kMark = "# Source: ";
  std::string lines;
  for (std::size_t at = 0; at < head.size();) {
    const std::size_t end = head.find('\n', at) + 1;
    if (head.compare(at, kMark.size(), kMark) == 0) lines += head.substr(at, end - at);
    at = end;
  }
  return lines;
}

// The deployment without the services that are replaced; nullopt if none is left.
std::optional<yaml::Node> without(const yaml::Node& document, const Dgd& dgd,
                                  const std::vector<std::string>& leaving) {
  if (leaving.size() == dgd.services.size()) return std::nullopt;
  const auto leaves = [&](const std::string& name) {
    return std::find(leaving.begin(), leaving.end(), name) != leaving.end();
  };
  yaml::Node rest = document;
  yaml::Node& spec = rest["spec"];
  if (dgd.version == DgdVersion::kV1Alpha1) {
    std::erase_if(spec["services"].members(),
                  [&](const yaml::Node::Member& member) { return leaves(member.key); });
  } else {
    std::erase_if(spec["components"].items(), [&](const yaml::Node& component) {
      const yaml::Node* name = component.find("name");
      return name != nullptr && leaves(name->text());
    });
  }
  return rest;
}

class Filter {
 public:
  Filter(const GenerateOptions& options, std::shared_ptr<const InputObjects> inputs, Budget& budget,
         Filtered& result)
      : options_(options), inputs_(std::move(inputs)), budget_(budget), result_(result) {}

  void add(const yaml::Node& root, const std::string& source) {
    if (is_dgd(root)) {
      add_dgd(root, source);
    } else if (root.text_at({"kind"}) == "List" && root.find("items") != nullptr) {
      add_list(root, source);
    } else {
      result_.manifests.push_back({root, source, false, ""});
    }
  }

 private:
  void add_dgd(const yaml::Node& root, const std::string& source) {
    if (budget_.is_spent()) return;
    Findings findings;
    Dgd dgd = read_dgd(root, findings);
    dgd.inputs = inputs_;
    std::vector<std::string> leaving;
    std::vector<FailoverPod> pods(dgd.services.size());
    // Services are explained even if another one is refused.
    const DgdExplanation read = explain(dgd, findings);
    for (std::size_t i = 0; i < dgd.services.size(); ++i) {
      const Service& service = dgd.services[i];
      if (!service.failover || read.services[i].refused) continue;
      leaving.push_back(service.name);
      pods[i] = generated(dgd, service, findings);
    }
    add_explanation(dgd, pods, findings);
    add_manifests(root, source, without(root, dgd, leaving), std::move(pods));
    for (Finding& finding : findings) pod::add(result_.findings, std::move(finding));
  }

  void add_explanation(const Dgd& dgd, const std::vector<FailoverPod>& pods,
                       const Findings& findings) {
    DgdExplanation explanation = explain(dgd, findings);
    for (std::size_t i = 0; i < pods.size(); ++i) {
      ServiceExplanation& service = explanation.services[i];
      if (service.refused) continue;
      for (const yaml::Node& one : pods[i].manifests) service.writes.push_back(describe(one));
      service.needs = pods[i].needs;
    }
    result_.explanations.push_back(std::move(explanation));
  }

  // `rest` is the remaining deployment; nullopt if all services are replaced.
  void add_manifests(const yaml::Node& root, const std::string& source,
                     std::optional<yaml::Node> rest, std::vector<FailoverPod> pods) {
    if (std::all_of(pods.begin(), pods.end(),
                    [](const FailoverPod& pod) { return pod.manifests.empty(); })) {
      result_.manifests.push_back({root, source, false, ""});
      return;
    }
    std::vector<Manifest> all;
    if (rest) {
      if (std::any_of(pods.begin(), pods.end(),
                      [](const FailoverPod& pod) { return pod.registers_by_container; })) {
        (*rest)["metadata"]["annotations"].set(
            kDiscoveryMode, yaml::Node::string(std::string(kDiscoveryByContainer)));
      }
      all.push_back({*std::move(rest), "", false, ""});
    }
    for (FailoverPod& pod : pods) {
      for (yaml::Node& one : pod.manifests) all.push_back({std::move(one), "", true, ""});
    }
    const std::string head = head_of(source);
    for (Manifest& one : all) one.head = &one == &all.front() ? head : source_lines_of(head);
    std::move(all.begin(), all.end(), std::back_inserter(result_.manifests));
  }

  FailoverPod generated(const Dgd& dgd, const Service& service, Findings& findings) {
    FailoverPod made;
    if (budget_.is_spent()) return made;
    bool fits = budget_.take(service.pod_template);
    if (fits) {
      made = generate(dgd, service, options_, findings);
      for (const yaml::Node& one : made.manifests) fits = fits && budget_.take(one);
    }
    if (!fits) {
      findings.push_back({Severity::kError, service.position, service.path,
                          "the output would be too large", "spread it over several runs"});
    }
    return made;
  }

  void add_list(const yaml::Node& root, const std::string& source) {
    Filtered inner;
    Filter filter(options_, inputs_, budget_, inner);
    for (const yaml::Node& item : root.find("items")->items()) filter.add(item, kUnchanged);
    std::move(inner.findings.begin(), inner.findings.end(), std::back_inserter(result_.findings));
    std::move(inner.explanations.begin(), inner.explanations.end(),
              std::back_inserter(result_.explanations));
    if (inner.untouched()) {
      result_.manifests.push_back({root, source, false, ""});
      return;
    }
    for (Manifest& one : inner.manifests) {
      one.source.clear();
      result_.manifests.push_back(std::move(one));
    }
  }

  const GenerateOptions& options_;
  std::shared_ptr<const InputObjects> inputs_;
  Budget& budget_;
  Filtered& result_;
};

}  // namespace

bool Filtered::failed() const { return has_error(findings); }

bool Filtered::untouched() const {
  return std::none_of(manifests.begin(), manifests.end(),
                      [](const Manifest& one) { return one.source.empty(); });
}

Filtered filter(const std::vector<yaml::Document>& documents,
                const std::shared_ptr<const InputObjects>& inputs, const GenerateOptions& options,
                Budget& budget) {
  Filtered result;
  Filter all(options, inputs, budget, result);
  for (const yaml::Document& document : documents) all.add(document.root, document.source);
  return result;
}

}  // namespace fo::pod
