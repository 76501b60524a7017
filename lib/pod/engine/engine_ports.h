// The ports that the main container gives its engine, by variables and arguments. Two engines share
// one network, so that each needs its own.
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
  /// Those of the main container. What can't be given to two engines is added to the findings.
  EnginePorts(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan);

  /// Gives engine `engine` its ports, in its env and command, which are the main container's.
  void apply(int engine, yaml::Node& env, EngineCommand& command) const;

  [[nodiscard]] std::vector<PortUse> uses() const;

 private:
  // How a port stands in what gives it.
  enum class Form { kNumber, kEndpoint, kJson };
  struct Port {
    std::string name;
    // Of a member of a JSON object.
    std::string member;
    Form form = Form::kNumber;
    bool is_variable = false;
    int base = 0;
    int stride = 1;
    // As written; "" where only the layout asks for the port.
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

/// The variables that give an engine a port, which a script must not set by itself.
std::vector<std::string> port_variables();

}  // namespace fo::pod
