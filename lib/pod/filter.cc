#include "pod/filter.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "pod/dgd.h"

namespace fo::pod {
namespace {

// Without the services that `leaves` names; nullopt when none is left.
std::optional<Node> without(const Node& document, const Dgd& dgd,
                            const std::vector<std::string>& leaving) {
  if (leaving.size() == dgd.services.size()) return std::nullopt;
  const auto leaves = [&](const std::string& name) {
    return std::find(leaving.begin(), leaving.end(), name) != leaving.end();
  };
  Node rest = document;
  Node& spec = rest["spec"];
  if (dgd.version == DgdVersion::kV1Alpha1) {
    std::erase_if(spec["services"].members(),
                  [&](const Node::Member& member) { return leaves(member.key); });
  } else {
    std::erase_if(spec["components"].items(), [&](const Node& component) {
      const Node* name = component.find("name");
      return name != nullptr && leaves(name->text());
    });
  }
  return rest;
}

class Filter {
 public:
  Filter(const GenerateOptions& options, Budget& budget, Filtered& result)
      : options_(options), budget_(budget), result_(result) {}

  void add(const Node& root, const std::string& source) {
    if (is_dgd(root)) {
      add_dgd(root, source);
    } else if (root.text_at({"kind"}) == "List" && root.find("items") != nullptr) {
      add_list(root, source);
    } else {
      result_.manifests.push_back({root, source, false});
    }
  }

 private:
  void add_dgd(const Node& root, const std::string& source) {
    if (budget_.is_spent()) return;
    Findings findings;
    const Dgd dgd = read_dgd(root, findings);
    std::vector<std::string> leaving;
    std::vector<Manifest> made;
    if (!has_error(findings)) {
      for (const Service& service : dgd.services) {
        if (!service.failover) continue;
        leaving.push_back(service.name);
        add_generated(dgd, service, made, findings);
      }
    }
    std::move(findings.begin(), findings.end(), std::back_inserter(result_.findings));
    if (leaving.empty()) {
      result_.manifests.push_back({root, source, false});
    } else if (std::optional<Node> rest = without(root, dgd, leaving)) {
      result_.manifests.push_back({*std::move(rest), "", false});
    }
    std::move(made.begin(), made.end(), std::back_inserter(result_.manifests));
  }

  void add_generated(const Dgd& dgd, const Service& service, std::vector<Manifest>& made,
                     Findings& findings) {
    if (budget_.is_spent()) return;
    bool fits = budget_.take(service.pod_template);
    if (fits) {
      for (Node& one : generate(dgd, service, options_, findings)) {
        fits = fits && budget_.take(one);
        made.push_back({std::move(one), "", true});
      }
    }
    if (fits) return;
    findings.push_back({Severity::kError, service.position, service.path,
                        "too much would be generated at once", "spread it over several runs"});
  }

  void add_list(const Node& root, const std::string& source) {
    Filtered inner;
    Filter filter(options_, budget_, inner);
    for (const Node& item : root.find("items")->items()) filter.add(item, "as it was");
    std::move(inner.findings.begin(), inner.findings.end(), std::back_inserter(result_.findings));
    if (inner.untouched()) {
      result_.manifests.push_back({root, source, false});
      return;
    }
    for (Manifest& one : inner.manifests) {
      one.source.clear();
      result_.manifests.push_back(std::move(one));
    }
  }

  const GenerateOptions& options_;
  Budget& budget_;
  Filtered& result_;
};

}  // namespace

bool Filtered::failed() const { return has_error(findings); }

bool Filtered::untouched() const {
  return std::none_of(manifests.begin(), manifests.end(),
                      [](const Manifest& one) { return one.source.empty(); });
}

Filtered filter(const std::vector<Document>& documents, const GenerateOptions& options,
                Budget& budget) {
  Filtered result;
  Filter all(options, budget, result);
  for (const Document& document : documents) all.add(document.root, document.source);
  return result;
}

}  // namespace fo::pod
