// The ports that variables and arguments of the main container give its engine. Two engines share
// one network namespace, so each needs its own ports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/engine/engine_command.h"
#include "pod/generate/pod_plan.h"
#include "yaml/node.h"

namespace fo::pod {

class EnginePorts {
 public:
  /// Reads the ports of the main container. Ports that cannot be changed for the second engine are
  /// added to the findings.
  EnginePorts(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

  /// Sets the ports in `env` and `command` of engine `engine`, which are copies of the main
  /// container's.
  void apply(int engine, yaml::Node& env, EngineCommand& command) const;

  [[nodiscard]] std::vector<PortUse> uses() const;

 private:
  // The form of a port in its value.
  enum class Form { kNumber, kEndpoint, kJson };
  struct Port {
    std::string name;
    // The member of a JSON object.
    std::string member;
    Form form = Form::kNumber;
    bool is_variable = false;
    int base = 0;
    int stride = 1;
    // The text of the input; "" if only the layout requires the port.
    std::string text;
    std::string path;
    yaml::Position position;
  };

  void read_variables(const yaml::Node& main, const EngineCommand& command);
  void read_variable(const yaml::Node& main, const EngineCommand& command, std::string_view name,
                     int standard, int stride);
  [[nodiscard]] int port_without(std::string_view option, const EngineCommand& command) const;
  void read_options(const EngineCommand& command);
  void read_json(const EngineCommand& command);
  void read_json_members(const OptionValue& value, Port port);
  void warn_of_unseen(const Port& port, const std::string& reason) const;
  void add(Port port);

  const PodPlan& plan_;
  std::vector<Port> ports_;
};

/// The variables that set ports of an engine; a script must not set them itself.
std::vector<std::string> port_variables();

}  // namespace fo::pod
