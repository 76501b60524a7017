// A service with failover as read_dgd returns it, and the generated result.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "pod/generate/generate.h"
#include "pod/json_node.h"
#include "yaml/node.h"

namespace fo::pod::test {

/// Where a v1alpha1 deployment's worker has its main container, as findings say it.
inline const std::string kMainPath = "f: spec.services.Decode.extraPodSpec.mainContainer.";

/// What a second engine's vLLM or SGLang is told, joined by '|'.
inline const std::string kReadOnly = R"(|--model-loader-extra-config|{"gms_read_only":true})";

struct Generated {
  std::vector<yaml::Node> manifests;
  std::vector<std::string> needs;
  Findings findings;

  /// The Pod or Deployment.
  [[nodiscard]] const yaml::Node& workload() const { return manifests.back(); }
  [[nodiscard]] const yaml::Node& pod_spec() const {
    const yaml::Node* of_template = workload().find_path({"spec", "template", "spec"});
    return of_template != nullptr ? *of_template : *workload().find("spec");
  }
  /// By name, from either list; a null if there is none.
  [[nodiscard]] yaml::Node container(std::string_view name) const {
    for (const char* list : {"initContainers", "containers"}) {
      if (const yaml::Node* one = yaml::find_named(pod_spec().find(list), "name", name))
        return *one;
    }
    return {};
  }
  /// The value in a container's env, "(none)" if it is not set.
  [[nodiscard]] std::string env(std::string_view name, std::string_view variable) const {
    const yaml::Node made = container(name);
    const yaml::Node* entry = yaml::find_named(made.find("env"), "name", variable);
    if (entry == nullptr) return "(none)";
    const yaml::Node* value = entry->find("value");
    const yaml::Node* source = entry->find("valueFrom");
    // Kubernetes allows only one of them.
    if (value != nullptr && source != nullptr) return "(value and valueFrom)";
    return value == nullptr ? "(no value)" : value->text();
  }
  /// Only the errors, one per line, without positions.
  [[nodiscard]] std::string errors() const { return lines(Severity::kError); }
  [[nodiscard]] std::string warnings() const { return lines(Severity::kWarning); }

 private:
  [[nodiscard]] std::string lines(Severity severity) const {
    std::string text;
    for (Finding finding : findings) {
      if (finding.severity != severity) continue;
      finding.position = {};
      text += (text.empty() ? "" : "\n") + format(finding, "f");
    }
    return text;
  }
};

/// A worker with one GPU. `main` has additional fields of its main container, `spec` of the pod's
/// spec, and `others` additional containers.
struct Worker {
  std::string main = R"("command":["python3","-m","dynamo.vllm"],"args":["--model","m"])";
  std::string spec = {};
  std::string others = {};
  std::string metadata = "{}";
  /// An object of the input, or a List of objects.
  std::string inputs = "{}";
  Service service = make_service();
  /// Used if the options set none: that of an image with the tools.
  std::optional<GmsProgram> gms = GmsProgram::kOurs;
  /// operator_defaults_test covers them.
  bool operator_defaults = false;

  static Service make_service() {
    Service made;
    made.name = "Decode";
    made.path = "spec.services.Decode";
    made.component_type = "worker";
    made.failover = true;
    made.gpus = 1;
    return made;
  }

  [[nodiscard]] yaml::Node pod_template() const {
    return node("{\"metadata\":" + metadata + ",\"spec\":{" + (spec.empty() ? "" : spec + ",") +
                "\"containers\":[{\"name\":\"main\",\"image\":\"img\"" +
                (main.empty() ? "" : "," + main) + "}" + (others.empty() ? "" : "," + others) +
                "]}}");
  }

  [[nodiscard]] Generated generate(const GenerateOptions& options = {}) const {
    Dgd dgd;
    dgd.name = "vllm";
    return generate_in(std::move(dgd), options);
  }
  /// As a service of this deployment, which gets the inputs.
  [[nodiscard]] Generated generate_in(Dgd dgd, GenerateOptions options) const {
    if (!options.gms) options.gms = gms;
    options.operator_defaults = operator_defaults;
    Service made = service;
    if (made.pod_template.is_null()) made.pod_template = pod_template();
    auto objects = std::make_shared<InputObjects>();
    objects->add(node(inputs));
    dgd.inputs = std::move(objects);
    Generated result;
    FailoverPod pod = pod::generate(dgd, made, options, result.findings);
    result.manifests = std::move(pod.manifests);
    result.needs = std::move(pod.needs);
    return result;
  }
};

}  // namespace fo::pod::test
