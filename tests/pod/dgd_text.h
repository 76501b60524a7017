// DGDs as text for tests, and the findings about them.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "pod/dgd/dgd.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

namespace fo::pod {

/// A v1alpha1 deployment of one worker with failover; each member adds a line at its level, or
/// replaces one.
struct Alpha {
  std::string metadata = "{name: llm}";
  std::string spec = {};
  std::string type = "componentType: worker";
  std::string failover = "failover: {enabled: true}";
  std::string resources = "resources: {limits: {gpu: \"1\"}}";
  std::string service = {};
  std::string pod = {};
  std::string main = "{image: i}";

  [[nodiscard]] std::string text() const {
    return "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: " + metadata +
           "\nspec:\n  " + spec + "\n  services:\n    Worker:\n      " + type + "\n      " +
           failover + "\n      " + resources + "\n      " + service +
           "\n      extraPodSpec:\n        " + pod + "\n        mainContainer: " + main + "\n";
  }
};

/// The same in v1beta1.
struct Beta {
  std::string spec = {};
  std::string type = "type: worker";
  std::string experimental = "{failover: {}, gpuMemoryService: {}}";
  std::string component = {};
  std::string pod = {};
  std::string containers = "[{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]";

  [[nodiscard]] std::string text() const {
    return "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: llm}\n"
           "spec:\n  " +
           spec + "\n  components:\n  - name: Worker\n    " + type +
           "\n    experimental: " + experimental + "\n    " + component +
           "\n    podTemplate:\n      spec:\n        " + pod +
           "\n        containers: " + containers + "\n";
  }
};

struct Read {
  Dgd dgd;
  Findings findings;
};

inline yaml::Node parse(std::string_view text) { return yaml::read_yaml(text, "f").front().root; }

inline Read read(std::string_view text) {
  Read out;
  out.dgd = read_dgd(parse(text), out.findings);
  return out;
}

/// "PATH: REASON; REMEDY" of each finding with that severity.
inline std::vector<std::string> lines(const Findings& findings, Severity severity) {
  std::vector<std::string> out;
  for (const Finding& finding : findings) {
    if (finding.severity != severity) continue;
    Finding placeless = finding;
    placeless.position = {};
    out.push_back(format(placeless, "").substr(2));
  }
  return out;
}

/// The pod template of the first service, which must be valid.
inline yaml::Node template_of(std::string_view text) {
  const Read found = read(text);
  EXPECT_THAT(lines(found.findings, Severity::kError), testing::IsEmpty());
  return found.dgd.services.at(0).pod_template;
}

inline void expect_same(const yaml::Node& made, std::string_view wanted) {
  EXPECT_TRUE(made.same_as(parse(wanted))) << yaml::to_yaml(made);
}

inline std::vector<std::string> errors(std::string_view text) {
  return lines(read(text).findings, Severity::kError);
}

inline std::vector<std::string> warnings(std::string_view text) {
  return lines(read(text).findings, Severity::kWarning);
}

/// The same of an Alpha or a Beta.
template <typename Deployment>
auto errors(const Deployment& dgd) -> decltype(errors(dgd.text())) {
  return errors(dgd.text());
}
template <typename Deployment>
auto warnings(const Deployment& dgd) -> decltype(warnings(dgd.text())) {
  return warnings(dgd.text());
}

}  // namespace fo::pod
