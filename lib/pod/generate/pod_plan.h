// The common input for all parts of a failover pod: the service, the options, the names derived
// from them, and where to report problems.
#pragma once

#include <string>
#include <string_view>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "pod/generate/generate.h"
#include "pod/shell/environment.h"
#include "yaml/node.h"

namespace fo::pod {

inline constexpr int kEngines = 2;
/// The port of engine 0; engine 1 has the next one.
inline constexpr int kSystemPort = 9090;
/// The offset from fo-shadow's port to the engine's own, as fo-shadow chooses it by default.
inline constexpr int kInnerPortOffset = 100;
inline constexpr std::string_view kToolsVolume = "fo-tools";
inline constexpr std::string_view kToolsFolder = "/fo-tools";
inline constexpr std::string_view kToolsContainer = "fo-tools";
inline constexpr std::string_view kLockdContainer = "gms-lockd";

/// A port that a container of the pod listens on.
struct PortUse {
  int port = 0;
  /// The container.
  std::string owner;
  /// The use of the port, for messages: "VLLM_PORT", "--port".
  std::string what;
  /// True if the generator chose the port, not the user.
  bool is_ours = false;
  /// Path of its source in the input; for generated ports, the service.
  std::string path;
  yaml::Position position;
};

struct PodPlan {
  PodPlan(const Dgd& the_dgd, const Service& the_service, const GenerateOptions& the_options,
          Findings& the_findings)
      : dgd(the_dgd), service(the_service), options(the_options), findings(the_findings) {}

  const Dgd& dgd;
  const Service& service;
  const GenerateOptions& options;
  Findings& findings;
  LayoutNames names = layout_names(options.layout);
  /// The program from the options, or the one that fits the engine.
  GmsProgram gms = GmsProgram::kOurs;
  /// Whether Dynamo's operator still runs components that discover the engines.
  bool is_found_by_kubernetes = false;
  /// The entry CUDA_DEVICE_ORDER for all containers with GPUs; a null if it is not needed.
  yaml::Node device_order;

  [[nodiscard]] bool is_dynamo() const { return options.layout == PodLayout::kDynamo; }
  /// The known environment of a container.
  [[nodiscard]] Environment environment_of(const yaml::Node& container) const {
    return Environment(container, *dgd.inputs, dgd.name_space);
  }
  [[nodiscard]] bool has_tools() const { return !options.tools_image.empty(); }
  /// "<dgd>-<service, lower case>".
  [[nodiscard]] std::string workload_name() const;
  [[nodiscard]] std::string claim_template_name() const { return workload_name() + "-gpu"; }
  /// The path of a program of this toolkit in the pod.
  [[nodiscard]] std::string program(std::string_view name) const;
  [[nodiscard]] std::string lockd_socket() const { return names.folder + "/failover.sock"; }
  /// The value of FAILOVER_LOCK_PATH.
  [[nodiscard]] std::string lock_uri() const;
  /// "Kubernetes 1.34".
  [[nodiscard]] std::string kubernetes() const;
  /// "0,1".
  [[nodiscard]] std::string device_list() const;

  /// Paths in the input: of a field of the pod, of a container in a list ("containers",
  /// "initContainers"), and of the main container; with "" for the field, of the whole.
  [[nodiscard]] std::string spec_path(std::string_view field) const;
  [[nodiscard]] std::string container_path(std::string_view list,
                                           const yaml::Node& container) const;
  [[nodiscard]] std::string main_path(std::string_view field) const;

  void refuse(yaml::Position position, std::string path, std::string reason,
              std::string remedy) const;
  void warn(yaml::Position position, std::string path, std::string reason,
            std::string remedy) const;
  /// Refuses the service as a whole.
  void refuse(std::string reason, std::string remedy) const;
};

/// "engine-0".
std::string engine_name(int engine);
/// An entry of a container's env.
yaml::Node env_entry(std::string_view name, const std::string& value);
/// A port number: only digits, 1 to 65535; else 0.
int port_of(std::string_view text);
/// The same for a field of the input, as a number in any notation.
int port_of(const yaml::Node& node);

}  // namespace fo::pod
